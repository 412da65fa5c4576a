/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What of a VM matters for a decision beside its size, as far as it is known: from the request, and from the
 * command line of its VMM if that is QEMU.  What was plugged in later is not on a command line.
 */

#include "macro.h"

typedef enum VMFact {
        FACT_BALLOON,             /* it takes memory from the guest by itself */
        FACT_FREE_PAGE_REPORTING, /* the guest gives back what it does not use */
        FACT_DISCARD,             /* memory is thrown away: discard-data, virtio-mem */
        FACT_CONFIDENTIAL,        /* SEV, TDX */
        FACT_VIOMMU,
        FACT_VFIO_DEVICES, /* a number, as the ones that follow */
        FACT_MIGRATIONS,   /* expected */
        FACT_VCPUS,
        _FACT_MAX,
} VMFact;

typedef struct VMFacts {
        uint32_t values[_FACT_MAX];
        unsigned known; /* 1 << VMFact */
        char name[64];  /* the VMM's for the guest, or "" */
} VMFacts;

static inline bool vm_facts_know(const VMFacts *f, VMFact fact) {
        return f->known & 1U << fact;
}

static inline void vm_facts_set(VMFacts *f, VMFact fact, uint32_t value) {
        f->values[fact] = value;
        f->known |= 1U << fact;
}

/* What is not known yet comes from "other". */
void vm_facts_merge(VMFacts *f, const VMFacts *other);

/*
 * From the arguments of a process, each with its NUL, as /proc/PID/cmdline has them.  Whatever they are:
 * -ENOENT if this is no QEMU, and what cannot be understood is left out.
 */
int vm_facts_parse(const char *cmdline, size_t size, VMFacts *ret);
