/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What one side knows of a handoff, and writes down before it acts on it. */

#include <sys/types.h>

#include "handoff-table.h"
#include "record.h"

typedef struct HandoffRecord {
        HandoffRole side;
        HandoffState state;
        HandoffId id;
        HandoffId grant;            /* not set: there is none yet */
        HandoffId peer;             /* host; a source knows it from the answer on */
        char vm[VM_NAME_MAX + 1];   /* as the messages call it */
        char name[VM_NAME_MAX + 1]; /* as it is called here */
        uint64_t generation;        /* as offered */
        uint64_t lease;             /* of the VM here, and of none that has its name later */
        uint32_t uid;               /* who offered or prepared it */
        char boot_id[BOOT_ID_LEN + 1];
        uint64_t deadline_usec; /* CLOCK_BOOTTIME, of that boot */
        uint64_t finished_usec; /* CLOCK_REALTIME, 0: not yet */
        bool memory_taken;      /* destination: handed out to a VMM */

        HandoffOffer offer;
        HandoffAnswer answer; /* page_size 0: none yet */
        HandoffStart start;   /* logging 0: not yet */
        HandoffCommit commit;
        HandoffComplete complete; /* of the destination; new_generation 0: not yet */
        HandoffAbort abort;       /* reason 0: none */
        uint64_t released_bytes;  /* source */
} HandoffRecord;
