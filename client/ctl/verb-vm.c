/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* attach, build, heal, split, collapse, release: what is done with running VMs. */

#include "daemon.h"
#include "json.h"
#include "log.h"
#include "progress.h"
#include "signals.h"
#include "size.h"
#include "verbs.h"

int job_wait(const struct args *args, struct tdp_ctx *ctx, struct tdp_job *job, const char *vm) {
        struct progress progress;
        int r;

        if (args->no_wait) {
                if (args->json != JSON_OFF) {
                        json_object *o = json_object_new_object();

                        if (vm)
                                json_add_string(o, "name", vm);
                        json_add_uint(o, "job", tdp_job_get_id(job));
                        return json_print(args, o) < 0 ? EXIT_FAILED : EXIT_OK;
                }
                if (!args->quiet)
                        printf("Job %u is under way; \"tdpctl jobs\" shows it.\n", tdp_job_get_id(job));
                return EXIT_OK;
        }

        progress_init(&progress, args);
        r = progress_wait(&progress, job);
        if (r < 0) {
                int code = daemon_failed(ctx, r);

                return progress.signo > 0 ? 128 + progress.signo : code;
        }
        return -1;
}

int job_finish(const struct args *args, struct tdp_ctx *ctx, struct tdp_vm *vm, struct tdp_job *job) {
        int r;

        r = job_wait(args, ctx, job, tdp_vm_get_name(vm));
        if (r >= 0)
                return r;
        r = tdp_vm_refresh(vm);
        if (r < 0)
                return daemon_failed(ctx, r);
        if (args->json != JSON_OFF)
                return show_vm(args, vm);
        return args->quiet ? EXIT_OK : -1;
}

static uint64_t get(const struct tdp_vm *vm, const char *key) {
        return tdp_value_get_uint(tdp_value_find(tdp_vm_get_properties(vm), key));
}

/* The job is under way: wait for its end, then show what came of it. */
static int finish(const struct args *args, struct tdp_ctx *ctx, struct tdp_vm *vm, struct tdp_job *job) {
        char built[SIZE_TEXT_MAX];
        int r;

        r = job_finish(args, ctx, vm, job);
        if (r >= 0)
                return r;

        /* Firmware and video memory are built, too: it may be more than the VM has. */
        printf("%s: %s, %s built\n", tdp_vm_get_name(vm), tdp_vm_get_state(vm),
               size_format(get(vm, "BuiltBytes"), built));
        return EXIT_OK;
}

/* The pid may be the second argument or an option, not both. */
static int attach_pid(const struct args *args, uint32_t *ret) {
        uint64_t pid = args->pid;

        if (args->n_positional == 2 && args_given(args, OPT_PID))
                return log_error(-EINVAL, "The pid is given twice: \"%s\" and --pid=%u.",
                                 args->positional[1], args->pid);
        if (args->n_positional < 2 && !args_given(args, OPT_PID))
                return log_error(-EINVAL, "Which process runs the VM? Give its pid: tdpctl attach %s PID",
                                 args->positional[0]);
        if (args->n_positional == 2 && uint_parse(args->positional[1], INT32_MAX, &pid) < 0)
                return log_error(-EINVAL, "\"%s\" is not a pid: a number from 1 to %d is.",
                                 args->positional[1], INT32_MAX);
        if (pid == 0)
                return log_error(-EINVAL, "0 is not the pid of a process.");

        *ret = (uint32_t) pid;
        return 0;
}

int verb_attach(const struct args *args) {
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        _cleanup_(tdp_vm_freep) struct tdp_vm *vm = NULL;
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;
        uint32_t pid = 0;
        int r;

        if (attach_pid(args, &pid) < 0)
                return EXIT_USAGE;
        if (daemon_connect(args, &ctx) < 0)
                return EXIT_NO_DAEMON;
        if (request_options(args, REQUEST_ATTACH, &options) < 0)
                return EXIT_FAILED;

        signals_block();
        r = tdp_attach_pid(ctx, args->positional[0], pid, options, &vm, &job);
        if (r < 0)
                return daemon_failed(ctx, r);

        return finish(args, ctx, vm, job);
}

int verb_build(const struct args *args) {
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        _cleanup_(tdp_vm_freep) struct tdp_vm *vm = NULL;
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;
        int r;

        if (daemon_connect(args, &ctx) < 0)
                return EXIT_NO_DAEMON;
        if (request_options(args, REQUEST_BUILD, &options) < 0)
                return EXIT_FAILED;

        r = tdp_get_vm(ctx, args->positional[0], &vm);
        if (r < 0)
                return daemon_failed(ctx, r);

        signals_block();
        r = tdp_vm_build(vm, options, &job);
        if (r < 0)
                return daemon_failed(ctx, r);

        return finish(args, ctx, vm, job);
}

typedef int (*start_t)(struct tdp_vm *vm, const struct tdp_options *options, struct tdp_job **ret_job);

static int run_range_job(const struct args *args, start_t start) {
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        _cleanup_(tdp_vm_freep) struct tdp_vm *vm = NULL;
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;
        char holes[SIZE_TEXT_MAX];
        int r;

        if (daemon_connect(args, &ctx) < 0)
                return EXIT_NO_DAEMON;
        if (request_options(args, REQUEST_RANGE, &options) < 0)
                return EXIT_FAILED;
        r = tdp_get_vm(ctx, args->positional[0], &vm);
        if (r < 0)
                return daemon_failed(ctx, r);

        signals_block();
        r = start(vm, options, &job);
        if (r < 0)
                return daemon_failed(ctx, r);
        r = job_finish(args, ctx, vm, job);
        if (r >= 0)
                return r;

        printf("%s: leaves ", tdp_vm_get_name(vm));
        print_leaves(vm);
        printf("; holes %s\n", get(vm, "Holes") > 0 ? size_format(get(vm, "Holes"), holes) : "none");
        return EXIT_OK;
}

int verb_heal(const struct args *args) {
        return run_range_job(args, tdp_vm_heal);
}

int verb_split(const struct args *args) {
        return run_range_job(args, tdp_vm_split);
}

int verb_collapse(const struct args *args) {
        return run_range_job(args, tdp_vm_collapse);
}

static int release_one(const struct args *args, struct tdp_ctx *ctx, const char *name, json_object *array) {
        _cleanup_(tdp_vm_freep) struct tdp_vm *vm = NULL;
        json_object *o;
        int r;

        r = tdp_get_vm(ctx, name, &vm);
        if (r >= 0)
                r = tdp_vm_release(vm);
        if (r < 0)
                return daemon_failed(ctx, r);

        o = json_object_new_object();
        json_add_string(o, "name", name);
        json_object_object_add(o, "released", json_object_new_boolean(true));
        json_object_array_add(array, o);
        return EXIT_OK;
}

int verb_release(const struct args *args) {
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        json_object *array;
        int code = EXIT_OK;

        if (daemon_connect(args, &ctx) < 0)
                return EXIT_NO_DAEMON;

        array = json_object_new_array();
        for (int i = 0; i < args->n_positional; i++) {
                int one = release_one(args, ctx, args->positional[i], array);

                if (one != EXIT_OK)
                        code = one;
        }

        if (args->json != JSON_OFF)
                (void) json_print(args, array);
        else
                json_object_put(array);
        return code;
}
