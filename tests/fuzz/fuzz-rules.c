/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rules, and a VM that they are asked about. The first line is the VM:
 *   NAME BYTES VCPUS PAGE-SIZE UID USER UNIT CGROUP     with "-" for what is not known
 * and what follows is a tdpd.conf with [Rule NAME] sections.
 */

#include <syslog.h>

#include "fuzz.h"
#include "log.h"
#include "rule-config.h"

static const char *word(char **line) {
        const char *s = strsep(line, " ");

        return !s || streq(s, "-") ? NULL : s;
}

static uint64_t number(char **line) {
        return strtoull(word(line) ?: "0", NULL, 0);
}

static RuleSubject read_subject(char *line) {
        RuleSubject s = {
                .name = word(&line),
                .bytes = number(&line),
                .vcpus = (uint32_t) number(&line),
                .page_size = number(&line),
        };
        const char *uid = word(&line);

        s.has_uid = uid;
        s.uid = uid ? (uid_t) strtoul(uid, NULL, 0) : 0;
        s.user = word(&line);
        s.unit = word(&line);
        s.cgroup = word(&line);
        return s;
}

static void check_rule(const Rule *r) {
        FUZZ_CHECK(r->name[0] && strlen(r->name) <= RULE_NAME_MAX);
        FUZZ_CHECK(r->names.n <= RULE_LIST_MAX && r->units.n <= RULE_LIST_MAX);
        FUZZ_CHECK(r->cgroups.n <= RULE_LIST_MAX && r->users.n <= RULE_LIST_MAX);
        FUZZ_CHECK(r->min_bytes <= r->max_bytes && r->min_vcpus <= r->max_vcpus);
        FUZZ_CHECK(r->page_sizes.n <= RULE_LIST_MAX);
        for (size_t i = 0; i < r->page_sizes.n; i++)
                FUZZ_CHECK(r->page_sizes.items[i] >= KIB(4) &&
                           __builtin_popcountll(r->page_sizes.items[i]) == 1);
        FUZZ_CHECK(r->page_size == 0 || (r->page_size >= KIB(4) && __builtin_popcountll(r->page_size) == 1));
        FUZZ_CHECK(r->decision >= -1 && r->decision < _DECISION_MAX);
        FUZZ_CHECK(r->warm >= -1 && r->warm <= 1);
}

/* Whether a rule asks for nothing. */
static bool matches_all(const Rule *r) {
        return r->names.n + r->units.n + r->cgroups.n + r->users.n + r->page_sizes.n == 0 &&
               r->min_bytes == 0 && r->max_bytes == UINT64_MAX && r->min_vcpus == 0 &&
               r->max_vcpus == UINT64_MAX;
}

/* The first one that matches when it is asked alone is the one that counts. */
static void check_match(const RuleSet *all, const RuleSubject *subject) {
        const Rule *match = rules_match(all, subject), *first = NULL;

        for (size_t i = 0; !first && i < all->n; i++) {
                RuleSet one = { .rules = &all->rules[i], .n = 1 };

                first = rules_match(&one, subject);
                FUZZ_CHECK(first || !matches_all(all->rules[i]));
        }
        FUZZ_CHECK(match == first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = fuzz_string(data, size);
        char *rest = text, *line = fuzz_line(&rest);
        RuleSubject subject = read_subject(line), nothing = {};
        const Rule *match;
        ConfigError e = {};
        Config c;
        int r;

        log_set_max_level(LOG_EMERG);
        FUZZ_CHECK(config_init(&c) >= 0);
        r = config_parse(&c, "tdpd.conf", rest ?: "", strlen(rest ?: ""), &e);
        if (r >= 0)
                r = rule_config_check(&c, &e);
        FUZZ_CHECK((r < 0) == (e.text[0] != '\0'));
        if (r < 0) {
                /* As far as it was read, it can be freed. */
                config_done(&c);
                return 0;
        }

        FUZZ_CHECK(c.rules.n <= RULES_MAX);
        for (size_t i = 0; i < c.rules.n; i++) {
                check_rule(c.rules.rules[i]);
                FUZZ_CHECK(i == 0 || strcmp(c.rules.rules[i - 1]->name, c.rules.rules[i]->name) < 0);
        }
        check_match(&c.rules, &subject);
        match = rules_match(&c.rules, &nothing);
        FUZZ_CHECK(!match || matches_all(match));
        config_done(&c);
        FUZZ_CHECK(c.rules.n == 0);
        return 0;
}
