/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_usec_of(clockid_t clock) {
        struct timespec ts;

        clock_gettime(clock, &ts);
        return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}

/* CLOCK_MONOTONIC now, which is not the event loop's idea of now. */
static inline uint64_t clock_usec(void) {
        return clock_usec_of(CLOCK_MONOTONIC);
}
