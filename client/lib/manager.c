/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Calls on org.tdpd1.Manager that make something or ask for advice. */

#include <string.h>

#include "libtdp-private.h"

#define MANAGER TDP_SERVICE ".Manager"

struct tdp_plan {
        char *decision;
        struct tdp_value *reasons;
        struct tdp_value *plan;
};

TDP_EXPORT int tdp_get_manager(struct tdp_ctx *ctx, struct tdp_value **ret_properties) {
        return bus_get_all(ctx, TDP_PATH, MANAGER, ret_properties);
}

/* The common end of Reserve, Attach and AttachPid: options, call, (o vm, o job). */
static int start_job(struct tdp_ctx *ctx, sd_bus_message *m, const char *what, const char *type,
                     const char *name, const struct tdp_options *options, struct tdp_vm **ret_vm,
                     struct tdp_job **ret_job) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(tdp_vm_freep) struct tdp_vm *vm = NULL;
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;
        const char *vm_path, *job_path;
        int r;

        r = options_append(options, m, NULL, NULL);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "%s: cannot make the call: %s", what, strerror(-r));

        r = bus_call_message(ctx, m, what, &reply);
        if (r < 0)
                return r;

        r = sd_bus_message_read(reply, "oo", &vm_path, &job_path);
        if (r < 0)
                return bus_parse_failed(ctx, r, what);

        r = vm_new(ctx, name, vm_path, &vm);
        if (r >= 0)
                r = job_new_from_path(ctx, job_path, type, vm_path, &job);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "%s: %s", what, strerror(-r));

        if (ret_vm)
                *ret_vm = TAKE_PTR(vm);
        if (ret_job)
                *ret_job = TAKE_PTR(job);
        return 0;
}

static int new_named_call(struct tdp_ctx *ctx, const char *member, const char *name, sd_bus_message **ret) {
        int r;

        if (!name)
                return ctx_fail(ctx, -EINVAL, NULL, "%s: no name is given", member);

        r = bus_new_call(ctx, TDP_PATH, MANAGER, member, ret);
        if (r < 0)
                return r;

        r = sd_bus_message_append(*ret, "s", name);
        if (r < 0) /* not UTF-8 */
                return ctx_fail(ctx, r, NULL, "%s: the name is not UTF-8, and cannot be sent", member);
        return 0;
}

TDP_EXPORT int tdp_reserve(struct tdp_ctx *ctx, const char *name, uint64_t bytes,
                           const struct tdp_options *options, struct tdp_vm **ret_vm,
                           struct tdp_job **ret_job) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r;

        r = new_named_call(ctx, "Reserve", name, &m);
        if (r < 0)
                return r;

        r = sd_bus_message_append(m, "t", bytes);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "Reserve: %s", strerror(-r));

        return start_job(ctx, m, "Reserve", "reserve", name, options, ret_vm, ret_job);
}

TDP_EXPORT int tdp_attach(struct tdp_ctx *ctx, const char *name, int vm_fd, uint32_t pid,
                          const struct tdp_options *options, struct tdp_vm **ret_vm,
                          struct tdp_job **ret_job) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r;

        r = new_named_call(ctx, "Attach", name, &m);
        if (r < 0)
                return r;

        r = sd_bus_message_append(m, "hu", vm_fd, pid);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "Attach: descriptor %d cannot be sent: %s", vm_fd,
                                strerror(-r));

        return start_job(ctx, m, "Attach", "attach", name, options, ret_vm, ret_job);
}

TDP_EXPORT int tdp_attach_pid(struct tdp_ctx *ctx, const char *name, uint32_t pid,
                              const struct tdp_options *options, struct tdp_vm **ret_vm,
                              struct tdp_job **ret_job) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r;

        r = new_named_call(ctx, "AttachPid", name, &m);
        if (r < 0)
                return r;

        r = sd_bus_message_append(m, "u", pid);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "AttachPid: %s", strerror(-r));

        return start_job(ctx, m, "AttachPid", "attach", name, options, ret_vm, ret_job);
}

TDP_EXPORT int tdp_explain(struct tdp_ctx *ctx, const char *name, uint64_t bytes,
                           const struct tdp_options *options, struct tdp_plan **ret_plan) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        _cleanup_(tdp_plan_freep) struct tdp_plan *plan = NULL;
        const char *decision;
        int r;

        r = bus_new_call(ctx, TDP_PATH, MANAGER, "Explain", &m);
        if (r < 0)
                return r;

        r = options_append(options, m, name, &bytes);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "Explain: cannot make the call: %s", strerror(-r));

        r = bus_call_message(ctx, m, "Explain", &reply);
        if (r < 0)
                return r;

        plan = calloc(1, sizeof(*plan));
        if (!plan)
                return ctx_fail(ctx, -ENOMEM, NULL, "Out of memory");

        r = sd_bus_message_read(reply, "s", &decision);
        if (r < 0)
                return bus_parse_failed(ctx, r, "Explain");
        plan->decision = strdup(decision);
        if (!plan->decision)
                return ctx_fail(ctx, -ENOMEM, NULL, "Out of memory");

        r = value_read(reply, &plan->reasons);
        if (r >= 0)
                r = value_read_dict(reply, &plan->plan);
        if (r < 0)
                return bus_parse_failed(ctx, r, "Explain");

        *ret_plan = TAKE_PTR(plan);
        return 0;
}

TDP_EXPORT int tdp_calibrate(struct tdp_ctx *ctx, const struct tdp_options *options,
                             struct tdp_job **ret_job) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        const char *path;
        int r;

        r = bus_new_call(ctx, TDP_PATH, MANAGER, "Calibrate", &m);
        if (r < 0)
                return r;
        r = options_append(options, m, NULL, NULL);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "Calibrate: cannot make the call: %s", strerror(-r));
        r = bus_call_message(ctx, m, "Calibrate", &reply);
        if (r < 0)
                return r;
        r = sd_bus_message_read(reply, "o", &path);
        if (r < 0)
                return bus_parse_failed(ctx, r, "Calibrate");
        r = job_new_from_path(ctx, path, "calibrate", "/", ret_job);
        return r < 0 ? ctx_fail(ctx, r, NULL, "Calibrate: %s", strerror(-r)) : 0;
}

TDP_EXPORT struct tdp_plan *tdp_plan_free(struct tdp_plan *plan) {
        if (!plan)
                return NULL;
        free(plan->decision);
        tdp_value_free(plan->reasons);
        tdp_value_free(plan->plan);
        free(plan);
        return NULL;
}

TDP_EXPORT const char *tdp_plan_get_decision(const struct tdp_plan *plan) {
        return plan->decision;
}

TDP_EXPORT const struct tdp_value *tdp_plan_get_reasons(const struct tdp_plan *plan) {
        return plan->reasons;
}

TDP_EXPORT const struct tdp_value *tdp_plan_get_plan(const struct tdp_plan *plan) {
        return plan->plan;
}
