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

typedef enum Word {
        WORD_REQUESTED,
        WORD_RULE,
        WORD_CONFIGURED,
        WORD_LEAF_FAULTS_AVOIDED,
        WORD_SAVES_TOO_LITTLE,
        WORD_TOO_SMALL,
        WORD_NO_DEVICE,
        WORD_SHADOW_PAGING,
        WORD_NO_PAGES,
        WORD_CONFIDENTIAL,
        WORD_BALLOON,
        WORD_FREE_PAGE_REPORTING,
        WORD_DISCARD,
        WORD_DIRTY_LOGGING,
        WORD_NOT_ENOUGH_MEMORY_LOCK,
        WORD_NOT_ENOUGH_MEMORY,
        WORD_NX_HUGE_PAGES,
        WORD_NOT_MAPPED,
        WORD_OTHER_PAGES,
        _WORD_MAX,
} Word;

static const char *const word_table[_WORD_MAX] = {
        [WORD_REQUESTED] = "requested",
        [WORD_RULE] = "rule",
        [WORD_CONFIGURED] = "configured",
        [WORD_LEAF_FAULTS_AVOIDED] = "leaf-faults-avoided",
        [WORD_SAVES_TOO_LITTLE] = "saves-too-little",
        [WORD_TOO_SMALL] = "too-small",
        [WORD_NO_DEVICE] = "no-device",
        [WORD_SHADOW_PAGING] = "shadow-paging",
        [WORD_NO_PAGES] = "no-pages",
        [WORD_CONFIDENTIAL] = "confidential",
        [WORD_BALLOON] = "balloon",
        [WORD_FREE_PAGE_REPORTING] = "free-page-reporting",
        [WORD_DISCARD] = "discard",
        [WORD_DIRTY_LOGGING] = "dirty-logging",
        [WORD_NOT_ENOUGH_MEMORY_LOCK] = "not-enough-memory-lock",
        [WORD_NOT_ENOUGH_MEMORY] = "not-enough-memory",
        [WORD_NX_HUGE_PAGES] = "nx-huge-pages",
        [WORD_NOT_MAPPED] = "not-mapped",
        [WORD_OTHER_PAGES] = "other-pages",
};

const char *policy_word(const char *word) {
        for (Word w = 0; w < _WORD_MAX; w++)
                if (streq(word, word_table[w]))
                        return word_table[w];
        return NULL;
}

/* What VFIO's users give a VMM beside the guest's memory, for MMIO: libvirt has the same figure. */
#define VFIO_OVERHEAD GIB(1)

static void _printf_(3, 4) reason(PolicyOutput *o, Word word, const char *format, ...) {
        PolicyReason *p;
        va_list ap;

        if (o->n_reasons >= POLICY_REASONS_MAX)
                return;
        p = &o->reasons[o->n_reasons++];
        p->word = word_table[word];
        va_start(ap, format);
        vsnprintf(p->text, sizeof(p->text), format, ap);
        va_end(ap);
}

static uint32_t fact(const PolicyInput *in, VMFact f) {
        return vm_facts_know(&in->facts, f) ? in->facts.values[f] : 0;
}

/* Each device behind a vIOMMU has an address space of its own, and locks what is in it once more. */
static uint64_t vfio_bytes(const PolicyInput *in) {
        uint64_t n = fact(in, FACT_VFIO_DEVICES), bytes;

        if (n == 0)
                return 0;
        if (!fact(in, FACT_VIOMMU))
                n = 1;
        if (__builtin_mul_overflow(n, in->bytes, &bytes) ||
            __builtin_add_overflow(bytes, VFIO_OVERHEAD, &bytes))
                return UINT64_MAX;
        return bytes;
}

static void estimate(const PolicyInput *in, PolicyOutput *o) {
        const CostInput ci = {
                .bytes = in->bytes,
                .page_size = in->page_size,
                .max_level = in->max_level,
                .max_leaf_level = in->max_leaf_level,
                .vcpus = fact(in, FACT_VCPUS),
                .migrations = fact(in, FACT_MIGRATIONS),
        };
        Cost c;

        cost_estimate(&in->model, &ci, &c);
        o->leaves = c.leaves;
        o->leaf_size = c.leaf->page_size;
        o->saved_usec = c.saved_usec;
        o->build_usec = c.build_usec;
        o->pin_usec = c.pin_usec;
        o->vfio_bytes = vfio_bytes(in);
}

/* What makes a build impossible, whatever was asked for. */
static bool blocked(const PolicyInput *in, PolicyOutput *o) {
        if (in->has_no_pages)
                reason(o, WORD_NO_PAGES, "there are not enough free pages for this VM");
        if (!in->has_device)
                reason(o, WORD_NO_DEVICE,
                       "this kernel has no /dev/kvm-gtdp: load the kvm modules of package tdpd-kvm-modules");
        else if (in->shadow)
                reason(o, WORD_SHADOW_PAGING,
                       "KVM runs without EPT or NPT here: there is no second-level table to build");
        if (fact(in, FACT_CONFIDENTIAL))
                reason(o, WORD_CONFIDENTIAL,
                       "the guest's memory is confidential (SEV or TDX): KVM must not map it by itself");
        return o->n_reasons > 0;
}

/* What a build would do harm to, or be harmed by. */
static bool hurts(const PolicyInput *in, PolicyOutput *o) {
        size_t before = o->n_reasons;

        if (fact(in, FACT_BALLOON))
                reason(o, WORD_BALLOON,
                       "the guest's balloon moves by itself (deflate-on-oom): what is built is pinned, and what "
                       "the balloon gives back of it becomes holes; take the balloon away, or leave it still");
        if (fact(in, FACT_FREE_PAGE_REPORTING))
                reason(o, WORD_FREE_PAGE_REPORTING,
                       "the guest reports free pages to give them back: a build would have all of them "
                       "allocated and pinned; switch free-page-reporting off");
        if (fact(in, FACT_DISCARD))
                reason(o, WORD_DISCARD,
                       "the VMM discards memory (discard-data, or virtio-mem): a build would have it all "
                       "allocated and pinned");
        if (in->dirty_log)
                reason(o, WORD_DIRTY_LOGGING,
                       "dirty logging is on, as for a migration: leaves would be of 4K and read-only; build "
                       "when it is over");
        if (in->memlock_known && in->memlock_limit < in->bytes)
                reason(o, WORD_NOT_ENOUGH_MEMORY_LOCK,
                       "tdpd may lock %" PRIu64 " bytes (RLIMIT_MEMLOCK) and the VM has %" PRIu64
                       ": its unit needs LimitMEMLOCK=infinity",
                       in->memlock_limit, in->bytes);
        if (in->vmm_memlock_known && in->vmm_memlock_limit < o->vfio_bytes)
                reason(o, WORD_NOT_ENOUGH_MEMORY_LOCK,
                       "%" PRIu32 " VFIO devices%s lock %s, and the VMM may lock %" PRIu64
                       " bytes (RLIMIT_MEMLOCK): raise its limit",
                       fact(in, FACT_VFIO_DEVICES), fact(in, FACT_VIOMMU) ? " behind a vIOMMU" : "",
                       format_bytes(o->vfio_bytes), in->vmm_memlock_limit);
        if (in->available_known && in->available_bytes < in->unbacked_bytes)
                reason(o, WORD_NOT_ENOUGH_MEMORY,
                       "a build would allocate %" PRIu64
                       " bytes that the guest has not touched yet, and the "
                       "host has %" PRIu64 " left: it is overcommitted",
                       in->unbacked_bytes, in->available_bytes);
        return o->n_reasons > before;
}

static void warn(const PolicyInput *in, PolicyOutput *o) {
        if (in->nx_huge && o->leaf_size > KIB(4))
                reason(o, WORD_NX_HUGE_PAGES,
                       "the NX huge page mitigation is on: large leaves split where the guest executes, and "
                       "KVM takes the parts away now and then, which the guest notices as pauses of some 100 us "
                       "(kvm.nx_huge_pages=off, if the CPUs and the guests allow)");
}

static void weigh(const PolicyInput *in, PolicyOutput *o) {
        uint64_t cost, gain;
        char pins[64] = "";

        if (in->bytes < in->min_bytes) {
                reason(o, WORD_TOO_SMALL, "%s is less than MinBytes=%s", format_bytes(in->bytes),
                       format_bytes(in->min_bytes));
                return;
        }

        if (__builtin_add_overflow(o->build_usec, o->pin_usec, &cost))
                cost = UINT64_MAX;
        gain = o->saved_usec > cost ? o->saved_usec - cost : 0;
        if (o->pin_usec > 0)
                snprintf(pins, sizeof(pins), " and %" PRIu64 " us for pins", o->pin_usec);
        if (gain < in->min_saving_usec) {
                reason(o, WORD_SAVES_TOO_LITTLE,
                       "%" PRIu64 " leaves save some %" PRIu64 " us of faults for %" PRIu64
                       " us of building%s, less than MinSavingUSec=%" PRIu64,
                       o->leaves, o->saved_usec, o->build_usec, pins, in->min_saving_usec);
                return;
        }

        o->build = true;
        reason(o, WORD_LEAF_FAULTS_AVOIDED,
               "%" PRIu64 " leaves: some %" PRIu64 " us of faults avoided for %" PRIu64 " us of building%s",
               o->leaves, o->saved_usec, o->build_usec, pins);
}

static void say_who(const PolicyInput *in, Decision d, PolicyOutput *o) {
        if (in->asked_is_set)
                reason(o, WORD_REQUESTED, "decision \"%s\" was asked for", decision_to_string(d));
        else if (in->by_rule_is_set)
                reason(o, WORD_RULE, "rule \"%s\" says \"%s\"", o->rule, decision_to_string(d));
        else
                reason(o, WORD_CONFIGURED, "decision \"%s\" is in the configuration", decision_to_string(d));
}

void policy_decide(const PolicyInput *in, PolicyOutput *ret) {
        Decision d = in->asked_is_set ? in->asked : in->by_rule_is_set ? in->by_rule : in->configured;
        PolicyOutput o = {};

        if (in->rule)
                snprintf(o.rule, sizeof(o.rule), "%s", in->rule);
        estimate(in, &o);

        if (d == DECISION_NEVER)
                say_who(in, d, &o);
        else if (!blocked(in, &o)) {
                if (d == DECISION_ALWAYS) {
                        /* It was said, so it is done, and nobody can say that they were not told. */
                        o.build = true;
                        say_who(in, d, &o);
                        (void) hurts(in, &o);
                } else if (!hurts(in, &o))
                        weigh(in, &o);
                if (o.build)
                        warn(in, &o);
        }

        o.pinned_bytes = o.build ? in->bytes : 0;
        *ret = o;
}

void policy_note_mapping(PolicyOutput *o, uint64_t bytes, uint64_t page_size, uint64_t expected) {
        char buf[32];

        if (bytes == 0) {
                reason(o, WORD_NOT_MAPPED,
                       "the VMM has mapped nothing of the memory that was reserved for it, and runs with other "
                       "memory: give it the descriptors of GetMemory, as \"tdpctl run\" does");
                return;
        }
        snprintf(buf, sizeof(buf), "%s", format_bytes(expected));
        if (page_size < expected)
                reason(o, WORD_OTHER_PAGES,
                       "the VMM has mapped memory that was reserved in pages of %s in pages of %s", buf,
                       format_bytes(page_size));
}
