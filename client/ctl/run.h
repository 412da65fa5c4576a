/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>

#include "args.h"
#include "incoming.h"
#include "qemu-args.h"
#include "qemu.h"
#include "qmp.h"
#include "runtime.h"
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

/* A run, from the reservation to the release. */
struct run {
        const struct args *args;
        struct qemu_args scanned;
        struct tdp_ctx *ctx; /* NULL: without tdpd, as the destination of a migration */
        struct tdp_vm *vm;
        struct qemu qemu;
        struct qmp qmp;
        struct run_stats stats;
        struct runtime runtime;
        struct incoming incoming;
        json_object *control; /* what others will need to know */
        int watch_fd;         /* tells when a migration begins */
        bool strict;          /* the guest must not run without its mapping */
        bool is_incoming;     /* the guest comes from elsewhere */
        bool looks_after;     /* there may be a migration that somebody has left */
        bool doubt_told;
        uint64_t guard_usec; /* when to look again */
        int signo;           /* the signal that ended the run before its guest started, or 0 */
};

/* run-qemu.c: starts QEMU on that memory, and brings it up: attached and built. Exit codes, EXIT_OK to go
 * on. */
int run_start(struct run *run, const struct qemu_part *parts, size_t n_parts);
int run_bring_up(struct run *run);

/* run-control.c: lets others control QEMU. Without a place for that it goes on, but for a guest that is to
 * come: nobody could let it run, or end it. */
int run_control_open(struct run *run);
void run_control_describe(struct run *run, const struct qemu_part *parts, size_t n_parts);
void run_control_publish(struct run *run); /* once QEMU answers */
/* Something has been made in the folder of the VM. */
void run_control_noticed(struct run *run);
void run_control_close(struct run *run);

/* run-guard.c: looks after a migration, should its tdpctl die. How long until the next look, in ms; -1:
 * none. */
int run_guard(struct run *run);
/* QEMU has ended before the guest was here. True: the handoff is, or was, called off. */
bool run_guard_cancel(struct run *run);

/* run-commit.c: the destination's part of a commit: what is needed for it, and when it may be done. */
void run_commit_prepare(struct run *run);
void run_commit(struct run *run);
/* As far as its tdpd has told. */
bool run_is_owner(const struct run *run);
