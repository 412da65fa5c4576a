/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The verbs. */

#include <string.h>

#include "daemon.h"
#include "run.h"
#include "verbs.h"

#define RESERVE_OPTIONS                                                                                     \
        (OPT_BIT(OPT_MEMORY) | OPT_BIT(OPT_PAGE_SIZE) | OPT_BIT(OPT_NODES) | OPT_BIT(OPT_NUMA_MODE) |       \
         OPT_BIT(OPT_CPUS) | OPT_BIT(OPT_PARTS) | OPT_BIT(OPT_NAME) | OPT_BIT(OPT_NO_WARM) |                \
         DECIDE_OPTIONS | FACT_OPTIONS)
#define DECIDE_OPTIONS (OPT_BIT(OPT_DECISION) | OPT_BIT(OPT_VCPUS))
#define FACT_OPTIONS                                                                                        \
        (OPT_BIT(OPT_BALLOON) | OPT_BIT(OPT_FREE_PAGE_REPORTING) | OPT_BIT(OPT_DISCARD) |                   \
         OPT_BIT(OPT_CONFIDENTIAL) | OPT_BIT(OPT_VFIO_DEVICES) | OPT_BIT(OPT_VIOMMU) |                      \
         OPT_BIT(OPT_MIGRATIONS))
#define BUILD_OPTIONS (DECIDE_OPTIONS | OPT_BIT(OPT_MAX_LEVEL) | OPT_BIT(OPT_NO_WAIT))
#define RANGE_OPTIONS (OPT_BIT(OPT_RANGE) | OPT_BIT(OPT_MAX_LEVEL) | OPT_BIT(OPT_NO_WAIT))

#define HANDOFF_OPTIONS                                                                                     \
        (OPT_BIT(OPT_ENCODING) | OPT_BIT(OPT_OUTPUT) | OPT_BIT(OPT_ROLE) | OPT_BIT(OPT_DEADLINE) |          \
         OPT_BIT(OPT_PAGE_SIZES) | OPT_BIT(OPT_POST_COPY) | OPT_BIT(OPT_BYTES_LEFT) |                       \
         OPT_BIT(OPT_LOGGING) | OPT_BIT(OPT_SPLIT_LEAF))

#define MIGRATE_OPTIONS                                                                                     \
        (OPT_BIT(OPT_TO) | OPT_BIT(OPT_DATA_ADDRESS) | OPT_BIT(OPT_PORT) | OPT_BIT(OPT_POST_COPY) |         \
         OPT_BIT(OPT_DEADLINE) | OPT_BIT(OPT_BANDWIDTH) | OPT_BIT(OPT_DOWNTIME_LIMIT) |                     \
         OPT_BIT(OPT_PAGE_SIZES))

const struct verb verbs[] = {
        {
                        .name = "status",
                        .arguments = "",
                        .help = "The daemon, the kernel, and what is in use",
                        .failure = EXIT_USAGE,
                        .run = verb_status,
        },
        {
                        .name = "nodes",
                        .arguments = "",
                        .help = "NUMA nodes and their page pools",
                        .pager = true,
                        .failure = EXIT_USAGE,
                        .run = verb_nodes,
        },
        {
                        .name = "vms",
                        .arguments = "",
                        .help = "The VMs that tdpd knows",
                        .pager = true,
                        .failure = EXIT_USAGE,
                        .run = verb_vms,
        },
        {
                        .name = "show",
                        .arguments = "VM",
                        .help = "All about one VM",
                        .min_args = 1,
                        .max_args = 1,
                        .pager = true,
                        .failure = EXIT_USAGE,
                        .run = verb_show,
        },
        {
                        .name = "run",
                        .arguments = "--name=NAME --memory=SIZE [OPTIONS] -- QEMU [ARGUMENTS]",
                        .help = "Run QEMU on reserved memory, its mapping built before the guest starts",
                        .min_args = 0,
                        .max_args = -1,
                        .command = true,
                        .failure = EXIT_RUN_FAILED,
                        .run = verb_run,
                        .options = RESERVE_OPTIONS | BUILD_OPTIONS | OPT_BIT(OPT_NO_AUTO_SLOTS) |
                                   OPT_BIT(OPT_STATS_FILE) | OPT_BIT(OPT_WAIT) | OPT_BIT(OPT_INCOMING),
                        .notes = "Memory is reserved and populated, handed to QEMU (options are added to\n"
                                 "its command line), the mapping is built while the guest is stopped, and\n"
                                 "all is released when QEMU ends. With --no-wait the guest starts at once.\n"
                                 "Exit code: QEMU's; 128+N if signal N ended it; 125 if tdpctl or tdpd\n"
                                 "failed, 126 or 127 if QEMU could not be executed or found.",
        },
        {
                        .name = "attach",
                        .arguments = "NAME PID",
                        .help = "Adopt a running VM and build its mapping",
                        .min_args = 1,
                        .max_args = 2,
                        .failure = EXIT_USAGE,
                        .run = verb_attach,
                        .options = FACT_OPTIONS | BUILD_OPTIONS | OPT_BIT(OPT_NO_AUTO_SLOTS) |
                                   OPT_BIT(OPT_PID),
        },
        {
                        .name = "build",
                        .arguments = "VM",
                        .help = "Build a VM's mapping (again)",
                        .min_args = 1,
                        .max_args = 1,
                        .options = BUILD_OPTIONS,
                        .failure = EXIT_USAGE,
                        .run = verb_build,
        },
        {
                        .name = "heal",
                        .arguments = "VM",
                        .help = "Map again what was lost, now, as far as its memory is there",
                        .min_args = 1,
                        .max_args = 1,
                        .options = OPT_BIT(OPT_RANGE) | OPT_BIT(OPT_NO_WAIT),
                        .failure = EXIT_USAGE,
                        .run = verb_heal,
        },
        {
                        .name = "split",
                        .arguments = "VM",
                        .help = "Split large leaves, ahead of dirty logging",
                        .min_args = 1,
                        .max_args = 1,
                        .options = RANGE_OPTIONS,
                        .failure = EXIT_USAGE,
                        .run = verb_split,
                        .notes = "Leaves larger than --max-level (default: 4K) become smaller ones, in the\n"
                                 "background and while the guest runs. Nothing is unmapped.",
        },
        {
                        .name = "collapse",
                        .arguments = "VM",
                        .help = "Make large leaves again, the reverse of split",
                        .min_args = 1,
                        .max_args = 1,
                        .options = RANGE_OPTIONS,
                        .failure = EXIT_USAGE,
                        .run = verb_collapse,
        },
        {
                        .name = "release",
                        .arguments = "VM...",
                        .help = "Let go of VMs; running guests go on",
                        .min_args = 1,
                        .max_args = -1,
                        .failure = EXIT_USAGE,
                        .run = verb_release,
        },
        {
                        .name = "migrate",
                        .arguments = "VM --to=[USER@]HOST [OPTIONS] [-- QEMU [ARGUMENTS]]",
                        .help = "Move a VM of \"run\" to another host, its mapping built before data arrives",
                        .min_args = 1,
                        .max_args = -1,
                        .failure = EXIT_USAGE,
                        .run = verb_migrate,
                        .options = (RESERVE_OPTIONS & ~(OPT_BIT(OPT_NAME) | OPT_BIT(OPT_MEMORY))) |
                                   MIGRATE_OPTIONS,
                        .notes = "QEMU is started on HOST with the same command line, or with the one behind --,\n"
                                 "on memory that both tdpd have agreed on. Until the destination has taken the\n"
                                 "guest, Ctrl-C or any failure leaves it here as it was. Options for memory and\n"
                                 "decision are the destination's.\n"
                                 "Exit code: 1 if it failed and the guest goes on here; 4 if the guest is not,\n"
                                 "or may not be, here any more, and something is left to do (it is said what).",
        },
        {
                        .name = "incoming",
                        .arguments = "",
                        .help = "The far end of \"migrate\"",
                        .hidden = true,
                        .failure = EXIT_USAGE,
                        .run = verb_incoming,
        },
        {
                        .name = "handoff",
                        .arguments = "[CALL [VM|HANDOFF|FILE]]",
                        .help = "Messages of VMs that change host, for tools that carry them",
                        .max_args = 2,
                        .failure = EXIT_USAGE,
                        .run = verb_handoff,
                        .options = (RESERVE_OPTIONS & ~(OPT_BIT(OPT_NAME) | OPT_BIT(OPT_MEMORY))) |
                                   OPT_BIT(OPT_NO_WAIT) | HANDOFF_OPTIONS,
                        .notes = "Source:      offer VM, start HANDOFF, commit HANDOFF: each makes a message\n"
                                 "Destination: prepare [FILE]: takes the offer, makes the answer\n"
                                 "             arrived HANDOFF: post-copy has brought the rest\n"
                                 "Both:        deliver [FILE]: takes any other message, may have a reply\n"
                                 "             next HANDOFF: what this side has to say, if anything\n"
                                 "             cancel HANDOFF, forget HANDOFF, show HANDOFF, list\n"
                                 "HANDOFF is an id, its beginning, or the VM's name. FILE - or none is standard\n"
                                 "input. Nothing on standard output: there is no message.",
        },
        {
                        .name = "explain",
                        .arguments = "--memory=SIZE [OPTIONS]",
                        .help = "What would be decided for such a VM, and why",
                        .options = RESERVE_OPTIONS,
                        .failure = EXIT_USAGE,
                        .run = verb_explain,
        },
        {
                        .name = "calibrate",
                        .arguments = "",
                        .help = "Measure what mapping costs on this host, for the decisions",
                        .options = OPT_BIT(OPT_NO_WAIT),
                        .failure = EXIT_USAGE,
                        .run = verb_calibrate,
        },
        {
                        .name = "pools",
                        .arguments = "[set|grow|shrink NODE SIZE PAGES]",
                        .help = "Pools of huge pages: their state, their size, and who holds them",
                        .max_args = 4,
                        .pager = true,
                        .options = OPT_BIT(OPT_ALLOW_PARTIAL) | OPT_BIT(OPT_DROP_CACHES) |
                                   OPT_BIT(OPT_HOLDERS) | OPT_BIT(OPT_NO_WAIT),
                        .failure = EXIT_USAGE,
                        .run = verb_pools,
                        .notes = "With set, grow or shrink the pool of that node and page size gets PAGES\n"
                                 "pages, or so many more or less. If it falls short, the old number is\n"
                                 "restored. Pages in use or promised are never taken away.",
        },
        {
                        .name = "warm",
                        .arguments = "",
                        .help = "Memory that is kept zeroed for VMs to come",
                        .pager = true,
                        .failure = EXIT_USAGE,
                        .run = verb_warm,
        },
        {
                        .name = "caps",
                        .arguments = "",
                        .help = "What this host's kernel can do",
                        .failure = EXIT_USAGE,
                        .run = verb_caps,
        },
        {
                        .name = "jobs",
                        .arguments = "",
                        .help = "What tdpd is busy with",
                        .pager = true,
                        .failure = EXIT_USAGE,
                        .run = verb_jobs,
        },
        {
                        .name = "cancel",
                        .arguments = "JOB...",
                        .help = "Cancel jobs, by their number",
                        .min_args = 1,
                        .max_args = -1,
                        .failure = EXIT_USAGE,
                        .run = verb_cancel,
        },
        {
                        .name = "doctor",
                        .arguments = "",
                        .help = "What of this host stands in the way, and what to do",
                        .options = OPT_BIT(OPT_ROOT),
                        .failure = EXIT_USAGE,
                        .run = verb_doctor,
                        .notes = "Exit code: 0 if there is no problem, 1 if there is. Notes are no problems.",
        },
        {
                        .name = "metrics",
                        .arguments = "",
                        .help = "Pools and VMs as OpenMetrics text, to be scraped",
                        .failure = EXIT_USAGE,
                        .run = verb_metrics,
        },
        {
                        .name = "top",
                        .arguments = "",
                        .help = "Pools and VMs, live",
                        .options = OPT_BIT(OPT_DELAY) | OPT_BIT(OPT_ITERATIONS) | OPT_BIT(OPT_BATCH),
                        .failure = EXIT_USAGE,
                        .run = verb_top,
                        .notes = "Keys: q ends it, space takes a sample now, r turns the order round; arrows, page\n"
                                 "up and down, home and end scroll. Order: n name, m memory, M mapped (least\n"
                                 "first), p pinned, h holes, f faults per second, j VMs with a job first.\n"
                                 "Bars: # leased by VMs of tdpd, + warm, = used by others, . free.",
        },
};

const size_t n_verbs = ELEMENTSOF(verbs);

const struct verb *verb_find(const char *name) {
        for (size_t i = 0; i < n_verbs; i++)
                if (strcmp(verbs[i].name, name) == 0)
                        return &verbs[i];
        return NULL;
}
