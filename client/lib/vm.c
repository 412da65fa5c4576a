/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* VMs: finding them, their properties, building and releasing. */

#include <string.h>

#include "libtdp-private.h"

#define MANAGER TDP_SERVICE ".Manager"
#define VM      TDP_SERVICE ".VM"

#define RELEASE_USEC UINT64_C(180000000)

int vm_new(struct tdp_ctx *ctx, const char *name, const char *path, struct tdp_vm **ret) {
        _cleanup_(tdp_vm_freep) struct tdp_vm *vm = NULL;

        vm = calloc(1, sizeof(*vm));
        if (!vm)
                return -ENOMEM;

        vm->ctx = tdp_ref(ctx);
        vm->name = strdup(name);
        vm->path = strdup(path);
        if (!vm->name || !vm->path)
                return -ENOMEM;

        *ret = TAKE_PTR(vm);
        return 0;
}

TDP_EXPORT struct tdp_vm *tdp_vm_free(struct tdp_vm *first) {
        while (first) {
                struct tdp_vm *vm = first;

                first = vm->next;
                tdp_value_free(vm->properties);
                free(vm->name);
                free(vm->path);
                free(vm->state);
                tdp_unref(vm->ctx);
                free(vm);
        }
        return NULL;
}

TDP_EXPORT struct tdp_vm *tdp_vm_get_next(const struct tdp_vm *vm) {
        return vm->next;
}

TDP_EXPORT const char *tdp_vm_get_name(const struct tdp_vm *vm) {
        return vm->name;
}

TDP_EXPORT const char *tdp_vm_get_path(const struct tdp_vm *vm) {
        return vm->path;
}

TDP_EXPORT const char *tdp_vm_get_state(const struct tdp_vm *vm) {
        return vm->state;
}

TDP_EXPORT uint32_t tdp_vm_get_pid(const struct tdp_vm *vm) {
        return vm->pid;
}

TDP_EXPORT uint64_t tdp_vm_get_bytes(const struct tdp_vm *vm) {
        return vm->bytes;
}

TDP_EXPORT const struct tdp_value *tdp_vm_get_properties(const struct tdp_vm *vm) {
        return vm->properties;
}

static int read_list(struct tdp_ctx *ctx, sd_bus_message *m, struct tdp_vm **ret_first) {
        _cleanup_(tdp_vm_freep) struct tdp_vm *first = NULL;
        struct tdp_vm **tail = &first;
        int r;

        r = sd_bus_message_enter_container(m, 'a', "(ssout)");
        if (r < 0)
                return r;

        for (;;) {
                const char *name, *state, *path;
                uint32_t pid;
                uint64_t bytes;

                r = sd_bus_message_read(m, "(ssout)", &name, &state, &path, &pid, &bytes);
                if (r < 0)
                        return r;
                if (r == 0)
                        break;

                r = vm_new(ctx, name, path, tail);
                if (r < 0)
                        return r;
                (*tail)->pid = pid;
                (*tail)->bytes = bytes;
                (*tail)->state = strdup(state);
                if (!(*tail)->state)
                        return -ENOMEM;
                tail = &(*tail)->next;
        }

        *ret_first = TAKE_PTR(first);
        return 0;
}

TDP_EXPORT int tdp_list_vms(struct tdp_ctx *ctx, struct tdp_vm **ret_first) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        int r;

        r = bus_new_call(ctx, TDP_PATH, MANAGER, "ListVMs", &m);
        if (r < 0)
                return r;

        r = bus_call_message(ctx, m, "ListVMs", &reply);
        if (r < 0)
                return r;

        r = read_list(ctx, reply, ret_first);
        if (r < 0)
                return bus_parse_failed(ctx, r, "ListVMs");
        return 0;
}

static int get_vm(struct tdp_ctx *ctx, sd_bus_message *m, const char *what, const char *name,
                  struct tdp_vm **ret_vm) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(tdp_vm_freep) struct tdp_vm *vm = NULL;
        const char *path;
        int r;

        r = bus_call_message(ctx, m, what, &reply);
        if (r < 0)
                return r;

        r = sd_bus_message_read(reply, "o", &path);
        if (r < 0)
                return bus_parse_failed(ctx, r, what);

        r = vm_new(ctx, name, path, &vm);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "Out of memory");

        r = tdp_vm_refresh(vm);
        if (r < 0)
                return r;

        *ret_vm = TAKE_PTR(vm);
        return 0;
}

TDP_EXPORT int tdp_get_vm(struct tdp_ctx *ctx, const char *name, struct tdp_vm **ret_vm) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r;

        if (!name)
                return ctx_fail(ctx, -EINVAL, NULL, "GetVM: no name is given");

        r = bus_new_call(ctx, TDP_PATH, MANAGER, "GetVM", &m);
        if (r < 0)
                return r;

        r = sd_bus_message_append(m, "s", name);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "GetVM: the name is not UTF-8, and cannot be sent");

        return get_vm(ctx, m, "GetVM", name, ret_vm);
}

TDP_EXPORT int tdp_get_vm_by_pid(struct tdp_ctx *ctx, uint32_t pid, struct tdp_vm **ret_vm) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r;

        r = bus_new_call(ctx, TDP_PATH, MANAGER, "GetVMByPid", &m);
        if (r < 0)
                return r;

        r = sd_bus_message_append(m, "u", pid);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "GetVMByPid: %s", strerror(-r));

        return get_vm(ctx, m, "GetVMByPid", "", ret_vm);
}

TDP_EXPORT int tdp_vm_refresh(struct tdp_vm *vm) {
        struct tdp_value *properties;
        int r;

        r = bus_get_all(vm->ctx, vm->path, VM, &properties);
        if (r == -ENOENT) /* unknown object: say it in the contract's words */
                return ctx_fail(vm->ctx, r, TDP_ERROR_PREFIX "NoSuchVM",
                                "There is no VM \"%s\" any more: tdpctl vms (ListVMs) has those that there are",
                                vm->name);
        if (r < 0)
                return r;

        tdp_value_free(vm->properties);
        vm->properties = properties;
        vm->pid = tdp_value_get_uint(tdp_value_find(properties, "Pid"));
        vm->bytes = tdp_value_get_uint(tdp_value_find(properties, "Bytes"));
        r = replace_string(&vm->state, tdp_value_get_string(tdp_value_find(properties, "State")));
        if (r >= 0)
                r = replace_string(&vm->name, tdp_value_get_string(tdp_value_find(properties, "Name")));
        if (r < 0)
                return ctx_fail(vm->ctx, r, NULL, "Out of memory");
        return 0;
}

static int start_job(struct tdp_vm *vm, const char *method, const char *type,
                     const struct tdp_options *options, struct tdp_job **ret_job) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;
        const char *path;
        int r;

        r = bus_new_call(vm->ctx, vm->path, VM, method, &m);
        if (r < 0)
                return r;

        r = options_append(options, m, NULL, NULL);
        if (r < 0)
                return ctx_fail(vm->ctx, r, NULL, "%s: cannot make the call: %s", method, strerror(-r));

        r = bus_call_message(vm->ctx, m, method, &reply);
        if (r < 0)
                return r;

        r = sd_bus_message_read(reply, "o", &path);
        if (r < 0)
                return bus_parse_failed(vm->ctx, r, method);

        r = job_new_from_path(vm->ctx, path, type, vm->path, &job);
        if (r < 0)
                return ctx_fail(vm->ctx, r, NULL, "%s: %s", method, strerror(-r));

        if (ret_job)
                *ret_job = TAKE_PTR(job);
        return 0;
}

TDP_EXPORT int tdp_vm_build(struct tdp_vm *vm, const struct tdp_options *options, struct tdp_job **ret_job) {
        return start_job(vm, "Build", "build", options, ret_job);
}

TDP_EXPORT int tdp_vm_heal(struct tdp_vm *vm, const struct tdp_options *options, struct tdp_job **ret_job) {
        return start_job(vm, "Heal", "heal", options, ret_job);
}

TDP_EXPORT int tdp_vm_split(struct tdp_vm *vm, const struct tdp_options *options, struct tdp_job **ret_job) {
        return start_job(vm, "Split", "split", options, ret_job);
}

TDP_EXPORT int tdp_vm_collapse(struct tdp_vm *vm, const struct tdp_options *options,
                               struct tdp_job **ret_job) {
        return start_job(vm, "Collapse", "collapse", options, ret_job);
}

TDP_EXPORT int tdp_vm_release(struct tdp_vm *vm) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        uint64_t saved;
        int r;

        r = bus_new_call(vm->ctx, TDP_PATH, MANAGER, "Release", &m);
        if (r < 0)
                return r;

        r = sd_bus_message_append(m, "o", vm->path);
        if (r < 0)
                return ctx_fail(vm->ctx, r, NULL, "Release: %s", strerror(-r));

        /* Answered when pins and pages are back, which takes its time for terabytes. */
        saved = vm->ctx->timeout_usec;
        if (saved == 0)
                vm->ctx->timeout_usec = RELEASE_USEC;
        r = bus_call_message(vm->ctx, m, "Release", NULL);
        vm->ctx->timeout_usec = saved;
        return r;
}
