/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>

#include "args.h"
#include "qemu.h"
#include "qmp.h"
#include "tdp/tdp.h"

/* "run" failed by itself, as opposed to QEMU. */
#define EXIT_RUN_FAILED 125

/* Statistics for --stats-file: the last sight of the VM's properties while QEMU lived. */
struct run_stats {
        bool wanted;
        json_object *vm;
        uint64_t n_samples, built_bytes;
        uint64_t start_usec, end_usec; /* of the guest, as far as it is known */
        uint64_t next_usec;            /* when to look again */
        bool at_shutdown;              /* the last sight is from the guest's end */
};

void run_stats_init(struct run_stats *s, bool wanted);
void run_stats_done(struct run_stats *s);
void run_stats_guest_started(struct run_stats *s);
void run_stats_guest_ended(struct run_stats *s);
/* How long until the next look, in ms; -1 if none is wanted. */
int run_stats_due_msec(const struct run_stats *s);
void run_stats_sample(struct run_stats *s, struct tdp_ctx *ctx, struct tdp_vm *vm, struct qemu *qemu);
/* To the file of --stats-file, and to standard output with --json. */
int run_stats_output(const struct run_stats *s, const struct args *args, const struct qemu *qemu);
