/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What may be made of a node's memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool-cap.h"

static void test_kept(void **state) {
        Node n = { .mem_total = GIB(64) };

        assert_int_equal(pool_cap_kept(&n, 95), MIB(3277));
        assert_int_equal(pool_cap_kept(&n, 50), GIB(32));
        assert_int_equal(pool_cap_kept(&n, 100), 0);
        n.mem_total = GIB(4); /* of which 5 % are too few */
        assert_int_equal(pool_cap_kept(&n, 95), MIB(512));
        assert_int_equal(pool_cap_kept(&n, 99), MIB(512));
        assert_int_equal(pool_cap_kept(&n, 100), 0);
        n.mem_total = MIB(256);
        assert_int_equal(pool_cap_kept(&n, 95), MIB(256));
        n.mem_total = 0;
        assert_int_equal(pool_cap_kept(&n, 95), 0);
}

static void test_pages(void **state) {
        Pool pools[] = {
                { .page_size = MIB(2), .total = 10 },
                { .page_size = GIB(1), .total = 2 },
        };
        Node n = { .mem_total = GIB(8), .pools = pools, .n_pools = 2 };

        /* 512 MiB are kept, and what another pool has is no room. */
        assert_int_equal(pool_cap_pages(&n, &pools[0], 95), (GIB(8) - MIB(512) - GIB(2)) / MIB(2));
        assert_int_equal(pool_cap_pages(&n, &pools[0], 100), (GIB(8) - GIB(2)) / MIB(2));
        assert_int_equal(pool_cap_pages(&n, &pools[1], 95), 7);
        pools[0].total = 512;
        assert_int_equal(pool_cap_pages(&n, &pools[1], 95), 6);
        assert_int_equal(pool_cap_pages(&n, &pools[1], 100), 7);
}

/* What is there already is nobody's typo. */
static void test_never_less_than_there_is(void **state) {
        Pool pools[] = {
                { .page_size = MIB(2), .total = 4000 },
                { .page_size = GIB(1), .total = 1, .surplus = 1 },
        };
        Node n = { .mem_total = GIB(8), .pools = pools, .n_pools = 2 };

        assert_int_equal(pool_cap_pages(&n, &pools[0], 50), 4000);
        assert_int_equal(pool_cap_pages(&n, &pools[1], 50), 0);
        n.mem_total = 0;
        assert_int_equal(pool_cap_pages(&n, &pools[0], 95), 4000);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_kept),
                cmocka_unit_test(test_pages),
                cmocka_unit_test(test_never_less_than_there_is),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
