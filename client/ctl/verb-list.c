/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* nodes, vms, jobs: lists; and cancel, which takes what jobs shows. */

#include <string.h>

#include "daemon.h"
#include "json.h"
#include "log.h"
#include "size.h"
#include "table.h"
#include "verbs.h"

DEFINE_CLEANUP_FUNC(struct table *, table_free);

#define NUMBER_MAX 24

static const char *number(uint64_t n, char buf[static NUMBER_MAX]) {
        (void) snprintf(buf, NUMBER_MAX, "%llu", (unsigned long long) n);
        return buf;
}

static int print_table(const struct args *args, struct table *t, int r, const char *noun) {
        if (r < 0) {
                (void) log_error(r, "Out of memory.");
                return EXIT_FAILED;
        }
        table_print(t, stdout, !args->no_legend, noun);
        return EXIT_OK;
}

/* One line for each pool; a node without any has one line, too. */
static int add_node(struct table *t, const struct tdp_node *node) {
        const struct tdp_value *p = tdp_node_get_properties(node), *pools = tdp_value_find(p, "Pools"),
                               *pool;
        char id[NUMBER_MAX], total[SIZE_TEXT_MAX], free_bytes[SIZE_TEXT_MAX], page[SIZE_TEXT_MAX],
                        n[5][NUMBER_MAX];
        const char *cells[10] = {
                number(tdp_node_get_id(node), id),
                tdp_value_get_string(tdp_value_find(p, "Cpus")),
                size_format(tdp_value_get_uint(tdp_value_find(p, "MemoryTotal")), total),
                size_format(tdp_value_get_uint(tdp_value_find(p, "MemoryFree")), free_bytes),
        };
        int r;

        if (!tdp_value_get_first(pools))
                return table_add(t, cells);

        tdp_value_foreach (pools, pool) {
                cells[4] = size_format(tdp_value_get_uint(tdp_value_at(pool, 0)), page);
                for (unsigned i = 0; i < 5; i++)
                        cells[5 + i] = number(tdp_value_get_uint(tdp_value_at(pool, 1 + i)), n[i]);
                r = table_add(t, cells);
                if (r < 0)
                        return r;
        }
        return 0;
}

int verb_nodes(const struct args *args) {
        static const char *const headers[] = {
                "NODE", "CPUS", "MEMORY", "FREE", "POOL", "PAGES", "UNUSED", "RESERVED", "SURPLUS", "LEASED",
        };
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        _cleanup_(tdp_node_freep) struct tdp_node *nodes = NULL;
        _cleanup_(table_freep) struct table *t = NULL;
        struct tdp_node *node;
        int r;

        r = daemon_connect(args, &ctx);
        if (r < 0)
                return EXIT_NO_DAEMON;

        r = tdp_list_nodes(ctx, &nodes);
        if (r < 0)
                return daemon_failed(ctx, r);

        if (args->json != JSON_OFF) {
                json_object *array = json_object_new_array();

                tdp_node_foreach (nodes, node)
                        json_object_array_add(array, json_from_node(node));
                return json_print(args, array) < 0 ? EXIT_FAILED : EXIT_OK;
        }

        r = table_new(&t, headers, ELEMENTSOF(headers));
        for (size_t i = 2; r >= 0 && i < ELEMENTSOF(headers); i++)
                table_align_right(t, i);
        for (node = nodes; r >= 0 && node; node = tdp_node_get_next(node))
                r = add_node(t, node);
        return print_table(args, t, r, "pool");
}

int verb_vms(const struct args *args) {
        static const char *const headers[] = { "NAME", "STATE", "PID", "MEMORY" };
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        _cleanup_(tdp_vm_freep) struct tdp_vm *vms = NULL;
        _cleanup_(table_freep) struct table *t = NULL;
        struct tdp_vm *vm;
        int r;

        r = daemon_connect(args, &ctx);
        if (r < 0)
                return EXIT_NO_DAEMON;

        r = tdp_list_vms(ctx, &vms);
        if (r < 0)
                return daemon_failed(ctx, r);

        if (args->json != JSON_OFF) {
                json_object *array = json_object_new_array();

                tdp_vm_foreach (vms, vm)
                        json_object_array_add(array, json_from_vm(vm));
                return json_print(args, array) < 0 ? EXIT_FAILED : EXIT_OK;
        }

        r = table_new(&t, headers, ELEMENTSOF(headers));
        if (r >= 0) {
                table_align_right(t, 2);
                table_align_right(t, 3);
        }
        for (vm = vms; r >= 0 && vm; vm = tdp_vm_get_next(vm)) {
                char pid[NUMBER_MAX], bytes[SIZE_TEXT_MAX];

                r = table_add(t, (const char *const[]){
                                                 tdp_vm_get_name(vm),
                                                 tdp_vm_get_state(vm),
                                                 tdp_vm_get_pid(vm) > 0 ? number(tdp_vm_get_pid(vm), pid)
                                                                        : NULL,
                                                 size_format(tdp_vm_get_bytes(vm), bytes),
                                 });
        }
        return print_table(args, t, r, "VM");
}

int verb_jobs(const struct args *args) {
        static const char *const headers[] = { "JOB", "TYPE", "VM", "STATE", "PHASE", "DONE", "TOTAL" };
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        _cleanup_(tdp_job_freep) struct tdp_job *jobs = NULL;
        _cleanup_(table_freep) struct table *t = NULL;
        struct tdp_job *job;
        int r;

        r = daemon_connect(args, &ctx);
        if (r < 0)
                return EXIT_NO_DAEMON;

        r = tdp_list_jobs(ctx, &jobs);
        if (r < 0)
                return daemon_failed(ctx, r);

        /* A job that ends meanwhile is listed as it was, without progress. */
        tdp_job_foreach (jobs, job)
                (void) tdp_job_refresh(job);

        if (args->json != JSON_OFF) {
                json_object *array = json_object_new_array();

                tdp_job_foreach (jobs, job)
                        json_object_array_add(array, json_from_job(job));
                return json_print(args, array) < 0 ? EXIT_FAILED : EXIT_OK;
        }

        r = table_new(&t, headers, ELEMENTSOF(headers));
        if (r >= 0) {
                table_align_right(t, 5);
                table_align_right(t, 6);
        }
        for (job = jobs; r >= 0 && job; job = tdp_job_get_next(job)) {
                char id[NUMBER_MAX], done[SIZE_TEXT_MAX], total[SIZE_TEXT_MAX];

                r = table_add(t, (const char *const[]){
                                                 number(tdp_job_get_id(job), id),
                                                 tdp_job_get_type(job),
                                                 tdp_job_get_vm_name(job),
                                                 tdp_job_get_state(job),
                                                 tdp_job_get_phase(job),
                                                 size_format(tdp_job_get_done(job), done),
                                                 size_format(tdp_job_get_total(job), total),
                                 });
        }
        return print_table(args, t, r, "job");
}

int verb_cancel(const struct args *args) {
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        json_object *array;
        int code = EXIT_OK;

        for (int i = 0; i < args->n_positional; i++) {
                uint64_t id;

                if (uint_parse(args->positional[i], UINT32_MAX, &id) < 0) {
                        (void) log_error(0, "\"%s\" is not the number of a job. \"tdpctl jobs\" shows them.",
                                         args->positional[i]);
                        return EXIT_USAGE;
                }
        }

        if (daemon_connect(args, &ctx) < 0)
                return EXIT_NO_DAEMON;

        array = json_object_new_array();
        for (int i = 0; i < args->n_positional; i++) {
                json_object *o;
                uint64_t id = 0;
                int r;

                (void) uint_parse(args->positional[i], UINT32_MAX, &id);
                r = tdp_cancel_job(ctx, (uint32_t) id);
                if (r < 0) {
                        code = daemon_failed(ctx, r);
                        continue;
                }
                o = json_object_new_object();
                json_add_uint(o, "id", id);
                json_object_object_add(o, "canceled", json_object_new_boolean(true));
                json_object_array_add(array, o);
        }

        if (args->json != JSON_OFF)
                (void) json_print(args, array);
        else
                json_object_put(array);
        return code;
}
