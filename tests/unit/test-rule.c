/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>

#include "rule.h"

static Rule *add(RuleSet *s, const char *name) {
        bool is_new;
        Rule *r;

        assert_int_equal(rules_get(s, name, &r, &is_new), 0);
        assert_true(is_new);
        r->max_bytes = r->max_vcpus = UINT64_MAX;
        r->decision = r->warm = -1;
        return r;
}

static void clear(RuleSet *s) {
        for (size_t i = 0; i < s->n; i++) {
                rule_strings_done(&s->rules[i]->names);
                rule_strings_done(&s->rules[i]->users);
                rule_strings_done(&s->rules[i]->units);
                rule_strings_done(&s->rules[i]->cgroups);
        }
        rules_done(s);
}

static void assert_matches(const RuleSet *s, const RuleSubject *subject, const char *name) {
        const Rule *r = rules_match(s, subject);

        if (name && (!r || !streq(r->name, name)))
                fail_msg("expected rule %s, got %s", name, r ? r->name : "none");
        if (!name && r)
                fail_msg("expected no rule, got %s", r->name);
}

/* By name, not in the order in which they were read; and only the first. */
static void test_order(void **state) {
        RuleSubject subject = { .name = "db" };
        RuleSet s = {};
        bool is_new;
        Rule *r;

        assert_matches(&s, &subject, NULL);
        add(&s, "50-rest");
        assert_int_equal(rule_strings_add(&add(&s, "10-db")->names, "db*"), 0);
        assert_int_equal(rule_strings_add(&add(&s, "20-db")->names, "db"), 0);
        assert_matches(&s, &subject, "10-db");
        subject.name = "web";
        assert_matches(&s, &subject, "50-rest");
        add(&s, "Z");
        assert_string_equal(s.rules[3]->name, "Z");

        assert_int_equal(rules_get(&s, "20-db", &r, &is_new), 0);
        assert_false(is_new);
        assert_ptr_equal(r, s.rules[1]);
        clear(&s);
}

static void test_names(void **state) {
        static const char *const bad[] = {
                "", " ", "a b", "a/b", "a]", "\xc3\xa4", "12345678901234567890123456789012345678901"
        };
        RuleSet s = {};
        bool is_new;
        Rule *r;

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                assert_int_equal(rules_get(&s, bad[i], &r, &is_new), -EINVAL);
        assert_int_equal(s.n, 0);
        for (unsigned i = 0; i < RULES_MAX; i++) {
                char name[16];

                snprintf(name, sizeof(name), "r%u", i);
                assert_int_equal(rules_get(&s, name, &r, &is_new), 0);
        }
        assert_int_equal(rules_get(&s, "more", &r, &is_new), -E2BIG);
        assert_int_equal(rules_get(&s, "r7", &r, &is_new), 0);
        for (unsigned i = 0; i < RULE_LIST_MAX; i++)
                assert_int_equal(rule_strings_add(&r->names, "x"), 0);
        assert_int_equal(rule_strings_add(&r->names, "x"), -E2BIG);
        clear(&s);
}

static void test_conditions(void **state) {
        RuleSubject all = { .name = "db-1",
                            .bytes = GIB(8),
                            .vcpus = 4,
                            .page_size = MIB(2),
                            .has_uid = true,
                            .uid = 1000,
                            .user = "alice",
                            .unit = "machine-qemu.scope",
                            .cgroup = "/machine.slice/machine-qemu.scope" };
        RuleSubject s;
        RuleSet set = {};
        Rule *r = add(&set, "r");

        assert_matches(&set, &all, "r");
        assert_matches(&set, &(RuleSubject){}, "r"); /* nothing asked, nothing needed */

#define EXPECT(change, name)                                                                                \
        s = all;                                                                                            \
        change;                                                                                             \
        assert_matches(&set, &s, name)

        r->min_bytes = GIB(8);
        r->max_bytes = GIB(16);
        EXPECT(, "r");
        EXPECT(s.bytes--, NULL);
        EXPECT(s.bytes = GIB(16), "r");
        EXPECT(s.bytes = GIB(16) + 1, NULL);
        EXPECT(s.bytes = 0, NULL);
        r->min_vcpus = 2;
        EXPECT(, "r");
        EXPECT(s.vcpus = 1, NULL);
        EXPECT(s.vcpus = 0, NULL);
        r->max_vcpus = 4;
        EXPECT(s.vcpus = 5, NULL);
        r->page_sizes = (RuleSizes){ { GIB(1), MIB(2) }, 2 };
        EXPECT(, "r");
        EXPECT(s.page_size = KIB(4), NULL);
        EXPECT(s.page_size = 0, NULL);

        assert_int_equal(rule_strings_add(&r->names, "web*"), 0);
        EXPECT(, NULL);
        assert_int_equal(rule_strings_add(&r->names, "db-[0-9]"), 0);
        EXPECT(, "r");
        EXPECT(s.name = "db-x", NULL);
        EXPECT(s.name = NULL, NULL);
        assert_int_equal(rule_strings_add(&r->units, "machine-*.scope"), 0);
        EXPECT(, "r");
        EXPECT(s.unit = NULL, NULL);
        assert_int_equal(rule_strings_add(&r->cgroups, "/machine.slice/*"), 0);
        EXPECT(, "r");
        EXPECT(s.cgroup = "/user.slice", NULL);
        EXPECT(s.cgroup = "/machine.slice/a/b/c", "r");

        assert_false(rules_name_users(&set));
        assert_int_equal(rule_strings_add(&r->users, "1001"), 0);
        assert_false(rules_name_users(&set));
        EXPECT(, NULL);
        EXPECT(s.uid = 1001, "r");
        EXPECT((s.uid = 1001, s.has_uid = false), NULL);
        assert_int_equal(rule_strings_add(&r->users, "alice"), 0);
        assert_true(rules_name_users(&set));
        EXPECT(, "r");
        EXPECT(s.user = NULL, NULL);

        assert_false(rules_adopt(&set));
        r->adopt = true;
        assert_true(rules_adopt(&set));
        clear(&set);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_order),
                cmocka_unit_test(test_names),
                cmocka_unit_test(test_conditions),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
