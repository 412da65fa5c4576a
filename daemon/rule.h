/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What the configuration says of some VMs: its [Rule NAME] sections.  Like files of .link and .network units
 * rules are sorted by name, and the first one that matches a VM is the only one that counts for it.
 */

#include <sys/types.h>

#include "idset.h"
#include "policy.h"

#define RULES_MAX     256U
#define RULE_LIST_MAX 64U
#define RULE_NAME_MAX 40U

typedef struct RuleStrings {
        char **items;
        size_t n;
} RuleStrings;

typedef struct RuleSizes {
        uint64_t items[RULE_LIST_MAX];
        size_t n;
} RuleSizes;

typedef struct RuleNodes {
        bool is_set;
        IdSet ids;
} RuleNodes;

typedef struct Rule {
        char name[RULE_NAME_MAX + 1];

        /* What it is about.  What is empty matches all; one of a list is enough. */
        RuleStrings names, units, cgroups; /* globs */
        RuleStrings users;                 /* names or numbers */
        uint64_t min_bytes, max_bytes;
        uint64_t min_vcpus, max_vcpus;
        RuleSizes page_sizes;

        /* What it sets. */
        int decision; /* Decision, or < 0: nothing */
        uint64_t page_size;
        RuleNodes nodes;
        int warm; /* yes, no, or < 0: nothing */
        bool adopt;
} Rule;

typedef struct RuleSet {
        Rule **rules; /* by name */
        size_t n;
} RuleSet;

/* What is known of a VM.  What is not (NULL, 0) matches no rule that asks for it. */
typedef struct RuleSubject {
        const char *name;
        uint64_t bytes;
        uint32_t vcpus;
        uint64_t page_size; /* as asked for, or of what backs it */
        bool has_uid;
        uid_t uid;
        const char *user; /* the uid's name */
        const char *unit;
        const char *cgroup;
} RuleSubject;

const Rule *rules_match(const RuleSet *s, const RuleSubject *subject);

/* The one of that name, or NULL. */
const Rule *rules_find(const RuleSet *s, const char *name);
/* The one of that name, zeroed if it is new.  -EINVAL: no name for a rule; -E2BIG: there are too many. */
int rules_get(RuleSet *s, const char *name, Rule **ret, bool *ret_is_new);
/* What the rules hold is to be freed before, but for this. */
void rules_done(RuleSet *s);

/* -E2BIG if there are too many. */
int rule_strings_add(RuleStrings *s, const char *item);
void rule_strings_done(RuleStrings *s);

/* Whether there is any need to listen for VMs, and to know the names of users. */
bool rules_adopt(const RuleSet *s);
bool rules_name_users(const RuleSet *s);
