/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "policy.h"

/* 1 GiB of 4K pages on a host that can do all. */
static PolicyInput good_input(void) {
        PolicyInput in = {
                .bytes = GIB(1),
                .page_size = KIB(4),
                .has_device = true,
                .max_leaf_level = 3,
                .min_bytes = MIB(64),
                .min_saving_usec = 100,
        };

        vm_facts_set(&in.facts, FACT_VCPUS, 4);
        cost_model_init(&in.model, 10000);
        return in;
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
        in.bytes = GIB(2);
        in.page_size = GIB(1);
        check(&in, false, "saves-too-little");
        /* The kernel can make no larger leaf than 2M: there are many again. */
        in.max_leaf_level = 2;
        check(&in, true, "leaf-faults-avoided");
        in.max_leaf_level = 3;
        in.max_level = 1;
        check(&in, true, "leaf-faults-avoided");

        in = good_input();
        vm_facts_set(&in.facts, FACT_VCPUS, 1);
        one = check(&in, true, "leaf-faults-avoided");
        vm_facts_set(&in.facts, FACT_VCPUS, 64);
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
                        vm_facts_set(&in.facts, FACT_VCPUS, UINT32_MAX);
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
        vm_facts_set(&in.facts, FACT_VCPUS, UINT32_MAX);
        policy_decide(&in, &out);
        assert_true(out.saved_usec == UINT64_MAX);
        assert_true(out.build_usec < UINT64_MAX);
        assert_true(out.build);
}

static size_t has_reason(const PolicyOutput *out, const char *word, const char *part) {
        size_t n = 0;

        for (size_t i = 0; i < out->n_reasons; i++)
                n += streq(out->reasons[i].word, word) && strstr(out->reasons[i].text, part);
        return n;
}

static void test_rule(void **state) {
        PolicyInput in = good_input();
        PolicyOutput out;

        /* One that says nothing of the decision is told, and that is all. */
        in.rule = "db";
        out = check(&in, true, "leaf-faults-avoided");
        assert_string_equal(out.rule, "db");

        in.configured = DECISION_ALWAYS;
        in.by_rule_is_set = true;
        in.by_rule = DECISION_NEVER;
        out = check(&in, false, "rule");
        assert_int_equal(has_reason(&out, "rule", "rule \"db\" says \"never\""), 1);
        in.by_rule = DECISION_AUTO;
        check(&in, true, "leaf-faults-avoided");
        in.asked_is_set = true;
        in.asked = DECISION_NEVER;
        check(&in, false, "requested");
}

/* Whatever the host has: without the device, or with nothing to gain, nothing is built by itself. */
static void case_46_host_state_alone_opts_in_no_vm(void **state) {
        PolicyInput in = good_input();
        PolicyOutput out;

        in.configured = DECISION_NEVER;
        out = check(&in, false, "configured");
        in.page_size = MIB(2);
        out = check(&in, false, "configured");
        assert_int_equal(out.n_reasons, 1);
        assert_non_null(strstr(out.reasons[0].text, "in the configuration"));
}

static void case_47_balloon_and_discard_are_refused(void **state) {
        static const struct {
                VMFact fact;
                const char *word, *part;
        } facts[] = {
                { FACT_BALLOON, "balloon", "holes" },
                { FACT_FREE_PAGE_REPORTING, "free-page-reporting", "switch free-page-reporting off" },
                { FACT_DISCARD, "discard", "discard-data" },
        };
        PolicyInput in;
        PolicyOutput out;

        for (size_t i = 0; i < ELEMENTSOF(facts); i++) {
                in = good_input();
                vm_facts_set(&in.facts, facts[i].fact, true);
                out = check(&in, false, facts[i].word);
                assert_int_equal(has_reason(&out, facts[i].word, facts[i].part), 1);

                /* Known not to be there. */
                vm_facts_set(&in.facts, facts[i].fact, false);
                check(&in, true, "leaf-faults-avoided");

                /* On demand it is done, and told all the same. */
                vm_facts_set(&in.facts, facts[i].fact, true);
                in.asked_is_set = true;
                in.asked = DECISION_ALWAYS;
                out = check(&in, true, "requested");
                assert_int_equal(has_reason(&out, facts[i].word, facts[i].part), 1);
        }

        /* All at once: each is told. */
        in = good_input();
        for (size_t i = 0; i < ELEMENTSOF(facts); i++)
                vm_facts_set(&in.facts, facts[i].fact, true);
        out = check(&in, false, "balloon");
        assert_int_equal(out.n_reasons, 3);
}

static void case_49_nx_huge_pages_are_warned_of(void **state) {
        PolicyInput in = good_input();
        PolicyOutput out;

        in.nx_huge = true;
        in.page_size = MIB(2);
        out = check(&in, true, "leaf-faults-avoided");
        assert_int_equal(has_reason(&out, "nx-huge-pages", "pauses"), 1);
        in.asked_is_set = true;
        in.asked = DECISION_ALWAYS;
        out = check(&in, true, "requested");
        assert_int_equal(has_reason(&out, "nx-huge-pages", "kvm.nx_huge_pages=off"), 1);
        /* Small leaves are not split. */
        in.page_size = KIB(4);
        out = check(&in, true, "requested");
        assert_int_equal(out.n_reasons, 1);
}

static void case_50_vfio_behind_viommu_locks_n_times(void **state) {
        PolicyInput in = good_input();
        PolicyOutput out;

        in.bytes = GIB(16);
        out = check(&in, true, "leaf-faults-avoided");
        assert_int_equal(out.vfio_bytes, 0);

        vm_facts_set(&in.facts, FACT_VFIO_DEVICES, 4);
        out = check(&in, true, "leaf-faults-avoided");
        assert_int_equal(out.vfio_bytes, GIB(17));
        vm_facts_set(&in.facts, FACT_VIOMMU, true);
        out = check(&in, true, "leaf-faults-avoided");
        assert_int_equal(out.vfio_bytes, GIB(65));

        in.vmm_memlock_known = true;
        in.vmm_memlock_limit = GIB(65) - 1;
        out = check(&in, false, "not-enough-memory-lock");
        assert_int_equal(has_reason(&out, "not-enough-memory-lock",
                                    "4 VFIO devices behind a vIOMMU lock 65 GiB"),
                         1);
        in.vmm_memlock_limit = GIB(65);
        check(&in, true, "leaf-faults-avoided");

        /* Too many to count. */
        vm_facts_set(&in.facts, FACT_VFIO_DEVICES, UINT32_MAX);
        in.bytes = INT64_MAX;
        out = check(&in, false, "not-enough-memory-lock");
        assert_true(out.vfio_bytes == UINT64_MAX);
}

static void case_65_auto_leaves_alone_what_gains_nothing(void **state) {
        PolicyInput in = good_input();
        PolicyOutput out;

        /* A host where faults cost next to nothing. */
        for (size_t i = 0; i < COST_SIZES; i++)
                in.model.leaves[i].fault_ns = in.model.leaves[i].build_ns;
        vm_facts_set(&in.facts, FACT_VCPUS, 1);
        out = check(&in, false, "saves-too-little");
        assert_int_equal(out.pinned_bytes, 0);
        assert_true(out.saved_usec > 0 && out.build_usec > 0);
        assert_int_equal(has_reason(&out, "saves-too-little", "MinSavingUSec=100"), 1);

        /* What cannot be overcommitted any more has a price, and of a pool nothing could be. */
        in = good_input();
        in.model.pin_usec_per_gib = 10 * 1000 * 1000;
        out = check(&in, false, "saves-too-little");
        assert_int_equal(out.pin_usec, 10 * 1000 * 1000);
        assert_int_equal(has_reason(&out, "saves-too-little", "10000000 us for pins"), 1);
        in.page_size = MIB(2);
        out = check(&in, true, "leaf-faults-avoided");
        assert_int_equal(out.pin_usec, 0);

        /* "never" weighs nothing, and is told in one reason. */
        in.asked_is_set = true;
        in.asked = DECISION_NEVER;
        out = check(&in, false, "requested");
        assert_int_equal(out.n_reasons, 1);
}

static void test_refusals(void **state) {
        PolicyInput in = good_input();
        PolicyOutput out;

        in.dirty_log = true;
        check(&in, false, "dirty-logging");

        in = good_input();
        in.available_known = true;
        in.available_bytes = GIB(1);
        in.unbacked_bytes = GIB(1);
        check(&in, true, "leaf-faults-avoided");
        in.unbacked_bytes++;
        out = check(&in, false, "not-enough-memory");
        assert_non_null(strstr(out.reasons[0].text, "overcommitted"));

        /* Not even if it is asked for. */
        in = good_input();
        vm_facts_set(&in.facts, FACT_CONFIDENTIAL, true);
        in.asked_is_set = true;
        in.asked = DECISION_ALWAYS;
        check(&in, false, "confidential");
}

static void test_words(void **state) {
        PolicyInput in = good_input();
        PolicyOutput out;

        in.has_device = false;
        policy_decide(&in, &out);
        assert_ptr_equal(policy_word("no-device"), out.reasons[0].word);
        assert_null(policy_word(""));
        assert_null(policy_word("no-device "));
}

static void test_names(void **state) {
        for (Decision d = 0; d < _DECISION_MAX; d++)
                assert_int_equal(decision_from_string(decision_to_string(d)), d);
        assert_int_equal(decision_from_string(""), _DECISION_INVALID);
        assert_int_equal(decision_from_string("Auto"), _DECISION_INVALID);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_rule),
                cmocka_unit_test(case_46_host_state_alone_opts_in_no_vm),
                cmocka_unit_test(case_47_balloon_and_discard_are_refused),
                cmocka_unit_test(case_49_nx_huge_pages_are_warned_of),
                cmocka_unit_test(case_50_vfio_behind_viommu_locks_n_times),
                cmocka_unit_test(case_65_auto_leaves_alone_what_gains_nothing),
                cmocka_unit_test(test_refusals),
                cmocka_unit_test(test_words),
                cmocka_unit_test(test_asked),
                cmocka_unit_test(test_impossible),
                cmocka_unit_test(test_auto),
                cmocka_unit_test(test_extremes),
                cmocka_unit_test(test_estimate_saturates),
                cmocka_unit_test(test_names),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
