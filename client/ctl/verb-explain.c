/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* explain: decisions without deeds; and the options of requests, which all of them share. */

#include "daemon.h"
#include "json.h"
#include "log.h"
#include "size.h"
#include "verbs.h"

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

        if (request == REQUEST_RESERVE) {
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

static void print_value(const struct tdp_value *value) {
        const struct tdp_value *v;
        const char *gap = "";

        switch (tdp_value_get_type(value)) {
        case TDP_VALUE_BOOL:
                printf("%s", tdp_value_get_bool(value) ? "yes" : "no");
                break;
        case TDP_VALUE_UINT:
                printf("%llu", (unsigned long long) tdp_value_get_uint(value));
                break;
        case TDP_VALUE_INT:
                printf("%lld", (long long) tdp_value_get_int(value));
                break;
        case TDP_VALUE_DOUBLE:
                printf("%g", tdp_value_get_double(value));
                break;
        case TDP_VALUE_STRING:
                printf("%s", tdp_value_get_string(value));
                break;
        case TDP_VALUE_LIST:
        case TDP_VALUE_DICT:
                tdp_value_foreach (value, v) {
                        printf("%s", gap);
                        if (tdp_value_get_key(v))
                                printf("%s=", tdp_value_get_key(v));
                        print_value(v);
                        gap = " ";
                }
                break;
        }
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
        tdp_value_foreach (tdp_plan_get_plan(plan), v) {
                printf("%s %s: ",
                       v == tdp_value_get_first(tdp_plan_get_plan(plan)) ? "    Plan:" : "         ",
                       tdp_value_get_key(v));
                print_value(v);
                putchar('\n');
        }
        return EXIT_OK;
}
