/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What every target has. Input is text of any content; FUZZ_CHECK() is a property that must hold for all of
 * it. libFuzzer calls LLVMFuzzerTestOneInput() with what it makes up, replay.c with what is stored.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(condition)                                                                               \
        do {                                                                                                \
                if (!(condition)) {                                                                         \
                        fprintf(stderr, "%s:%i: does not hold: %s\n", __FILE__, __LINE__, #condition);      \
                        abort();                                                                            \
                }                                                                                           \
        } while (0)

/* The input as a string, which ends at its first NUL. To be freed. */
static inline char *fuzz_string(const uint8_t *data, size_t size) {
        char *s = malloc(size + 1);

        FUZZ_CHECK(s);
        memcpy(s, data, size);
        s[size] = '\0';
        return s;
}

/* The next line of it, cut off; NULL at the end. */
static inline char *fuzz_line(char **s) {
        return strsep(s, "\n");
}
