/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Sizes for people: exact, in the largest unit that divides them. */

#include <inttypes.h>
#include <stdio.h>

#include "macro.h"

#define FORMAT_BYTES_MAX 32

static inline const char *format_bytes_to(char buf[static FORMAT_BYTES_MAX], uint64_t n) {
        static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
        size_t u = 0;

        while (n != 0 && n % 1024 == 0 && u + 1 < ELEMENTSOF(units)) {
                n /= 1024;
                u++;
        }
        snprintf(buf, FORMAT_BYTES_MAX, "%" PRIu64 " %s", n, units[u]);
        return buf;
}

/* Good until the end of the statement's block. */
#define format_bytes(n) format_bytes_to((char[FORMAT_BYTES_MAX]){}, n)
