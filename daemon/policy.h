/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Whether a VM's mapping is built: a pure function, the same one for Reserve, Attach, Build and Explain. */

#include "macro.h"

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
        Decision asked;    /* of the request */
        bool asked_is_set; /* else the config's applies */
        Decision configured;
        uint64_t bytes;
        uint64_t page_size;
        uint32_t vcpus;     /* 0: unknown */
        uint32_t max_level; /* 0: no limit */

        bool has_device;
        bool shadow;  /* no second-level paging */
        bool nx_huge; /* NX huge page mitigation */
        uint32_t max_leaf_level;

        bool memlock_known; /* tdpd's own: it is tdpd that pins */
        uint64_t memlock_limit;
        bool has_no_pages; /* the request cannot be placed */

        uint64_t min_bytes; /* config */
        uint64_t min_saving_usec;
} PolicyInput;

#define POLICY_REASONS_MAX 6U

typedef struct PolicyReason {
        const char *word; /* stable, for programs */
        char text[200];   /* for people */
} PolicyReason;

typedef struct PolicyOutput {
        bool build;
        PolicyReason reasons[POLICY_REASONS_MAX];
        size_t n_reasons;
        uint64_t leaves;
        uint64_t saved_usec; /* faults that will not happen */
        uint64_t build_usec;
        uint64_t pinned_bytes;
} PolicyOutput;

void policy_decide(const PolicyInput *in, PolicyOutput *ret);
