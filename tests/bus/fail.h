/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Failures on demand: libfail.so, preloaded into tdpd, lets one call of one kind fail when it is told to,
 * through a file that both sides have mapped. FAIL_CONTROL has the file's name.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FAIL_ENV  "FAIL_CONTROL"
#define FAIL_CALL 24

/* The kind of what malloc() and its like do; all others have the name of their function. */
#define FAIL_ALLOCATION "allocation"

typedef struct FailControl {
        atomic_bool armed;
        atomic_bool fired;
        _Atomic int64_t countdown; /* the call that brings it to 0 fails */
        int error;
        char call[FAIL_CALL];
        bool libraries; /* calls that libraries make count as well, else the program's own only */
        atomic_bool loaded;
} FailControl;
