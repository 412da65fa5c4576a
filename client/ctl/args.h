/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What the command line says: one option table for all verbs. */

enum json_mode {
        JSON_OFF,
        JSON_SHORT,
        JSON_PRETTY,
};

enum opt {
        OPT_HELP,
        OPT_VERSION,
        OPT_HOST,
        OPT_JSON,
        OPT_NO_PAGER,
        OPT_NO_LEGEND,
        OPT_QUIET,
        OPT_DEBUG,
        OPT_NAME,
        OPT_MEMORY,
        OPT_PAGE_SIZE,
        OPT_NODES,
        OPT_NUMA_MODE,
        OPT_CPUS,
        OPT_PARTS,
        OPT_DECISION,
        OPT_VCPUS,
        OPT_BALLOON,
        OPT_FREE_PAGE_REPORTING,
        OPT_DISCARD,
        OPT_CONFIDENTIAL,
        OPT_VFIO_DEVICES,
        OPT_VIOMMU,
        OPT_MIGRATIONS,
        OPT_NO_WARM,
        OPT_WAIT,
        OPT_MAX_LEVEL,
        OPT_NO_AUTO_SLOTS,
        OPT_PID,
        OPT_NO_WAIT,
        OPT_STATS_FILE,
        OPT_RANGE,
        OPT_ROOT,
        OPT_DELAY,
        OPT_ITERATIONS,
        OPT_BATCH,
        OPT_ALLOW_PARTIAL,
        OPT_DROP_CACHES,
        OPT_HOLDERS,
        OPT_ENCODING,
        OPT_OUTPUT,
        OPT_ROLE,
        OPT_DEADLINE,
        OPT_PAGE_SIZES,
        OPT_POST_COPY,
        OPT_BYTES_LEFT,
        OPT_LOGGING,
        OPT_SPLIT_LEAF,
        OPT_TO,
        OPT_DATA_ADDRESS,
        OPT_PORT,
        OPT_BANDWIDTH,
        OPT_DOWNTIME_LIMIT,
        OPT_INCOMING,
        _OPT_MAX,
};

_Static_assert(_OPT_MAX <= 64, "options are bits of 64");
#define OPT_BIT(opt) (UINT64_C(1) << (opt))

struct args {
        const char *host;
        enum json_mode json;
        bool help, version, no_pager, no_legend, quiet, debug;

        const char *name, *nodes, *numa_mode, *cpus, *parts, *decision, *stats_file, *root;
        const char *encoding, *output, *role, *page_sizes, *logging; /* handoff */
        const char *to, *data_address, *incoming;                    /* migrate */
        uint64_t memory, page_size, bytes_left, split_leaf, bandwidth;
        struct args_range {
                uint64_t gpa, size;
        } range;
        uint64_t delay_usec, wait_usec;
        uint32_t vcpus, max_level, pid, iterations, vfio_devices, migrations;
        uint32_t deadline, port, downtime_limit;
        bool balloon, free_page_reporting, discard, confidential, viommu, no_warm;
        bool allow_partial, drop_caches, holders, post_copy;
        bool no_auto_slots, no_wait, batch;

        uint64_t given;    /* OPT_BIT()s */
        char **positional; /* NULL-terminated, points into argv */
        int n_positional;
};

static inline bool args_given(const struct args *args, enum opt opt) {
        return args->given & OPT_BIT(opt);
}

/*
 * Reads global options up to the verb. Returns the verb's index in argv, argc if there is none, or a
 * negative errno after it has said what is wrong.
 */
int args_parse_global(struct args *args, int argc, char **argv);

/*
 * Reads the rest; argv[0] is the verb. Options outside of the mask are refused. command: the positional
 * arguments are another program's command line, and what follows the first one is not looked at.
 */
int args_parse_verb(struct args *args, int argc, char **argv, uint64_t allowed, bool command);

/* The lines of --help for the options of the mask. */
void args_print_help(FILE *f, uint64_t mask);

/* The name of the first option of the mask, which has at least one. */
const char *args_option_name(uint64_t mask);

/* All global options. */
uint64_t args_global_mask(void);
