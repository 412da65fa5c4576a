/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fair.h"

#define ITEMS 64U
#define USERS 5U

static void test_turns(void **state) {
        FairItem items[8] = {};
        FairQueue q = {};

        /* Five of one user, then three of others: none of them waits for more than one of the first. */
        for (size_t i = 0; i < 5; i++)
                assert_int_equal(fair_push(&q, 7, &items[i]), 0);
        assert_int_equal(fair_push(&q, 8, &items[5]), 0);
        assert_int_equal(fair_push(&q, 9, &items[6]), 0);
        assert_int_equal(fair_push(&q, 8, &items[7]), 0);
        assert_int_equal(q.n, 8);
        for (const size_t *want = (const size_t[]){ 0, 5, 6, 1, 7, 2, 3, 4 }, *end = want + 8; want < end;
             want++)
                assert_ptr_equal(fair_pop(&q), &items[*want]);
        assert_null(fair_pop(&q));
        assert_int_equal(q.n, 0);
        assert_null(q.by_uid);
        assert_null(q.turns);
}

static void test_remove(void **state) {
        FairItem items[3] = {};
        FairQueue q = {};

        for (size_t i = 0; i < 3; i++)
                assert_int_equal(fair_push(&q, (uid_t) i / 2, &items[i]), 0);
        fair_remove(&q, &items[0]);
        fair_remove(&q, &items[0]); /* it is not in it any more */
        fair_remove(&q, &items[2]);
        assert_ptr_equal(fair_pop(&q), &items[1]);
        assert_null(fair_pop(&q));
}

static unsigned seed = 1;

static unsigned rnd(unsigned n) {
        seed = seed * 1103515245 + 12345;
        return (seed >> 16) % n;
}

/* Whatever happens: nothing gets lost, each user's items come in their order, and whoever waits has a turn
 * before anybody has had two. */
static void test_random(void **state) {
        FairItem items[ITEMS] = {};
        unsigned age[ITEMS], served[USERS] = {}, waiting[USERS] = {}, clock = 0;
        FairQueue q = {};

        for (unsigned step = 0; step < 200000; step++) {
                size_t i = rnd(ITEMS), n = 0;

                if (rnd(2) == 0) {
                        if (items[i].user)
                                continue;
                        assert_int_equal(fair_push(&q, (uid_t) i % USERS, &items[i]), 0);
                        age[i] = clock++;
                        if (waiting[i % USERS]++ == 0)
                                memset(served, 0, sizeof(served)); /* a new round, as there is one more */
                } else if (rnd(8) == 0) {
                        waiting[i % USERS] -= items[i].user != NULL;
                        fair_remove(&q, &items[i]);
                        memset(served, 0, sizeof(served));
                } else {
                        FairItem *item = fair_pop(&q);
                        size_t user;

                        if (!item)
                                continue;
                        i = (size_t) (item - items);
                        user = i % USERS;
                        for (size_t k = user; k < ITEMS; k += USERS)
                                assert_false(items[k].user && age[k] < age[i]);
                        waiting[user]--;
                        served[user]++;
                        for (size_t u = 0; u < USERS; u++)
                                if (u != user && waiting[u] > 0)
                                        assert_true(served[user] <= served[u] + 1);
                }
                for (size_t u = 0; u < USERS; u++)
                        n += waiting[u];
                assert_int_equal(q.n, n);
        }
        while (fair_pop(&q))
                ;
        assert_null(q.by_uid);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_turns),
                cmocka_unit_test(test_remove),
                cmocka_unit_test(test_random),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
