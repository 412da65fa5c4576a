/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "rule.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>

/* Names and units are no paths, and in a path of cgroups a star is to match several levels: no FNM_PATHNAME.
 */
static bool globs_match(const RuleStrings *s, const char *value) {
        if (s->n == 0)
                return true;
        for (size_t i = 0; value && i < s->n; i++)
                if (fnmatch(s->items[i], value, 0) == 0)
                        return true;
        return false;
}

static bool users_match(const RuleStrings *s, const RuleSubject *subject) {
        char number[16];

        if (s->n == 0)
                return true;
        snprintf(number, sizeof(number), "%" PRIu32, subject->uid);
        for (size_t i = 0; subject->has_uid && i < s->n; i++)
                if (streq(s->items[i], number) || (subject->user && streq(s->items[i], subject->user)))
                        return true;
        return false;
}

static bool range_matches(uint64_t min, uint64_t max, uint64_t value) {
        if (min == 0 && max == UINT64_MAX)
                return true;
        return value != 0 && value >= min && value <= max;
}

static bool sizes_match(const RuleSizes *s, uint64_t value) {
        for (size_t i = 0; i < s->n; i++)
                if (s->items[i] == value)
                        return true;
        return s->n == 0;
}

static bool rule_matches(const Rule *r, const RuleSubject *s) {
        return globs_match(&r->names, s->name) && globs_match(&r->units, s->unit) &&
               globs_match(&r->cgroups, s->cgroup) && users_match(&r->users, s) &&
               range_matches(r->min_bytes, r->max_bytes, s->bytes) &&
               range_matches(r->min_vcpus, r->max_vcpus, s->vcpus) &&
               sizes_match(&r->page_sizes, s->page_size);
}

const Rule *rules_match(const RuleSet *s, const RuleSubject *subject) {
        for (size_t i = 0; i < s->n; i++)
                if (rule_matches(s->rules[i], subject))
                        return s->rules[i];
        return NULL;
}

static bool name_is_valid(const char *name) {
        size_t n = strlen(name);

        if (n == 0 || n > RULE_NAME_MAX)
                return false;
        for (size_t i = 0; i < n; i++)
                if (!isalnum((unsigned char) name[i]) && !strchr("._-", name[i]))
                        return false;
        return true;
}

const Rule *rules_find(const RuleSet *s, const char *name) {
        for (size_t i = 0; i < s->n; i++)
                if (streq(s->rules[i]->name, name))
                        return s->rules[i];
        return NULL;
}

int rules_get(RuleSet *s, const char *name, Rule **ret, bool *ret_is_new) {
        _cleanup_free_ Rule *r = NULL;
        Rule **rules;
        size_t i;

        if (!name_is_valid(name))
                return -EINVAL;
        /* Byte by byte, whatever the locale. */
        for (i = 0; i < s->n && strcmp(s->rules[i]->name, name) < 0; i++)
                ;
        if (i < s->n && streq(s->rules[i]->name, name)) {
                *ret = s->rules[i];
                *ret_is_new = false;
                return 0;
        }

        if (s->n >= RULES_MAX)
                return -E2BIG;
        r = calloc(1, sizeof(*r));
        if (!r)
                return -ENOMEM;
        rules = reallocarray(s->rules, s->n + 1, sizeof(*rules));
        if (!rules)
                return -ENOMEM;
        s->rules = rules;
        memmove(rules + i + 1, rules + i, (s->n - i) * sizeof(*rules));
        s->n++;
        snprintf(r->name, sizeof(r->name), "%s", name);
        *ret = rules[i] = TAKE_PTR(r);
        *ret_is_new = true;
        return 0;
}

void rules_done(RuleSet *s) {
        for (size_t i = 0; i < s->n; i++)
                free(s->rules[i]);
        free(s->rules);
        *s = (RuleSet){};
}

int rule_strings_add(RuleStrings *s, const char *item) {
        char **items;

        if (s->n >= RULE_LIST_MAX)
                return -E2BIG;
        items = reallocarray(s->items, s->n + 1, sizeof(*items));
        if (!items)
                return -ENOMEM;
        s->items = items;
        items[s->n] = strdup(item);
        if (!items[s->n])
                return -ENOMEM;
        s->n++;
        return 0;
}

void rule_strings_done(RuleStrings *s) {
        for (size_t i = 0; i < s->n; i++)
                free(s->items[i]);
        free(s->items);
        *s = (RuleStrings){};
}

bool rules_adopt(const RuleSet *s) {
        for (size_t i = 0; i < s->n; i++)
                if (s->rules[i]->adopt)
                        return true;
        return false;
}

bool rules_name_users(const RuleSet *s) {
        for (size_t i = 0; i < s->n; i++)
                for (size_t k = 0; k < s->rules[i]->users.n; k++)
                        if (!isdigit((unsigned char) s->rules[i]->users.items[k][0]))
                                return true;
        return false;
}
