/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A VM's memory: descriptors that the daemon hands over. */

#include <fcntl.h>
#include <string.h>

#include "libtdp-private.h"

struct tdp_memory {
        char *name;
        uint64_t bytes;
        uint32_t node;
        int fd;
        struct tdp_memory *next;
};

TDP_EXPORT struct tdp_memory *tdp_memory_free(struct tdp_memory *first) {
        while (first) {
                struct tdp_memory *m = first;

                first = m->next;
                close_keep_errno(m->fd);
                free(m->name);
                free(m);
        }
        return NULL;
}

static int read_parts(sd_bus_message *m, struct tdp_memory **ret_first) {
        _cleanup_(tdp_memory_freep) struct tdp_memory *first = NULL;
        struct tdp_memory **tail = &first;
        int r;

        r = sd_bus_message_enter_container(m, 'a', "(stuh)");
        if (r < 0)
                return r;

        for (;;) {
                struct tdp_memory *part;
                const char *name;
                uint64_t bytes;
                uint32_t node;
                int fd;

                r = sd_bus_message_read(m, "(stuh)", &name, &bytes, &node, &fd);
                if (r < 0)
                        return r;
                if (r == 0)
                        break;

                part = *tail = calloc(1, sizeof(*part));
                if (!part)
                        return -ENOMEM;
                tail = &part->next;
                part->bytes = bytes;
                part->node = node;
                part->name = strdup(name);
                /* The message owns its descriptors, and closes them with itself. */
                part->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
                if (part->fd < 0)
                        return -errno;
                if (!part->name)
                        return -ENOMEM;
        }

        *ret_first = TAKE_PTR(first);
        return 0;
}

TDP_EXPORT int tdp_vm_get_memory(struct tdp_vm *vm, struct tdp_memory **ret_first) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        int r;

        if (vm->ctx->host)
                return ctx_fail(vm->ctx, -EOPNOTSUPP, NULL,
                                "Memory of VM \"%s\" is on host %s: descriptors cannot come from there",
                                vm->name, vm->ctx->host);

        r = bus_new_call(vm->ctx, vm->path, TDP_SERVICE ".VM", "GetMemory", &m);
        if (r < 0)
                return r;

        r = bus_call_message(vm->ctx, m, "GetMemory", &reply);
        if (r < 0)
                return r;

        r = read_parts(reply, ret_first);
        if (r == -EMFILE || r == -ENFILE)
                return ctx_fail(vm->ctx, r, NULL, "GetMemory: %s", strerror(-r));
        if (r < 0)
                return bus_parse_failed(vm->ctx, r, "GetMemory");
        return 0;
}

TDP_EXPORT struct tdp_memory *tdp_memory_get_next(const struct tdp_memory *memory) {
        return memory->next;
}

TDP_EXPORT const char *tdp_memory_get_name(const struct tdp_memory *memory) {
        return memory->name;
}

TDP_EXPORT uint64_t tdp_memory_get_bytes(const struct tdp_memory *memory) {
        return memory->bytes;
}

TDP_EXPORT uint32_t tdp_memory_get_node(const struct tdp_memory *memory) {
        return memory->node;
}

TDP_EXPORT int tdp_memory_get_fd(const struct tdp_memory *memory) {
        return memory->fd;
}

TDP_EXPORT int tdp_memory_take_fd(struct tdp_memory *memory) {
        return TAKE_FD(memory->fd);
}
