/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "args.h"
#include "cleanup.h"
#include "tdp/tdp.h"

/* A verb returns tdpctl's exit code. The table in verbs.c is the only list of them. */
struct verb {
        const char *name;
        const char *arguments;  /* for the help text */
        const char *help;       /* one line */
        int min_args, max_args; /* -1: any number */
        uint64_t options;       /* OPT_BIT()s, apart from the global ones */
        bool command;           /* its arguments are another program's command line */
        bool pager;
        bool hidden; /* what tdpctl calls itself */
        int failure; /* exit code if it does not come to run */
        int (*run)(const struct args *args);
        const char *notes; /* further lines of help, or NULL */
};

extern const struct verb verbs[];
extern const size_t n_verbs;

const struct verb *verb_find(const char *name);

int verb_status(const struct args *args);
int verb_caps(const struct args *args);
int verb_nodes(const struct args *args);
int verb_vms(const struct args *args);
int verb_jobs(const struct args *args);
int verb_cancel(const struct args *args);
int verb_show(const struct args *args);
int verb_attach(const struct args *args);
int verb_build(const struct args *args);
int verb_heal(const struct args *args);
int verb_split(const struct args *args);
int verb_collapse(const struct args *args);
int verb_release(const struct args *args);
int verb_handoff(const struct args *args);
int verb_migrate(const struct args *args);
int verb_incoming(const struct args *args);
int verb_doctor(const struct args *args);
int verb_metrics(const struct args *args);
int verb_top(const struct args *args);
int verb_warm(const struct args *args);
int verb_calibrate(const struct args *args);
int verb_pools(const struct args *args);
int verb_explain(const struct args *args);
int verb_run(const struct args *args);

DEFINE_CLEANUP_FUNC(struct tdp_ctx *, tdp_unref);
DEFINE_CLEANUP_FUNC(struct tdp_value *, tdp_value_free);
DEFINE_CLEANUP_FUNC(struct tdp_options *, tdp_options_free);
DEFINE_CLEANUP_FUNC(struct tdp_plan *, tdp_plan_free);
DEFINE_CLEANUP_FUNC(struct tdp_vm *, tdp_vm_free);
DEFINE_CLEANUP_FUNC(struct tdp_node *, tdp_node_free);
DEFINE_CLEANUP_FUNC(struct tdp_job *, tdp_job_free);
DEFINE_CLEANUP_FUNC(struct tdp_memory *, tdp_memory_free);
DEFINE_CLEANUP_FUNC(struct tdp_handoff *, tdp_handoff_free);
DEFINE_CLEANUP_FUNC(struct tdp_message *, tdp_message_free);

/* verb-show.c: the long form of a VM, for people or as JSON. */
int show_vm(const struct args *args, const struct tdp_vm *vm);

/* verb-vm.c: waits for the job's end, or says its number if nobody is to wait ("vm" is its VM's name, or
 * NULL). An exit code, or -1 if it has ended well. */
int job_wait(const struct args *args, struct tdp_ctx *ctx, struct tdp_job *job, const char *vm);
/* Goes on with the VM, refreshed: as JSON, or -1 if there is something to say to people about it. */
int job_finish(const struct args *args, struct tdp_ctx *ctx, struct tdp_vm *vm, struct tdp_job *job);

/* verb-show.c: "12 of 2M, 3 of 4K". */
void print_leaves(const struct tdp_vm *vm);

/* verb-explain.c: the options that were given, as a request's. Each call takes those that it knows. */
enum request {
        REQUEST_RESERVE,
        REQUEST_ATTACH,
        REQUEST_BUILD,
        REQUEST_RANGE, /* heal, split, collapse */
};
int request_options(const struct args *args, enum request request, struct tdp_options **ret);
