/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* status and caps: the daemon and the kernel. */

#include <string.h>

#include "daemon.h"
#include "json.h"
#include "log.h"
#include "size.h"
#include "verbs.h"

struct usage {
        uint64_t n_vms, n_jobs, n_nodes, bytes;
};

static int usage_read(struct tdp_ctx *ctx, struct usage *ret) {
        _cleanup_(tdp_vm_freep) struct tdp_vm *vms = NULL;
        _cleanup_(tdp_node_freep) struct tdp_node *nodes = NULL;
        _cleanup_(tdp_job_freep) struct tdp_job *jobs = NULL;
        struct tdp_vm *vm;
        struct tdp_node *node;
        struct tdp_job *job;
        struct usage u = {};
        int r;

        r = tdp_list_vms(ctx, &vms);
        if (r >= 0)
                r = tdp_list_nodes(ctx, &nodes);
        if (r >= 0)
                r = tdp_list_jobs(ctx, &jobs);
        if (r < 0)
                return r;

        tdp_vm_foreach (vms, vm) {
                u.n_vms++;
                u.bytes += tdp_vm_get_bytes(vm);
        }
        tdp_node_foreach (nodes, node)
                u.n_nodes++;
        tdp_job_foreach (jobs, job)
                u.n_jobs++;

        *ret = u;
        return 0;
}

static void print_words(const char *label, const struct tdp_value *list) {
        const struct tdp_value *v;

        printf("%s", label);
        if (!tdp_value_get_first(list))
                printf(" -");
        tdp_value_foreach (list, v)
                printf(" %s", tdp_value_get_string(v) ?: "?");
        putchar('\n');
}

/* "npt, ABI 1, leaves up to 1G", or why there is nothing. */
static void print_kernel(const char *label, const struct tdp_value *kernel) {
        const char *error = tdp_value_get_string(tdp_value_find(kernel, "error"));
        const char *mode = tdp_value_get_string(tdp_value_find(kernel, "mode"));
        char buf[SIZE_TEXT_MAX];

        if (!tdp_value_get_bool(tdp_value_find(kernel, "device"))) {
                printf("%s no mappings can be built: %s\n", label,
                       error && error[0] ? error : "there is no /dev/kvm-gtdp");
                return;
        }
        printf("%s %s, ABI %llu, leaves up to %s\n", label, mode ?: "unknown mode",
               (unsigned long long) tdp_value_get_uint(tdp_value_find(kernel, "abi-version")),
               size_format(tdp_value_get_uint(tdp_value_find(kernel, "max-leaf")), buf));
        if (error && error[0])
                printf("%s %s\n", label, error);
}

/* What a healthy host has none of: memory that others still hold, and what tdpd could not make out. */
static void print_leftovers(const struct tdp_value *manager) {
        const struct tdp_value *v, *name, *bytes, *pid, *what;
        char buf[SIZE_TEXT_MAX];

        tdp_value_foreach (tdp_value_find(manager, "Draining"), v) {
                const char *before = ": ";

                name = tdp_value_get_first(v);
                bytes = tdp_value_get_next(name);
                printf("drains: %s of %s, which others still hold",
                       size_format(tdp_value_get_uint(bytes), buf), tdp_value_get_string(name) ?: "?");
                tdp_value_foreach (tdp_value_get_next(bytes), pid) {
                        printf("%s%" PRIu64, before, tdp_value_get_uint(pid));
                        before = ", ";
                }
                putchar('\n');
        }
        tdp_value_foreach (tdp_value_find(manager, "Quarantine"), v) {
                what = tdp_value_get_first(v);
                printf("  left: %s, as %s\n", tdp_value_get_string(what) ?: "?",
                       tdp_value_get_string(tdp_value_get_next(tdp_value_get_next(what))) ?: "?");
        }
}

int verb_status(const struct args *args) {
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        _cleanup_(tdp_value_freep) struct tdp_value *manager = NULL;
        struct usage u = {};
        char buf[SIZE_TEXT_MAX];
        int r;

        r = daemon_connect(args, &ctx);
        if (r < 0)
                return EXIT_NO_DAEMON;

        r = tdp_get_manager(ctx, &manager);
        if (r >= 0)
                r = usage_read(ctx, &u);
        if (r < 0)
                return daemon_failed(ctx, r);

        if (args->json != JSON_OFF) {
                json_object *o = json_from_value(manager);

                if (o) {
                        json_object_object_del(o, "warm"); /* "warm" has them */
                        json_object_object_del(o, "warm_bytes");
                        json_object_object_del(o, "draining_bytes"); /* "draining" has more */
                        json_add_uint(o, "vms", u.n_vms);
                        json_add_uint(o, "jobs", u.n_jobs);
                        json_add_uint(o, "nodes", u.n_nodes);
                        json_add_uint(o, "bytes", u.bytes);
                }
                return json_print(args, o) < 0 ? EXIT_FAILED : EXIT_OK;
        }

        printf("  tdpd: version %s\n",
               tdp_value_get_string(tdp_value_find(manager, "Version")) ?: "unknown");
        print_kernel("kernel:", tdp_value_find(manager, "Kernel"));
        printf("policy: %s\n", tdp_value_get_string(tdp_value_find(manager, "Policy")) ?: "-");
        printf("   VMs: %llu", (unsigned long long) u.n_vms);
        printf(u.n_vms > 0 ? ", with %s of memory\n" : "\n", size_format(u.bytes, buf));
        printf(" nodes: %llu\n", (unsigned long long) u.n_nodes);
        printf("  jobs: %llu\n", (unsigned long long) u.n_jobs);
        print_leftovers(manager);
        return EXIT_OK;
}

int verb_caps(const struct args *args) {
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        _cleanup_(tdp_value_freep) struct tdp_value *manager = NULL;
        const struct tdp_value *kernel;
        int r;

        r = daemon_connect(args, &ctx);
        if (r < 0)
                return EXIT_NO_DAEMON;

        r = tdp_get_manager(ctx, &manager);
        if (r < 0)
                return daemon_failed(ctx, r);

        kernel = tdp_value_find(manager, "Kernel");
        if (args->json != JSON_OFF) {
                json_object *o = kernel ? json_from_value(kernel) : json_object_new_object();

                return json_print(args, o) < 0 ? EXIT_FAILED : EXIT_OK;
        }

        print_kernel("kernel:  ", kernel);
        print_words("features:", tdp_value_find(kernel, "features"));
        print_words("tdpd:    ", tdp_value_find(manager, "Features"));
        return EXIT_OK;
}
