/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "preload.h"

#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST "verify_asan_link_order=0"

void preload_none(void) {
        assert_int_equal(unsetenv("LD_PRELOAD"), 0);
}

void preload_add(const char *variable) {
        const char *asan = getenv("ASAN_OPTIONS"), *before = getenv("LD_PRELOAD"),
                   *library = getenv(variable);
        char text[2048];

        if (!library)
                fail_msg("%s is not set: run this with meson test", variable);
        /* ASan wants to be the first one loaded, for nobody to take its place; ours only stand before it. */
        if (!asan || !strstr(asan, FIRST)) {
                snprintf(text, sizeof(text), "%s:" FIRST, asan ? asan : "");
                assert_int_equal(setenv("ASAN_OPTIONS", text, 1), 0);
        }
        snprintf(text, sizeof(text), "%s%s%s", before ? before : "", before ? ":" : "", library);
        assert_int_equal(setenv("LD_PRELOAD", text, 1), 0);
}
