/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Random traces of the table: each ends with one owner that has all memory, and with none left on the other
 * host. HANDOFF_SEED and HANDOFF_TRACES run others, or more; a trace that fails tells the seed to run it
 * alone.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>

#include "handoff-sim.h"

static uint64_t number_from_environment(const char *name, uint64_t otherwise) {
        const char *s = getenv(name);

        return s ? strtoull(s, NULL, 0) : otherwise;
}

static void case_59_one_owner_whatever_happens(void **state) {
        uint64_t seed = number_from_environment("HANDOFF_SEED", 59);
        uint64_t n = number_from_environment("HANDOFF_TRACES", 100000);
        static SimStats stats;
        unsigned unseen = 0;

        for (uint64_t i = 0; i < n; i++)
                if (!sim_run(seed + i, &stats))
                        fail_msg("seed %" PRIu64 ": HANDOFF_SEED=%" PRIu64 " HANDOFF_TRACES=1 runs it alone",
                                 seed + i, seed + i);
        printf("seeds %" PRIu64 " to %" PRIu64 ": %" PRIu64 " steps, %" PRIu64 " deaths, %" PRIu64
               " messages lost, %" PRIu64 " replayed; %" PRIu64 " handoffs, %" PRIu64
               " of them post-copy, %" PRIu64 " undone, %" PRIu64 " stale offers\n",
               seed, seed + n - 1, stats.steps, stats.crashes, stats.lost, stats.replayed, stats.moved,
               stats.moved_by_post_copy, stats.kept, stats.stale);
        if (n < 100000)
                return;

        /* It was worth something: every transition of the table was taken. */
        assert_true(stats.moved > n / 10 && stats.moved_by_post_copy > n / 100 && stats.kept > n / 10);
        assert_true(stats.crashes > n / 2 && stats.replayed > n && stats.stale > n / 1000);
        for (HandoffState s = 0; s < _HANDOFF_STATE_MAX; s++)
                for (HandoffEvent e = 0; e < _HANDOFF_EVENT_MAX; e++)
                        /* (a source that has said commit does not say abort) */
                        if (handoff_next(s, e).next != s && stats.cells[s][e] == 0 &&
                            !(s == HANDOFF_D_VERIFYING && e == HANDOFF_GOT_ABORT)) {
                                fprintf(stderr, "never: %s + %s\n", handoff_state_to_string(s),
                                        handoff_event_to_string(e));
                                unseen++;
                        }
        assert_int_equal(unseen, 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(case_59_one_owner_whatever_happens),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
