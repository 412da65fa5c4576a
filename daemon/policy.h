/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Whether a VM's mapping is built: a pure function, the same one for Reserve, Attach, Build and Explain. */

#include "cost.h"
#include "vm-facts.h"

typedef enum Decision {
        DECISION_AUTO,
        DECISION_ALWAYS,
        DECISION_NEVER,
        _DECISION_MAX,
        _DECISION_INVALID = -1,
} Decision;

const char *decision_to_string(Decision d);
Decision decision_from_string(const char *s);

typedef struct PolicyInput {
        /* The first of them that is set counts. */
        Decision asked; /* of the request */
        bool asked_is_set;
        Decision by_rule;
        bool by_rule_is_set;
        Decision configured;
        const char *rule; /* that matches, or NULL */

        uint64_t bytes;
        uint64_t page_size;
        uint32_t max_level; /* 0: no limit */
        VMFacts facts;
        bool dirty_log; /* is on, for some of its memory */

        bool has_device;
        bool shadow;  /* no second-level paging */
        bool nx_huge; /* NX huge page mitigation */
        uint32_t max_leaf_level;

        bool memlock_known; /* tdpd's own: it is tdpd that pins */
        uint64_t memlock_limit;
        bool vmm_memlock_known; /* for what the VMM locks itself, for VFIO */
        uint64_t vmm_memlock_limit;
        bool has_no_pages; /* the request cannot be placed */
        /* What a build would have to allocate first, and what the host has left for that. */
        bool available_known;
        uint64_t unbacked_bytes, available_bytes;

        CostModel model;
        uint64_t min_bytes; /* config */
        uint64_t min_saving_usec;
} PolicyInput;

#define POLICY_REASONS_MAX 10U

typedef struct PolicyReason {
        const char *word; /* stable, for programs */
        char text[256];   /* for people */
} PolicyReason;

typedef struct PolicyOutput {
        bool build;
        PolicyReason reasons[POLICY_REASONS_MAX];
        size_t n_reasons;
        uint64_t leaves;
        uint64_t leaf_size;
        uint64_t saved_usec; /* faults that will not happen */
        uint64_t build_usec;
        uint64_t pin_usec;     /* what overcommitting it would be worth */
        uint64_t pinned_bytes; /* by us */
        uint64_t vfio_bytes;   /* what the VMM locks for its VFIO devices */
        char rule[48];         /* or "" */
} PolicyOutput;

/* The table's own copy of a reason's word, or NULL if there is none such. */
const char *policy_word(const char *word);

void policy_decide(const PolicyInput *in, PolicyOutput *ret);

/* For memory of ours: what its VMM has mapped of it, and in which pages.  Adds a reason if that is not what
 * it was reserved for. */
void policy_note_mapping(PolicyOutput *o, uint64_t bytes, uint64_t page_size, uint64_t expected);
