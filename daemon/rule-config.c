/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "rule-config.h"

#include <ctype.h>
#include <errno.h>

#define BLANKS " \t"

/* Words with blanks in between; "add" takes each. */
static int each_word(const char *value, void *target, ConfigError *error,
                     int (*add)(const char *word, void *target, ConfigError *error)) {
        while (*(value += strspn(value, BLANKS)) != '\0') {
                size_t n = strcspn(value, BLANKS);
                _cleanup_free_ char *word = strndup(value, n);
                int r;

                if (!word)
                        return -ENOMEM;
                r = add(word, target, error);
                if (r == -E2BIG)
                        return config_refuse(error, "there are more than %u", RULE_LIST_MAX);
                if (r < 0)
                        return r;
                value += n;
        }
        return 0;
}

static int add_string(const char *word, void *target, ConfigError *error) {
        return rule_strings_add(target, word);
}

static int parse_globs(const ConfigItem *item, const char *value, void *target, ConfigError *error) {
        return each_word(value, target, error, add_string);
}

static int add_user(const char *word, void *target, ConfigError *error) {
        for (const char *p = word; *p != '\0'; p++)
                if (!isalnum((unsigned char) *p) && !strchr("._-@$\\", *p))
                        return config_refuse(error, "\"%.40s\" is no user's name or number", word);
        return rule_strings_add(target, word);
}

static int parse_users(const ConfigItem *item, const char *value, void *target, ConfigError *error) {
        return each_word(value, target, error, add_user);
}

static void done_strings(void *target) {
        rule_strings_done(target);
}

static int read_page_size(const char *word, uint64_t *ret) {
        int r = config_read_size(word, ret);

        if (r < 0)
                return r;
        return *ret >= KIB(4) && *ret <= GIB(1024) && (*ret & (*ret - 1)) == 0 ? 0 : -EINVAL;
}

static int add_size(const char *word, void *target, ConfigError *error) {
        RuleSizes *s = target;
        int r;

        if (s->n >= RULE_LIST_MAX)
                return -E2BIG;
        r = read_page_size(word, &s->items[s->n]);
        if (r < 0)
                return config_refuse(error, "\"%.40s\" is no page size, like 4K, 2M or 1G", word);
        s->n++;
        return 0;
}

static int parse_sizes(const ConfigItem *item, const char *value, void *target, ConfigError *error) {
        return each_word(value, target, error, add_size);
}

static void done_sizes(void *target) {
        ((RuleSizes *) target)->n = 0;
}

/* Of the ones that follow an empty value sets nothing. */

static int parse_decision(const ConfigItem *item, const char *value, void *target, ConfigError *error) {
        Decision d;

        if (value[0] == '\0') {
                *(int *) target = -1;
                return 0;
        }
        d = decision_from_string(value);
        if (d < 0)
                return -EINVAL;
        *(int *) target = d;
        return 0;
}

static int parse_page_size(const ConfigItem *item, const char *value, void *target, ConfigError *error) {
        uint64_t size = 0;
        int r = value[0] != '\0' ? read_page_size(value, &size) : 0;

        if (r < 0)
                return -EINVAL;
        *(uint64_t *) target = size;
        return 0;
}

static int parse_nodes(const ConfigItem *item, const char *value, void *target, ConfigError *error) {
        RuleNodes n = { .is_set = value[0] != '\0' };

        if (n.is_set && idset_parse(value, &n.ids) < 0)
                return -EINVAL;
        *(RuleNodes *) target = n;
        return 0;
}

static int read_switch(const char *value, int *ret) {
        static const char *const words[] = { "no", "yes", "false", "true", "off", "on", "0", "1" };

        for (size_t i = 0; i < ELEMENTSOF(words); i++)
                if (streq(value, words[i])) {
                        *ret = i % 2;
                        return 0;
                }
        return -EINVAL;
}

static int parse_warm(const ConfigItem *item, const char *value, void *target, ConfigError *error) {
        int on = -1;

        if (value[0] != '\0' && read_switch(value, &on) < 0)
                return -EINVAL;
        *(int *) target = on;
        return 0;
}

static int parse_adopt(const ConfigItem *item, const char *value, void *target, ConfigError *error) {
        int on;

        if (read_switch(value, &on) < 0)
                return -EINVAL;
        *(bool *) target = on;
        return 0;
}

const ConfigType config_type_rule_globs = { .parse = parse_globs,
                                            .done = done_strings,
                                            .is_list = true,
                                            .allowed = "a list of patterns, like web-* db" };
const ConfigType config_type_rule_users = { .parse = parse_users,
                                            .done = done_strings,
                                            .is_list = true,
                                            .allowed = "a list of names or numbers of users" };
const ConfigType config_type_rule_sizes = { .parse = parse_sizes,
                                            .done = done_sizes,
                                            .is_list = true,
                                            .allowed = "a list of page sizes, like 2M 1G" };
const ConfigType config_type_rule_decision = { .parse = parse_decision, .allowed = "auto, always or never" };
const ConfigType config_type_rule_page_size = { .parse = parse_page_size,
                                                .allowed = "a page size, like 4K, 2M or 1G" };
const ConfigType config_type_rule_nodes = { .parse = parse_nodes, .allowed = "a set of nodes, like 0-1,3" };
const ConfigType config_type_rule_warm = { .parse = parse_warm, .allowed = "yes or no" };
const ConfigType config_type_rule_adopt = { .parse = parse_adopt, .allowed = "yes or no" };

int rule_config_instance(Config *c, const char *name, void **ret, bool *ret_is_new, ConfigError *error) {
        Rule *rule;
        int r = rules_get(&c->rules, name, &rule, ret_is_new);

        if (r == -EINVAL)
                return config_refuse(error, "a rule's name has 1 to %u of A-Z, a-z, 0-9, '.', '_' and '-'",
                                     RULE_NAME_MAX);
        if (r == -E2BIG)
                return config_refuse(error, "there are more than %u rules", RULES_MAX);
        if (r < 0)
                return r;
        *ret = rule;
        return 0;
}

void rule_config_done(Config *c) {
        for (size_t i = 0; i < c->rules.n; i++)
                config_instance_done("Rule", c->rules.rules[i]);
        rules_done(&c->rules);
}

int rule_config_check(const Config *c, ConfigError *error) {
        for (size_t i = 0; i < c->rules.n; i++) {
                const Rule *r = c->rules.rules[i];

                if (r->min_bytes > r->max_bytes)
                        return config_refuse(
                                        error,
                                        "[Rule %s] MatchMinBytes= is more than MatchMaxBytes=: no VM is of that size",
                                        r->name);
                if (r->min_vcpus > r->max_vcpus)
                        return config_refuse(
                                        error,
                                        "[Rule %s] MatchMinVCPUs= is more than MatchMaxVCPUs=: no VM has so many",
                                        r->name);
        }
        return 0;
}
