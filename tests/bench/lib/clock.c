/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Turns the processor's clock into a count of instructions. */

#include <time.h>

#include "bench.h"

/* Each round is two instructions. */
static void spin(uint64_t rounds) {
        __asm__ volatile("1: dec %0\n"
                         "   jnz 1b\n"
                         : "+r"(rounds)
                         :
                         : "cc");
}

uint64_t start_ticks(void) {
        struct timespec first, now;

        /* This clock moves when the timer interrupts, and then only. */
        clock_gettime(CLOCK_MONOTONIC_COARSE, &first);
        do
                clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        while (now.tv_sec == first.tv_sec && now.tv_nsec == first.tv_nsec);

        return ticks();
}

static uint64_t spin_ticks(uint64_t rounds) {
        uint64_t best = UINT64_MAX;

        /* The shortest of many is the one that no interrupt came into: it has to fit well between two of
         * them. */
        for (unsigned i = 0; i < 16; i++) {
                uint64_t t = start_ticks();

                spin(rounds);
                t = ticks() - t;
                if (t < best)
                        best = t;
        }

        return best;
}

double ticks_per_instruction(void) {
        const uint64_t rounds = 20000;

        /* The difference is free of what reading the clock costs. */
        return (double) (spin_ticks(2 * rounds) - spin_ticks(rounds)) / (double) (2 * rounds);
}
