/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "rule-config.h"

static void load(Config *c, const char *text) {
        ConfigError e = {};

        assert_int_equal(config_init(c), 0);
        if (config_parse(c, "file", text, strlen(text), &e) < 0)
                fail_msg("refused:\n%s\n%s", text, e.text);
}

static void test_all_keys(void **state) {
        const Rule *r;
        Config c;

        load(&c, "[Rule 10-db]\nMatchName=db* oracle\nMatchName=pg\nMatchUser=alice 1000\n"
                 "MatchUnit=machine-*.scope\nMatchControlGroup=/machine.slice/*\nMatchPageSize=2M 1G\n"
                 "MatchMinBytes=4G\nMatchMaxBytes=1T\nMatchMinVCPUs=2\nMatchMaxVCPUs=64\n"
                 "Decision=always\nPageSize=1G\nNodes=0-1,3\nWarm=no\nAdopt=yes\n");
        assert_int_equal(c.rules.n, 1);
        r = c.rules.rules[0];
        assert_string_equal(r->name, "10-db");
        assert_int_equal(r->names.n, 3);
        assert_string_equal(r->names.items[2], "pg");
        assert_int_equal(r->users.n, 2);
        assert_string_equal(r->users.items[1], "1000");
        assert_int_equal(r->units.n, 1);
        assert_int_equal(r->cgroups.n, 1);
        assert_int_equal(r->page_sizes.n, 2);
        assert_int_equal(r->page_sizes.items[1], GIB(1));
        assert_int_equal(r->min_bytes, GIB(4));
        assert_int_equal(r->max_bytes, GIB(1024));
        assert_int_equal(r->min_vcpus, 2);
        assert_int_equal(r->max_vcpus, 64);
        assert_int_equal(r->decision, DECISION_ALWAYS);
        assert_int_equal(r->page_size, GIB(1));
        assert_true(r->nodes.is_set && idset_has(&r->nodes.ids, 3) && !idset_has(&r->nodes.ids, 2));
        assert_int_equal(r->warm, 0);
        assert_true(r->adopt);
        config_done(&c);
}

/* A rule that says nothing matches all and sets nothing; above all it adopts nothing. */
static void case_46_nothing_is_adopted_unless_a_rule_says_so(void **state) {
        RuleSubject any = { .name = "x", .bytes = GIB(1), .has_uid = true };
        const Rule *r;
        Config c;

        load(&c, "");
        assert_int_equal(c.rules.n, 0);
        assert_false(rules_adopt(&c.rules));
        config_done(&c);

        load(&c, "[Rule all]\nMatchName=\n");
        r = rules_match(&c.rules, &any);
        assert_non_null(r);
        assert_true(r->decision < 0 && r->page_size == 0 && !r->nodes.is_set && r->warm < 0 && !r->adopt);
        config_done(&c);
}

static void test_later_files(void **state) {
        static const char more[] = "[Rule b]\nDecision=\nMatchName=\nMatchName=y\n[Rule a]\nAdopt=yes\n";
        RuleSubject s = { .name = "y" };
        ConfigError e = {};
        Config c;

        load(&c, "[Rule b]\nMatchName=x\nDecision=never\nPageSize=2M\n");
        assert_int_equal(config_parse(&c, "more", more, strlen(more), &e), 0);
        assert_int_equal(c.rules.n, 2);
        assert_string_equal(c.rules.rules[0]->name, "a");
        assert_string_equal(rules_match(&c.rules, &s)->name, "a");
        assert_int_equal(c.rules.rules[1]->decision, -1);
        assert_int_equal(c.rules.rules[1]->page_size, MIB(2));
        assert_int_equal(c.rules.rules[1]->names.n, 1);
        assert_string_equal(c.rules.rules[1]->names.items[0], "y");
        config_done(&c);
}

static void test_refused(void **state) {
        static const struct {
                const char *text, *part;
        } bad[] = {
                { "[Rule a/b]\nAdopt=yes\n", "a rule's name has" },
                { "[Rule a]\nAdopt=perhaps\n", "yes or no" },
                { "[Rule a]\nWarm=2\n", "yes or no" },
                { "[Rule a]\nDecision=sometimes\n", "auto, always or never" },
                { "[Rule a]\nPageSize=3M\n", "a page size" },
                { "[Rule a]\nPageSize=1K\n", "a page size" },
                { "[Rule a]\nMatchPageSize=2M 5\n", "\"5\" is no page size" },
                { "[Rule a]\nNodes=a\n", "a set of nodes" },
                { "[Rule a]\nMatchUser=a;b\n", "no user's name" },
                { "[Rule a]\nMatchMinBytes=2G\nMatchMaxBytes=1G\n", "no VM is of that size" },
                { "[Rule a]\nMatchMinVCPUs=3\nMatchMaxVCPUs=2\n", "no VM has so many" },
                { "[Rule a]\nMatchMinVCPUs=x\n", "MatchMinVCPUs=x" },
        };
        char many[1024] = "[Rule a]\nMatchName=";

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                ConfigError e = {};
                Config c;

                assert_int_equal(config_init(&c), 0);
                if (config_parse(&c, "file", bad[i].text, strlen(bad[i].text), &e) >= 0 &&
                    rule_config_check(&c, &e) >= 0)
                        fail_msg("this was taken:\n%s", bad[i].text);
                if (!strstr(e.text, bad[i].part))
                        fail_msg("\"%s\" is not in: %s", bad[i].part, e.text);
                config_done(&c);
        }

        for (unsigned i = 0; i <= RULE_LIST_MAX; i++)
                strcat(many, "x ");
        strcat(many, "\n");
        {
                ConfigError e = {};
                Config c;

                assert_int_equal(config_init(&c), 0);
                assert_true(config_parse(&c, "file", many, strlen(many), &e) < 0);
                assert_non_null(strstr(e.text, "more than 64"));
                config_done(&c);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_all_keys),
                cmocka_unit_test(case_46_nothing_is_adopted_unless_a_rule_says_so),
                cmocka_unit_test(test_later_files),
                cmocka_unit_test(test_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
