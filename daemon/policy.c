/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy.h"

#include <stdarg.h>
#include <stdio.h>

#include "format.h"

static const char *const decision_table[_DECISION_MAX] = {
        [DECISION_AUTO] = "auto",
        [DECISION_ALWAYS] = "always",
        [DECISION_NEVER] = "never",
};

const char *decision_to_string(Decision d) {
        return d >= 0 && d < _DECISION_MAX ? decision_table[d] : NULL;
}

Decision decision_from_string(const char *s) {
        for (int d = 0; d < _DECISION_MAX; d++)
                if (streq(s, decision_table[d]))
                        return d;
        return _DECISION_INVALID;
}

/*
 * First guesses of what a leaf costs, in nanoseconds, until they are measured on each host.  They come from
 * instruction counts on 6.12 (a fault takes about 3100 to 3500 in the kernel, a built leaf a few hundred)
 * and from a VM exit and entry of about 1 us.  Zeroing is in neither: the memory is populated before.
 */
static const struct {
        uint64_t page_size;
        uint32_t level;
        uint64_t fault_ns;
        uint64_t build_ns;
} leaf_costs[] = {
        { KIB(4), 1, 2000, 100 },
        { MIB(2), 2, 2500, 250 },
        { GIB(1), 3, 2500, 1000 },
};

/* vCPUs that fault at the same time wait for each other: about a sixteenth more for each. */
#define CONTENTION_VCPUS 16U

static size_t leaf_index(const PolicyInput *in) {
        size_t best = 0;

        for (size_t i = 0; i < ELEMENTSOF(leaf_costs); i++)
                if (leaf_costs[i].page_size <= in->page_size &&
                    (in->max_level == 0 || leaf_costs[i].level <= in->max_level) &&
                    (in->max_leaf_level == 0 || leaf_costs[i].level <= in->max_leaf_level))
                        best = i;
        return best;
}

static void _printf_(3, 4) reason(PolicyOutput *o, const char *word, const char *format, ...) {
        PolicyReason *p;
        va_list ap;

        if (o->n_reasons >= POLICY_REASONS_MAX)
                return;
        p = &o->reasons[o->n_reasons++];
        p->word = word;
        va_start(ap, format);
        vsnprintf(p->text, sizeof(p->text), format, ap);
        va_end(ap);
}

/* Sizes and numbers of vCPUs may be any: what is too large for the result's type is undefined in C. */
static uint64_t to_usec(double ns) {
        double usec = ns / 1000;

        return usec >= 0x1p64 ? UINT64_MAX : (uint64_t) usec;
}

static void estimate(const PolicyInput *in, PolicyOutput *o) {
        size_t i = leaf_index(in);
        double leaves, ns;

        o->leaves = in->bytes / leaf_costs[i].page_size;
        leaves = (double) o->leaves;
        ns = leaves * (double) leaf_costs[i].fault_ns;
        if (in->vcpus > 1)
                ns *= 1 + (double) (in->vcpus - 1) / CONTENTION_VCPUS;
        o->saved_usec = to_usec(ns);
        o->build_usec = to_usec(leaves * (double) leaf_costs[i].build_ns);
}

/* What makes a build impossible, whatever was asked for. */
static bool blocked(const PolicyInput *in, PolicyOutput *o) {
        if (in->has_no_pages)
                reason(o, "no-pages", "there are not enough free pages for this VM");
        if (!in->has_device)
                reason(o, "no-device",
                       "this kernel has no /dev/kvm-gtdp: load the kvm modules of package tdpd-kvm-modules");
        else if (in->shadow)
                reason(o, "shadow-paging",
                       "KVM runs without EPT or NPT here: there is no second-level table to build");
        return o->n_reasons > 0;
}

static void decide_auto(const PolicyInput *in, PolicyOutput *o) {
        uint64_t gain = o->saved_usec > o->build_usec ? o->saved_usec - o->build_usec : 0;

        if (in->memlock_known && in->memlock_limit < in->bytes) {
                reason(o, "not-enough-memory-lock",
                       "tdpd may lock %" PRIu64 " bytes (RLIMIT_MEMLOCK) and the VM has %" PRIu64
                       ": its unit needs LimitMEMLOCK=infinity",
                       in->memlock_limit, in->bytes);
                return;
        }
        if (in->bytes < in->min_bytes) {
                reason(o, "too-small", "%s is less than MinBytes=%s", format_bytes(in->bytes),
                       format_bytes(in->min_bytes));
                return;
        }
        if (gain < in->min_saving_usec) {
                reason(o, "saves-too-little",
                       "%" PRIu64 " leaves save some %" PRIu64 " us of faults for %" PRIu64
                       " us of building, less than MinSavingUSec=%" PRIu64,
                       o->leaves, o->saved_usec, o->build_usec, in->min_saving_usec);
                return;
        }

        o->build = true;
        reason(o, "leaf-faults-avoided",
               "%" PRIu64 " leaves: some %" PRIu64 " us of faults avoided for %" PRIu64 " us of building",
               o->leaves, o->saved_usec, o->build_usec);
        if (in->nx_huge && in->page_size > leaf_costs[0].page_size)
                reason(o, "nx-huge-pages",
                       "the NX huge page mitigation is on: large leaves split where the guest executes");
}

void policy_decide(const PolicyInput *in, PolicyOutput *ret) {
        Decision d = in->asked_is_set ? in->asked : in->configured;
        PolicyOutput o = {};

        estimate(in, &o);

        if (d == DECISION_NEVER)
                reason(&o, in->asked_is_set ? "requested" : "configured", "decision \"never\" %s",
                       in->asked_is_set ? "was asked for" : "is in the configuration");
        else if (!blocked(in, &o)) {
                if (d == DECISION_ALWAYS) {
                        o.build = true;
                        reason(&o, in->asked_is_set ? "requested" : "configured", "decision \"always\" %s",
                               in->asked_is_set ? "was asked for" : "is in the configuration");
                } else
                        decide_auto(in, &o);
        }

        o.pinned_bytes = o.build ? in->bytes : 0;
        *ret = o;
}
