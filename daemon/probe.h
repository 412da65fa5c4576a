/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Measures what a leaf costs, with a scratch VM of our own: one vCPU that writes to memory, page by page. */

#include "macro.h"

typedef struct ProbeRequest {
        const char *kvm;    /* KVM's device */
        const char *device; /* ours */
        int memory_fd;      /* populated */
        uint64_t page_size;
        uint64_t bytes;
        bool (*is_canceled)(void *userdata);
        void *userdata;
} ProbeRequest;

typedef struct ProbeResult {
        uint64_t fault_ns, build_ns; /* for one leaf; 0: could not be measured */
        char missing[160];           /* then: why */
} ProbeResult;

/* For threads; a signal interrupts it for a look at is_canceled().  -ECANCELED, or 0 with whatever could be
 * measured. */
int probe_run(const ProbeRequest *request, ProbeResult *ret);
