/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A benchmark that cannot go on says why, and ends. */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

noreturn void die(const char *what) {
        fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
        exit(EXIT_FAILURE);
}

noreturn void die_text(const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        fprintf(stderr, "%s: ", program_invocation_short_name);
        vfprintf(stderr, format, ap);
        fputc('\n', stderr);
        va_end(ap);
        exit(EXIT_FAILURE);
}
