/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <errno.h>
#include <stdio.h>

#include "macro.h"

/* Ends what open_memstream() began.  -ENOMEM if memory ran out on the way, or at the end: fclose() alone
 * tells neither. */
static inline int memstream_close(FILE *f, char *const *text) {
        bool failed = ferror(f);

        return fclose(f) != 0 || failed || !*text ? -ENOMEM : 0;
}
