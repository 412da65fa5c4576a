/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The a{sv} of the bus methods. */

#include "placement.h"
#include "policy.h"

typedef enum OptionUse {
        OPTION_RESERVE = 1 << 0,
        OPTION_ATTACH = 1 << 1,
        OPTION_BUILD = 1 << 2,
        OPTION_EXPLAIN = 1 << 3,
} OptionUse;

typedef struct VMOptions {
        const char *name; /* Explain only; belongs to the message */
        uint64_t bytes;   /* Explain only */
        uint64_t page_size;
        bool has_nodes;
        IdSet nodes;
        NumaMode numa_mode;
        bool has_decision;
        Decision decision;
        uint32_t vcpus;
        uint32_t max_level;
        bool auto_slots;
} VMOptions;

/* InvalidArgument for unknown keys, wrong types and values out of range. */
int options_read(sd_bus_message *m, OptionUse use, VMOptions *ret, sd_bus_error *error);
