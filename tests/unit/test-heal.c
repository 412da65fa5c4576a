/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "heal.h"

#define SEC         UINT64_C(1000000)
#define DELAY       SEC
#define START       (UINT64_C(1000) * SEC)
#define SPAN(g, s)  ((Span){ .gpa = (g), .size = (s) })
#define PAGES(g, n) SPAN((uint64_t) (g) *4096, (uint64_t) (n) *4096)

static Heal heal;
static HealRange taken[HEAL_RANGES_MAX];

static void begin(uint64_t interval_sec, uint64_t burst) {
        heal_done(&heal);
        heal_init(&heal,
                  &(HealLimits){ .delay_msec = DELAY / 1000, .interval_sec = interval_sec, .burst = burst },
                  START);
}

static void assert_taken(size_t i, Span span) {
        assert_int_equal(taken[i].span.gpa, span.gpa);
        assert_int_equal(taken[i].span.size, span.size);
}

/* Waits for the next round and takes what is due. */
static size_t next(uint64_t *now) {
        uint64_t when = heal_next_usec(&heal, *now);

        assert_true(when != UINT64_MAX);
        *now = MAX_OF(*now, when);
        return heal_take(&heal, *now, taken);
}

static void test_waits_and_merges(void **state) {
        begin(5, 10);
        assert_true(heal_next_usec(&heal, START) == UINT64_MAX);
        assert_int_equal(heal_take(&heal, START, taken), 0);

        heal_hole(&heal, START, PAGES(0, 1), false);
        heal_hole(&heal, START + SEC / 2, PAGES(1, 1), false);
        heal_hole(&heal, START + SEC / 2, PAGES(100, 1), false);
        assert_int_equal(heal_next_usec(&heal, START + SEC / 2), START + DELAY);
        assert_int_equal(heal_take(&heal, START + DELAY - 1, taken), 0);

        /* What touches is one, as early as the first of it; what comes later waits for itself. */
        assert_int_equal(heal_take(&heal, START + DELAY, taken), 1);
        assert_taken(0, PAGES(0, 2));
        assert_int_equal(heal_take(&heal, START + DELAY + SEC / 2, taken), 1);
        assert_taken(0, PAGES(100, 1));
        assert_true(heal_next_usec(&heal, START + 10 * SEC) == UINT64_MAX);
        assert_int_equal(heal.n_put_off, 0);
}

/* A stream of holes is no reason to put the first one off for ever. */
static void test_stream(void **state) {
        uint64_t now = START;

        begin(5, 10);
        for (unsigned i = 0; i < 20; i++, now += SEC / 10)
                heal_hole(&heal, now, PAGES(i, 1), false);
        assert_int_equal(heal_next_usec(&heal, now), START + DELAY);
}

/* However holes come: no more rounds than the burst, and one for each interval that has passed. */
static void test_bound(void **state) {
        uint64_t now = START, seconds = 1000, page = 0;
        unsigned rounds = 0;

        begin(5, 10);
        for (; now < START + seconds * SEC; now += SEC / 20) {
                size_t n;

                heal_hole(&heal, now, PAGES(page += 2, 1), false);
                n = heal_take(&heal, now, taken);

                rounds += n > 0;
                for (size_t i = 0; i < n; i++)
                        heal_tried(&heal, now, &taken[i], true, false);
        }
        assert_in_range(rounds, 10, 10 + seconds / 5);
        /* It does go on at that rate. */
        assert_in_range(rounds, seconds / 5 - 1, 10 + seconds / 5);
        assert_true(heal.n_put_off > 0);
}

static void test_tokens_come_back(void **state) {
        uint64_t now = START;

        begin(5, 2);
        for (unsigned i = 0; i < 2; i++) {
                heal_hole(&heal, now, PAGES(10 * i, 1), false);
                assert_int_equal(next(&now), 1);
        }
        assert_int_equal(now, START + 2 * SEC);
        heal_hole(&heal, now, PAGES(50, 1), false);
        assert_int_equal(heal_take(&heal, now + SEC, taken), 0);
        assert_int_equal(next(&now), 1);
        assert_int_equal(now, START + 6 * SEC); /* the first was taken from a full bucket after one second */
        assert_int_equal(heal.n_put_off, 1);

        /* After a long time there are two again, not more. */
        now += 1000 * SEC;
        for (unsigned i = 0; i < 3; i++)
                heal_hole(&heal, now + i, PAGES(100 + 10 * i, 1), false);
        assert_int_equal(heal_take(&heal, now + SEC, taken), 1);
        assert_int_equal(heal_take(&heal, now + SEC + 1, taken), 1);
        assert_int_equal(heal_take(&heal, now + SEC + 2, taken), 0);
}

static void test_off(void **state) {
        begin(5, 0);
        heal_hole(&heal, START, PAGES(0, 1), false);
        assert_true(heal_next_usec(&heal, START + 100 * SEC) == UINT64_MAX);
        assert_int_equal(heal_take(&heal, START + 100 * SEC, taken), 0);
}

/* Torn as soon as it was healed: half as often each time, until it is left alone for a while. */
static void test_torn_again(void **state) {
        uint64_t now = START, want = DELAY;

        begin(1, 1000);
        for (unsigned i = 0; i < 12; i++) {
                uint64_t before = now;

                heal_hole(&heal, now, PAGES(i % 3, 4), false);
                assert_int_equal(next(&now), 1);
                assert_int_equal(now - before, want);
                heal_tried(&heal, now, &taken[0], true, false);
                want = MIN_OF(2 * want, HEAL_TORN_MAX_USEC);
        }
        assert_int_equal(want, HEAL_TORN_MAX_USEC);
        assert_int_equal(heal.n_put_off, 11);

        /* Others do not suffer from it. */
        heal_hole(&heal, now, PAGES(1000, 1), false);
        assert_int_equal(heal_next_usec(&heal, now), now + DELAY);
        assert_int_equal(next(&now), 1);

        now += 8 * HEAL_TORN_MAX_USEC + SEC;
        heal_hole(&heal, now, PAGES(0, 1), false);
        assert_int_equal(heal_next_usec(&heal, now), now + DELAY);
}

/* Memory that is gone is asked for more and more seldom, and at last once an hour. */
static void test_memory_is_gone(void **state) {
        uint64_t now = START, before = START, want = DELAY;
        unsigned rounds = 0;

        begin(1, 1000);
        heal_hole(&heal, now, PAGES(0, 8), false);
        for (; now < START + 48 * HEAL_GONE_MAX_USEC; rounds++) {
                assert_int_equal(next(&now), 1);
                assert_taken(0, PAGES(0, 8));
                assert_int_equal(now - before, want);
                heal_tried(&heal, now, &taken[0], false, true);
                want = MIN_OF(2 * want, HEAL_GONE_MAX_USEC);
                before = now;
        }
        assert_in_range(rounds, 48, 48 + 12);

        /* It is back: that was the last time. */
        assert_int_equal(next(&now), 1);
        heal_tried(&heal, now, &taken[0], true, false);
        assert_true(heal_next_usec(&heal, now) == UINT64_MAX);
}

/* Holes elsewhere make a range wait for more, which must not count as torn. */
static void test_holes_elsewhere(void **state) {
        uint64_t now = START;

        begin(1, 1000);
        heal_hole(&heal, now, PAGES(0, 8), false);
        assert_int_equal(next(&now), 1);
        heal_tried(&heal, now, &taken[0], true, true);
        for (unsigned i = 0; i < 10; i++) {
                assert_int_equal(next(&now), 1);
                heal_tried(&heal, now, &taken[0], false, true);
        }
        heal_hole(&heal, now, PAGES(2, 1), false);
        assert_int_equal(heal_next_usec(&heal, now), now + DELAY);
}

/* A balloon goes up and down: what was tried in vain and is torn again is put off as well. */
static void test_balloon(void **state) {
        uint64_t now = START;
        unsigned rounds = 0;

        begin(1, 1000);
        for (unsigned i = 0; i < 600; i++, now += SEC) {
                heal_hole(&heal, now, PAGES(0, 8), false);
                if (heal_take(&heal, now, taken) == 0)
                        continue;
                rounds++;
                heal_tried(&heal, now, &taken[0], false, true);
        }
        assert_in_range(rounds, 2, 60);
}

static void test_dirty_log(void **state) {
        SpanSet logging = {};
        uint64_t now = START;

        begin(1, 10);
        assert_int_equal(spanset_add(&logging, PAGES(0, 100)), 0);
        heal_set_logging(&heal, now, &logging);
        heal_hole(&heal, now, PAGES(0, 8), true);
        heal_hole(&heal, now, PAGES(200, 8), true);
        heal_hole(&heal, now, PAGES(8, 8), false);

        /* What was lost for another reason is healed, in small leaves; and so is what is not logged. */
        now += DELAY;
        assert_int_equal(heal_take(&heal, now, taken), 2);
        assert_true(taken[0].span.gpa != 0 && taken[1].span.gpa != 0);
        assert_true(heal_next_usec(&heal, now) == UINT64_MAX);

        heal_set_logging(&heal, now, &logging);
        assert_int_equal(heal_take(&heal, now, taken), 1);
        assert_taken(0, PAGES(0, 8));
}

static void test_slot_goes(void **state) {
        uint64_t now = START + DELAY;

        begin(1, 10);
        heal_hole(&heal, START, PAGES(0, 100), false);
        heal_slot_gone(&heal, PAGES(10, 20));
        assert_int_equal(heal_take(&heal, now, taken), 2);
        assert_int_equal(taken[0].span.size + taken[1].span.size, 80 * 4096);

        heal_hole(&heal, now, PAGES(1000, 1), false);
        heal_slot_gone(&heal, PAGES(999, 2));
        assert_true(heal_next_usec(&heal, now) == UINT64_MAX);
}

static void test_everything(void **state) {
        uint64_t now = START;

        begin(1, 10);
        heal_hole(&heal, now, PAGES(0, 1), false);
        heal_everything(&heal, now);
        heal_hole(&heal, now, PAGES(50, 1), false);
        heal_slot_gone(&heal, PAGES(0, 100));
        assert_int_equal(next(&now), 1);
        assert_true(heal_is_everything(&taken[0]));

        /* More ranges than are kept apart. */
        begin(1, 10);
        for (unsigned i = 0; i < 3 * HEAL_RANGES_MAX; i++)
                heal_hole(&heal, now, PAGES(2 * i, 1), false);
        assert_int_equal(next(&now), 1);
        assert_true(heal_is_everything(&taken[0]));
        heal_again(&heal, now, &taken[0]);
        assert_int_equal(next(&now), 1);
        assert_true(heal_is_everything(&taken[0]));
}

/* The end of dirty logging is the time for what was left out. */
static void test_everything_but_what_is_logged(void **state) {
        SpanSet logging = {};
        uint64_t now = START;

        begin(1, 1000);
        assert_int_equal(spanset_add(&logging, PAGES(0, 100)), 0);
        heal_set_logging(&heal, now, &logging);
        heal_everything(&heal, now);
        for (unsigned i = 0; i < 8; i++) {
                assert_int_equal(next(&now), 1);
                heal_tried(&heal, now, &taken[0], false, true);
        }
        assert_true(heal_next_usec(&heal, now) > now + 100 * SEC);
        heal_set_logging(&heal, now, &logging);
        assert_int_equal(heal_next_usec(&heal, now), now + DELAY);
}

static int end(void **state) {
        heal_done(&heal);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_waits_and_merges),
                cmocka_unit_test(test_stream),
                cmocka_unit_test(test_bound),
                cmocka_unit_test(test_tokens_come_back),
                cmocka_unit_test(test_off),
                cmocka_unit_test(test_torn_again),
                cmocka_unit_test(test_memory_is_gone),
                cmocka_unit_test(test_holes_elsewhere),
                cmocka_unit_test(test_balloon),
                cmocka_unit_test(test_dirty_log),
                cmocka_unit_test(test_slot_goes),
                cmocka_unit_test(test_everything),
                cmocka_unit_test(test_everything_but_what_is_logged),
        };

        return cmocka_run_group_tests(tests, NULL, end);
}
