/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* NUMA nodes and their page pools. */

#include "libtdp-private.h"

struct tdp_node {
        uint32_t id;
        struct tdp_value *properties;
        struct tdp_node *next;
};

TDP_EXPORT struct tdp_node *tdp_node_free(struct tdp_node *first) {
        while (first) {
                struct tdp_node *node = first;

                first = node->next;
                tdp_value_free(node->properties);
                free(node);
        }
        return NULL;
}

static int read_list(struct tdp_ctx *ctx, sd_bus_message *m, struct tdp_node **ret_first) {
        _cleanup_(tdp_node_freep) struct tdp_node *first = NULL;
        struct tdp_node **tail = &first;
        int r;

        r = sd_bus_message_enter_container(m, 'a', "(uo)");
        if (r < 0)
                return bus_parse_failed(ctx, r, "ListNodes");

        for (;;) {
                struct tdp_node *node;
                const char *path;
                uint32_t id;

                r = sd_bus_message_read(m, "(uo)", &id, &path);
                if (r < 0)
                        return bus_parse_failed(ctx, r, "ListNodes");
                if (r == 0)
                        break;

                node = *tail = calloc(1, sizeof(*node));
                if (!node)
                        return ctx_fail(ctx, -ENOMEM, NULL, "Out of memory");
                tail = &node->next;
                node->id = id;
                r = bus_get_all(ctx, path, TDP_SERVICE ".Node", &node->properties);
                if (r < 0)
                        return r;
        }

        *ret_first = TAKE_PTR(first);
        return 0;
}

TDP_EXPORT int tdp_list_nodes(struct tdp_ctx *ctx, struct tdp_node **ret_first) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        int r;

        r = bus_new_call(ctx, TDP_PATH, TDP_SERVICE ".Manager", "ListNodes", &m);
        if (r < 0)
                return r;

        r = bus_call_message(ctx, m, "ListNodes", &reply);
        if (r < 0)
                return r;

        return read_list(ctx, reply, ret_first);
}

TDP_EXPORT struct tdp_node *tdp_node_get_next(const struct tdp_node *node) {
        return node->next;
}

TDP_EXPORT uint32_t tdp_node_get_id(const struct tdp_node *node) {
        return node->id;
}

TDP_EXPORT const struct tdp_value *tdp_node_get_properties(const struct tdp_node *node) {
        return node->properties;
}
