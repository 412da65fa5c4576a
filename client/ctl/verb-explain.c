/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* explain: decisions without deeds; and the options of requests, which all of them share. */

#include <time.h>

#include "daemon.h"
#include "json.h"
#include "log.h"
#include "size.h"
#include "verbs.h"

/* What of the VM decisions depend on.  What was not said is not known. */
static int fact_options(const struct args *args, struct tdp_options *o) {
        static const struct {
                enum opt opt;
                const char *key;
        } flags[] = {
                { OPT_BALLOON, "balloon" }, { OPT_FREE_PAGE_REPORTING, "free-page-reporting" },
                { OPT_DISCARD, "discard" }, { OPT_CONFIDENTIAL, "confidential" },
                { OPT_VIOMMU, "viommu" },
        };
        int r = 0;

        for (size_t i = 0; i < ELEMENTSOF(flags) && r >= 0; i++)
                if (args_given(args, flags[i].opt))
                        r = tdp_options_set_bool(o, flags[i].key, true);
        if (r >= 0 && args_given(args, OPT_VFIO_DEVICES))
                r = tdp_options_set_u32(o, "vfio-devices", args->vfio_devices);
        if (r >= 0 && args_given(args, OPT_MIGRATIONS))
                r = tdp_options_set_u32(o, "migrations", args->migrations);
        return r;
}

int request_options(const struct args *args, enum request request, struct tdp_options **ret) {
        _cleanup_(tdp_options_freep) struct tdp_options *o = NULL;
        int r;

        r = tdp_options_new(&o);
        if (r >= 0 && args_given(args, OPT_RANGE)) {
                r = tdp_options_set_u64(o, "gpa", args->range.gpa);
                if (r >= 0)
                        r = tdp_options_set_u64(o, "size", args->range.size);
        }
        if (r >= 0 && args_given(args, OPT_DECISION))
                r = tdp_options_set_string(o, "decision", args->decision);
        if (r >= 0 && args_given(args, OPT_VCPUS))
                r = tdp_options_set_u32(o, "vcpus", args->vcpus);
        /* Of a run they are told with the reservation, which an attach joins. */
        if (r >= 0 && (request == REQUEST_RESERVE || (request == REQUEST_ATTACH && !args->memory)))
                r = fact_options(args, o);

        if (request == REQUEST_RESERVE) {
                if (r >= 0 && args->no_warm)
                        r = tdp_options_set_bool(o, "warm", false);
                if (r >= 0 && args_given(args, OPT_WAIT))
                        r = tdp_options_set_u64(o, "wait-usec", args->wait_usec);
                if (r >= 0 && args_given(args, OPT_PAGE_SIZE))
                        r = tdp_options_set_u64(o, "page-size", args->page_size);
                if (r >= 0 && args_given(args, OPT_NODES))
                        r = tdp_options_set_string(o, "nodes", args->nodes);
                if (r >= 0 && args_given(args, OPT_NUMA_MODE))
                        r = tdp_options_set_string(o, "numa-mode", args->numa_mode);
                if (r >= 0 && args_given(args, OPT_CPUS))
                        r = tdp_options_set_string(o, "cpus", args->cpus);
                if (r >= 0 && args_given(args, OPT_PARTS))
                        r = tdp_options_set_string(o, "parts", args->parts);
        } else if (r >= 0 && args_given(args, OPT_MAX_LEVEL))
                r = tdp_options_set_u32(o, "max-level", args->max_level);

        if (request == REQUEST_ATTACH && r >= 0 && args->no_auto_slots)
                r = tdp_options_set_bool(o, "auto-slots", false);
        if (r < 0)
                return log_error(r, "Out of memory.");

        *ret = TAKE_PTR(o);
        return 0;
}

static const struct tdp_value *find(const struct tdp_plan *plan, const char *key) {
        return tdp_value_find(tdp_plan_get_plan(plan), key);
}

static uint64_t get_uint(const struct tdp_plan *plan, const char *key) {
        return tdp_value_get_uint(find(plan, key));
}

/* "3 GiB on node 0, 1 GiB on node 1", or that it does not fit. */
static void print_parts(const struct tdp_plan *plan) {
        char size[SIZE_TEXT_MAX], page[SIZE_TEXT_MAX];
        const struct tdp_value *part;
        const char *gap = "";

        printf("   Memory: ");
        if (!tdp_value_get_first(find(plan, "parts"))) {
                printf("%s, which does not fit now\n", size_format(get_uint(plan, "bytes"), size));
                return;
        }
        tdp_value_foreach (find(plan, "parts"), part) {
                printf("%s%s on node %llu", gap,
                       size_format(tdp_value_get_uint(tdp_value_at(part, 1)), size),
                       (unsigned long long) tdp_value_get_uint(tdp_value_at(part, 0)));
                gap = ", ";
        }
        printf(", in pages of %s\n", size_format(get_uint(plan, "page-size"), page));
}

static void print_cost(const struct tdp_plan *plan, const char *what, const char *key,
                       const char *measured) {
        const struct tdp_value *cost = find(plan, key);

        if (cost)
                printf("           %s %.0f ns (%s)\n", what, tdp_value_get_double(cost),
                       tdp_value_get_bool(find(plan, measured)) ? "measured" : "default");
}

/* What the model was fed, and where that comes from. */
static void print_model(const struct tdp_plan *plan) {
        char a[SIZE_TEXT_MAX], b[SIZE_TEXT_MAX], c[SIZE_TEXT_MAX];
        uint64_t at = get_uint(plan, "measured-at"), n;
        const char *why;

        printf("    Model: %llu leaves of %s: saves %s, costs %s to build",
               (unsigned long long) get_uint(plan, "leaves"), size_format(get_uint(plan, "leaf-size"), a),
               duration_format(get_uint(plan, "saved-usec"), b),
               duration_format(get_uint(plan, "build-usec"), c));
        n = get_uint(plan, "pin-usec");
        if (n > 0)
                printf(" and %s for pins", duration_format(n, a));
        putchar('\n');
        n = get_uint(plan, "vcpus");
        if (n > 0)
                printf("           %llu vCPUs", (unsigned long long) n);
        else
                printf("           vCPUs not known");
        printf(", %llu migrations expected\n", (unsigned long long) get_uint(plan, "migrations"));
        print_cost(plan, "a fault is", "fault-ns", "fault-measured");
        print_cost(plan, "a built leaf is", "build-ns", "build-measured");
        if (at > 0) {
                char text[64];
                time_t t = (time_t) at;
                struct tm tm;

                if (localtime_r(&t, &tm) && strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S %Z", &tm) > 0)
                        printf("           measured at %s\n", text);
        }
        why = tdp_value_get_string(find(plan, "not-measured"));
        if (why && why[0])
                printf("           defaults, as %s\n", why);
}

static void print_plan(const struct tdp_plan *plan) {
        const char *rule = tdp_value_get_string(find(plan, "rule"));
        char buf[SIZE_TEXT_MAX];

        printf("     Rule: %s\n", rule && rule[0] ? rule : "none matches");
        print_parts(plan);
        if (get_uint(plan, "populate-usec") > 0)
                printf("           populated within about %s\n",
                       duration_format(get_uint(plan, "populate-usec"), buf));
        printf("   Pinned: %s by tdpd", size_format(get_uint(plan, "pinned-bytes"), buf));
        if (get_uint(plan, "vfio-bytes") > 0)
                printf("; the VMM locks %s for VFIO, its RLIMIT_MEMLOCK must allow that",
                       size_format(get_uint(plan, "vfio-bytes"), buf));
        putchar('\n');
        if (find(plan, "leaf-size"))
                print_model(plan);
}

int verb_explain(const struct args *args) {
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        _cleanup_(tdp_plan_freep) struct tdp_plan *plan = NULL;
        const struct tdp_value *v;
        int r;

        if (!args_given(args, OPT_MEMORY)) {
                (void) log_error(0,
                                 "How much memory would the VM have? Give --memory=SIZE, like --memory=8G.");
                return EXIT_USAGE;
        }

        if (daemon_connect(args, &ctx) < 0)
                return EXIT_NO_DAEMON;

        r = request_options(args, REQUEST_RESERVE, &options);
        if (r < 0)
                return EXIT_FAILED;

        r = tdp_explain(ctx, args->name, args->memory, options, &plan);
        if (r < 0)
                return daemon_failed(ctx, r);

        if (args->json != JSON_OFF) {
                json_object *o = json_object_new_object();

                json_add_string(o, "decision", tdp_plan_get_decision(plan));
                json_object_object_add(o, "reasons", json_from_reasons(tdp_plan_get_reasons(plan)));
                json_object_object_add(o, "plan", json_from_value(tdp_plan_get_plan(plan)));
                return json_print(args, o) < 0 ? EXIT_FAILED : EXIT_OK;
        }

        printf("Decision: %s\n", tdp_plan_get_decision(plan));
        tdp_value_foreach (tdp_plan_get_reasons(plan), v)
                printf("          %s: %s\n", tdp_value_get_string(tdp_value_at(v, 0)) ?: "",
                       tdp_value_get_string(tdp_value_at(v, 1)) ?: "");
        print_plan(plan);
        return EXIT_OK;
}
