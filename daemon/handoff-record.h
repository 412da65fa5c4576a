/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What one side knows of a handoff, and writes down before it acts on it. As text: keys with values in a
 * fixed order, then what was said, each as a message in hex digits. Opens no file.
 */

#include <sys/types.h>

#include "handoff-table.h"
#include "record-text.h"

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

#define HANDOFF_RECORD_VERSION  1U
#define HANDOFF_RECORD_SIZE_MAX MIB(1)

/* -EINVAL: it is none that could be read again, which is a defect; or -ENOMEM. */
int handoff_record_format(const HandoffRecord *r, char **ret, size_t *ret_size);
/* -EBADMSG with "fault" set, or -ENOMEM. */
int handoff_record_parse(const char *text, size_t size, HandoffRecord *ret, RecordFault *fault);
