/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The a{sv} of the bus methods. */

#include <sys/types.h>

#include "placement.h"
#include "policy.h"
#include "span.h"

typedef enum OptionUse {
        OPTION_RESERVE = 1 << 0,
        OPTION_ATTACH = 1 << 1,
        OPTION_BUILD = 1 << 2,
        OPTION_EXPLAIN = 1 << 3,
        OPTION_HEAL = 1 << 4,
        OPTION_SPLIT = 1 << 5, /* and collapse */
        OPTION_CALIBRATE = 1 << 6,
        OPTION_INCOMING = 1 << 7, /* with OPTION_RESERVE: a handoff */
} OptionUse;

typedef struct VMOptions {
        /* What rules match.  Explain only, and it belongs to the message; or of a VM that is adopted: what
         * the guest is called, or "".  No option of an attach.  Or of a handoff: what it is called here. */
        const char *name;
        uint64_t bytes;     /* Explain only */
        const char *cgroup; /* Reserve only; belongs to the message */
        pid_t pid;          /* not an option: who asks, or 0 */
        uint64_t lease;     /* nor this: by which a handoff knows its VM, or 0 */
        uint64_t page_size;
        bool has_nodes;
        IdSet nodes;
        bool has_cpus;
        IdSet cpus;
        PlacementPart parts[PLACEMENT_PARTS_MAX];
        size_t n_parts;
        NumaMode numa_mode;
        bool has_decision;
        Decision decision;
        VMFacts facts;
        bool has_warm;
        uint32_t max_level;
        bool auto_slots;
        bool warm;          /* memory that is zeroed already will do */
        uint64_t wait_usec; /* for pages, if there are too few */
        bool has_gpa, has_size;
        uint64_t gpa, size;
} VMOptions;

/* InvalidArgument for unknown keys, wrong types and values out of range. */
int options_read(sd_bus_message *m, OptionUse use, VMOptions *ret, sd_bus_error *error);
/* gpa and size, checked: > 0 if they are there, 0 if neither is. */
int options_get_span(const VMOptions *o, Span *ret, sd_bus_error *error);
