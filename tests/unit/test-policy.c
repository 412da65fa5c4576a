/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "policy.h"

/* 1 GiB of 4K pages on a host that can do all. */
static PolicyInput good_input(void) {
        return (PolicyInput){
                .bytes = GIB(1),
                .page_size = KIB(4),
                .vcpus = 4,
                .has_device = true,
                .max_leaf_level = 3,
                .min_bytes = MIB(64),
                .min_saving_usec = 100,
        };
}

static PolicyOutput check(const PolicyInput *in, bool build, const char *word) {
        PolicyOutput out;

        policy_decide(in, &out);
        assert_true(out.n_reasons > 0);
        if (out.build != build || !streq(out.reasons[0].word, word))
                fail_msg("expected %s (%s), got %s (%s)", build ? "build" : "skip", word,
                         out.build ? "build" : "skip", out.reasons[0].word);
        assert_int_equal(out.pinned_bytes, build ? in->bytes : 0);
        for (size_t i = 0; i < out.n_reasons; i++)
                assert_true(*out.reasons[i].text != '\0');
        return out;
}

static void test_asked(void **state) {
        PolicyInput in = good_input();

        in.configured = DECISION_ALWAYS;
        check(&in, true, "configured");
        in.configured = DECISION_NEVER;
        check(&in, false, "configured");
        /* The request wins. */
        in.asked_is_set = true;
        in.asked = DECISION_ALWAYS;
        check(&in, true, "requested");
        in.configured = DECISION_ALWAYS;
        in.asked = DECISION_NEVER;
        check(&in, false, "requested");
        in.asked = DECISION_AUTO;
        check(&in, true, "leaf-faults-avoided");
        /* "always" is not held up by what only auto weighs. */
        in.asked = DECISION_ALWAYS;
        in.bytes = KIB(4);
        check(&in, true, "requested");
}

static void test_impossible(void **state) {
        PolicyInput in = good_input();
        PolicyOutput out;

        for (int always = 0; always < 2; always++) {
                in = good_input();
                in.asked_is_set = always;
                in.asked = DECISION_ALWAYS;
                in.has_device = false;
                check(&in, false, "no-device");
                in.has_device = true;
                in.shadow = true;
                check(&in, false, "shadow-paging");
                in.has_no_pages = true;
                out = check(&in, false, "no-pages");
                assert_int_equal(out.n_reasons, 2);
        }
}

static void test_auto(void **state) {
        PolicyInput in = good_input();
        PolicyOutput one, many;

        in.memlock_known = true;
        in.memlock_limit = GIB(1) - 1;
        check(&in, false, "not-enough-memory-lock");
        in.memlock_limit = GIB(1);
        check(&in, true, "leaf-faults-avoided");
        in.memlock_limit = UINT64_MAX;
        check(&in, true, "leaf-faults-avoided");

        in.bytes = MIB(64) - KIB(4);
        check(&in, false, "too-small");
        in.bytes = MIB(64);
        check(&in, true, "leaf-faults-avoided");

        /* A handful of large leaves is quickly faulted in. */
        in.bytes = GIB(8);
        in.page_size = GIB(1);
        check(&in, false, "saves-too-little");
        /* The kernel can make no larger leaf than 2M: there are many again. */
        in.max_leaf_level = 2;
        check(&in, true, "leaf-faults-avoided");
        in.max_leaf_level = 3;
        in.max_level = 1;
        check(&in, true, "leaf-faults-avoided");

        in = good_input();
        in.vcpus = 1;
        one = check(&in, true, "leaf-faults-avoided");
        in.vcpus = 64;
        many = check(&in, true, "leaf-faults-avoided");
        assert_true(many.saved_usec > one.saved_usec);
        assert_int_equal(many.build_usec, one.build_usec);
        assert_int_equal(one.leaves, GIB(1) / KIB(4));

        in.page_size = MIB(2);
        in.nx_huge = true;
        many = check(&in, true, "leaf-faults-avoided");
        assert_int_equal(many.n_reasons, 2);
        assert_string_equal(many.reasons[1].word, "nx-huge-pages");
}

/* No input makes it crash or overflow into nonsense. */
static void test_extremes(void **state) {
        static const uint64_t sizes[] = { 0, 1, KIB(4), MIB(2), GIB(1), UINT64_MAX };
        PolicyOutput out;

        for (size_t i = 0; i < ELEMENTSOF(sizes); i++)
                for (size_t k = 0; k < ELEMENTSOF(sizes); k++) {
                        PolicyInput in = good_input();

                        in.bytes = sizes[i];
                        in.page_size = sizes[k];
                        in.vcpus = UINT32_MAX;
                        policy_decide(&in, &out);
                        assert_true(out.n_reasons > 0);
                        assert_true(out.leaves <= in.bytes / KIB(4));
                }
}

/* More than the result can hold is the most that it can hold. */
static void test_estimate_saturates(void **state) {
        PolicyInput in = good_input();
        PolicyOutput out;

        in.bytes = INT64_MAX / KIB(4) * KIB(4);
        in.vcpus = UINT32_MAX;
        policy_decide(&in, &out);
        assert_true(out.saved_usec == UINT64_MAX);
        assert_true(out.build_usec < UINT64_MAX);
        assert_true(out.build);
}

static void test_names(void **state) {
        for (Decision d = 0; d < _DECISION_MAX; d++)
                assert_int_equal(decision_from_string(decision_to_string(d)), d);
        assert_int_equal(decision_from_string(""), _DECISION_INVALID);
        assert_int_equal(decision_from_string("Auto"), _DECISION_INVALID);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_asked),
                cmocka_unit_test(test_impossible),
                cmocka_unit_test(test_auto),
                cmocka_unit_test(test_extremes),
                cmocka_unit_test(test_estimate_saturates),
                cmocka_unit_test(test_names),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
