/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Gathers what a decision depends on, asks the rules, and has the policy decide. */

#include "manager.h"
#include "rule.h"

typedef struct DecideRequest {
        const char *name; /* or NULL */
        bool has_uid;
        uid_t uid;       /* whose VM it is to be */
        pid_t pid;       /* of the VMM, or of whoever asks for one; 0: unknown */
        bool pid_is_vmm; /* then its command line and limits count */
        uint64_t bytes;
        uint64_t page_size; /* as asked for, or of what backs it; 0: not known yet */
        bool backed;        /* its memory is there already, or its pages are set aside */
        bool dirty_log;
        bool has_no_pages;
} DecideRequest;

/* Who has sent a message, as far as that is known. */
void decide_set_sender(DecideRequest *r, sd_bus_message *message);

/* Fills what the options leave open from the rule that matches, and facts from the VMM's command line.  The
 * rule, or NULL, stays the configuration's. */
int decide_prepare(Manager *m, const DecideRequest *r, VMOptions *o, const Rule **ret);

void decide(Manager *m, const DecideRequest *r, const VMOptions *o, const Rule *rule, PolicyOutput *ret);

/* The arguments of a process, bounded.  For the facts, and a name. */
int decide_read_vmm(pid_t pid, VMFacts *ret);

/* "build (leaf-faults-avoided: ...; nx-huge-pages: ...)", for the log. */
char *decide_describe(const PolicyOutput *o);
