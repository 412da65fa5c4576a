/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What the daemon that comes next has to know of a VM, as text.  Formats and parses only: it opens no file
 * and knows no VM, so that what comes from a file never meets what holds power before it is known to be
 * sane.
 *
 *      tdpd-record 1
 *      key value           each key once; those of lists as often as there are items
 *      end CHECKSUM
 *
 * A record is taken as a whole or not at all.
 */

#include <sys/types.h>

#include "name.h"
#include "placement.h"
#include "policy.h"
#include "record-text.h"
#include "span.h"
#include "vm-state.h"

#define RECORD_VERSION   1U
#define RECORD_SIZE_MAX  MIB(8) /* two full lists of spans, of less than 49 bytes each, and the rest */
#define RECORD_PARTS_MAX NODE_ID_MAX
#define RECORD_SPANS_MAX 65536U /* KVM has up to 32764 slots in each of two address spaces */
#define RECORD_WORD_MAX  32U

typedef struct Record {
        char boot_id[BOOT_ID_LEN + 1];
        char name[VM_NAME_MAX + 1];
        uint64_t lease; /* told apart from others of that name, before and after: names its descriptors */
        uint32_t uid;
        VMState state;
        bool was_built;
        uint64_t generation;
        uint64_t bytes;
        uint64_t page_size;
        IdSet nodes;
        PlacementPart *parts; /* of our memory, as it is and not as it was asked for */
        size_t n_parts;

        uint32_t pid; /* of the VMM, and when it was started, in clock ticks: pids come again */
        uint64_t start_time;
        bool has_handle;

        uint32_t last_job; /* of the daemon: numbers of jobs do not come again */
        uint32_t job_id;   /* 0: none */
        char job_type[16];
        bool has_decision; /* the options that matter later on */
        Decision decision;
        VMFacts facts;
        uint32_t max_level;
        bool auto_slots;

        SpanSet built, let_go;
        uint64_t built_charge, built_slots_bytes;
        uint32_t built_level, heal_level;
        uint64_t charge_bytes;
        uint64_t populate_usec;

        PolicyOutput policy; /* its words point into this: */
        char words[POLICY_REASONS_MAX][RECORD_WORD_MAX];
} Record;

void record_done(Record *r);
/* -EFBIG: more of something than record_parse() would take; or -ENOMEM. */
int record_format(const Record *r, char **ret, size_t *ret_size);
/* -EBADMSG with "fault" set, or -ENOMEM. */
int record_parse(const char *text, size_t size, Record *ret, RecordFault *fault);
