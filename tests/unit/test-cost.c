/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cost.h"

static void test_leaf(void **state) {
        static const struct {
                uint64_t page_size;
                uint32_t max_level, max_leaf_level;
                uint64_t leaf;
        } cases[] = {
                { KIB(4), 0, 0, KIB(4) }, { MIB(2), 0, 3, MIB(2) },  { GIB(1), 0, 3, GIB(1) },
                { GIB(1), 2, 3, MIB(2) }, { GIB(1), 0, 2, MIB(2) },  { GIB(1), 1, 0, KIB(4) },
                { 0, 0, 0, KIB(4) },      { KIB(64), 0, 0, KIB(4) }, { UINT64_MAX, 0, 0, GIB(1) },
        };
        CostModel m;
        Cost c;

        cost_model_init(&m, 0);
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                CostInput in = { .bytes = GIB(4),
                                 .page_size = cases[i].page_size,
                                 .max_level = cases[i].max_level,
                                 .max_leaf_level = cases[i].max_leaf_level };

                cost_estimate(&m, &in, &c);
                assert_int_equal(c.leaf->page_size, cases[i].leaf);
                assert_int_equal(c.leaves, GIB(4) / cases[i].leaf);
        }
        assert_null(cost_model_leaf(&m, KIB(64)));
        assert_ptr_equal(cost_model_leaf(&m, MIB(2)), &m.leaves[1]);
}

static void test_sums(void **state) {
        CostInput in = { .bytes = GIB(1), .page_size = KIB(4) };
        CostModel m;
        Cost c;

        cost_model_init(&m, 5000);
        m.leaves[0].fault_ns = 1000;
        m.leaves[0].build_ns = 100;
        cost_estimate(&m, &in, &c);
        assert_int_equal(c.saved_usec, GIB(1) / KIB(4));
        assert_int_equal(c.build_usec, GIB(1) / KIB(4) / 10);
        assert_int_equal(c.pin_usec, 5000);

        /* 17 vCPUs wait for each other twice as long; a build does not care. */
        in.vcpus = 17;
        cost_estimate(&m, &in, &c);
        assert_int_equal(c.saved_usec, 2 * GIB(1) / KIB(4));
        assert_int_equal(c.build_usec, GIB(1) / KIB(4) / 10);

        /* All of it again where the guest arrives. */
        in.vcpus = 1;
        in.migrations = 2;
        cost_estimate(&m, &in, &c);
        assert_int_equal(c.saved_usec, 3 * GIB(1) / KIB(4));
        assert_int_equal(c.build_usec, 3 * GIB(1) / KIB(4) / 10);

        in.page_size = MIB(2);
        cost_estimate(&m, &in, &c);
        assert_int_equal(c.pin_usec, 0);
}

/* No input is beyond what the result can say. */
static void test_extremes(void **state) {
        CostInput in = {
                .bytes = UINT64_MAX, .page_size = KIB(4), .vcpus = UINT32_MAX, .migrations = UINT32_MAX
        };
        CostModel m;
        Cost c;

        cost_model_init(&m, UINT64_MAX);
        cost_estimate(&m, &in, &c);
        assert_true(c.saved_usec == UINT64_MAX);
        assert_true(c.build_usec == UINT64_MAX);
        assert_true(c.pin_usec == UINT64_MAX);
        in = (CostInput){};
        cost_estimate(&m, &in, &c);
        assert_true(c.leaves == 0 && c.saved_usec == 0 && c.build_usec == 0 && c.pin_usec == 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_leaf),
                cmocka_unit_test(test_sums),
                cmocka_unit_test(test_extremes),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
