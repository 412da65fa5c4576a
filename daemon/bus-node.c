/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bus-node.h"

#include <errno.h>
#include <stdio.h>

#include "bus-object.h"
#include "bus-pool.h"

#define NODE_PREFIX "/org/tdpd1/node"

/* A node has no object of ours behind it: each property is read anew. */
typedef struct BusNode {
        Manager *manager;
        unsigned id;
} BusNode;

static int load(BusNode *n, NodeTable **ret_table, const Node **ret, sd_bus_error *error) {
        int r;

        r = manager_load_nodes(n->manager, ret_table, error);
        if (r < 0)
                return r;
        *ret = node_table_find(*ret_table, n->id);
        return *ret ? 0 : -ENODEV; /* gone offline since the lookup */
}

static int get_id(sd_bus *bus, const char *path, const char *interface, const char *property,
                  sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        BusNode *n = userdata;

        return sd_bus_message_append(reply, "u", n->id);
}

static int get_cpus(sd_bus *bus, const char *path, const char *interface, const char *property,
                    sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        _cleanup_(node_table_freep) NodeTable *t = NULL;
        _cleanup_free_ char *cpus = NULL;
        const Node *n;
        int r;

        r = load(userdata, &t, &n, error);
        if (r < 0)
                return r;
        r = idset_format(&n->cpus, &cpus);
        if (r < 0)
                return r;
        return sd_bus_message_append(reply, "s", cpus);
}

static int get_memory(sd_bus *bus, const char *path, const char *interface, const char *property,
                      sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        _cleanup_(node_table_freep) NodeTable *t = NULL;
        const Node *n;
        int r;

        r = load(userdata, &t, &n, error);
        if (r < 0)
                return r;
        return sd_bus_message_append(reply, "t", streq(property, "MemoryFree") ? n->mem_free : n->mem_total);
}

static int get_pools(sd_bus *bus, const char *path, const char *interface, const char *property,
                     sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        _cleanup_(node_table_freep) NodeTable *t = NULL;
        _cleanup_free_ Claim *claims = NULL;
        BusNode *node = userdata;
        const Node *n;
        size_t n_claims;
        int r;

        r = load(node, &t, &n, error);
        if (r < 0)
                return r;
        r = manager_claims(node->manager, &claims, &n_claims);
        if (r < 0)
                return r;

        r = sd_bus_message_open_container(reply, 'a', "(tttttt)");
        if (r < 0)
                return r;
        for (size_t i = 0; i < n->n_pools; i++) {
                const Pool *p = &n->pools[i];
                uint64_t leased = 0;

                for (size_t k = 0; k < n_claims; k++)
                        if (claims[k].node == n->id && claims[k].page_size == p->page_size)
                                leased += claims[k].bytes / p->page_size;
                r = sd_bus_message_append(reply, "(tttttt)", p->page_size, p->total, p->free, p->reserved,
                                          p->surplus, leased);
                if (r < 0)
                        return r;
        }
        return sd_bus_message_close_container(reply);
}

static int get_pool_facts(sd_bus *bus, const char *path, const char *interface, const char *property,
                          sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        _cleanup_(node_table_freep) NodeTable *t = NULL;
        BusNode *node = userdata;
        const Node *n;
        int r;

        r = load(node, &t, &n, error);
        if (r < 0)
                return r;
        return streq(property, "Targets") ? bus_pool_append_targets(node->manager, n, reply)
                                          : bus_pool_append_available(node->manager, n, reply);
}

static int method_set_pool(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        BusNode *n = userdata;

        return bus_pool_method_set(n->manager, n->id, message, error);
}

static int find(sd_bus *bus, const char *path, const char *interface, void *userdata, void **ret_found,
                sd_bus_error *error) {
        _cleanup_(node_table_freep) NodeTable *t = NULL;
        Manager *m = userdata;
        unsigned id;
        int end = 0, r;

        if (sscanf(path, NODE_PREFIX "/%u%n", &id, &end) != 1 || path[end] != '\0' || id >= NODE_ID_MAX)
                return 0;
        r = manager_load_nodes(m, &t, error);
        if (r < 0)
                return r;
        if (!node_table_find(t, id))
                return 0;
        *ret_found = &m->bus_nodes[id];
        return 1;
}

static int enumerate(sd_bus *bus, const char *prefix, void *userdata, char ***ret_nodes,
                     sd_bus_error *error) {
        _cleanup_(node_table_freep) NodeTable *t = NULL;
        char **nodes;
        int r;

        r = manager_load_nodes(userdata, &t, error);
        if (r < 0)
                return r;
        nodes = calloc(t->n_nodes + 1, sizeof(char *));
        if (!nodes)
                return -ENOMEM;
        for (size_t i = 0; i < t->n_nodes; i++) {
                char node[64];

                snprintf(node, sizeof(node), NODE_PREFIX "/%u", t->nodes[i].id);
                r = bus_set_path(nodes, i, node);
                if (r < 0)
                        return r;
        }
        *ret_nodes = nodes;
        return 0;
}

int bus_node_append_list(Manager *m, sd_bus_message *reply, sd_bus_error *error) {
        _cleanup_(node_table_freep) NodeTable *t = NULL;
        int r;

        r = manager_load_nodes(m, &t, error);
        if (r < 0)
                return r;
        r = sd_bus_message_open_container(reply, 'a', "(uo)");
        if (r < 0)
                return r;
        for (size_t i = 0; i < t->n_nodes; i++) {
                char path[64];

                snprintf(path, sizeof(path), NODE_PREFIX "/%u", t->nodes[i].id);
                r = sd_bus_message_append(reply, "(uo)", t->nodes[i].id, path);
                if (r < 0)
                        return r;
        }
        return sd_bus_message_close_container(reply);
}

static const sd_bus_vtable vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD_WITH_ARGS("SetPool", SD_BUS_ARGS("t", page_size, "t", pages, "a{sv}", options),
                                SD_BUS_RESULT("o", job), method_set_pool, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_PROPERTY("Id", "u", get_id, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Cpus", "s", get_cpus, 0, 0),
        SD_BUS_PROPERTY("MemoryTotal", "t", get_memory, 0, 0),
        SD_BUS_PROPERTY("MemoryFree", "t", get_memory, 0, 0),
        SD_BUS_PROPERTY("Pools", "a(tttttt)", get_pools, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("Available", "a(ttt)", get_pool_facts, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("Targets", "a(ttts)", get_pool_facts, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_VTABLE_END,
};

int bus_node_register(Manager *m) {
        int r;

        m->bus_nodes = calloc(NODE_ID_MAX, sizeof(BusNode));
        if (!m->bus_nodes)
                return -ENOMEM;
        for (unsigned i = 0; i < NODE_ID_MAX; i++)
                m->bus_nodes[i] = (BusNode){ .manager = m, .id = i };

        r = sd_bus_add_fallback_vtable(m->bus, NULL, NODE_PREFIX, "org.tdpd1.Node", vtable, find, m);
        if (r < 0)
                return r;
        return sd_bus_add_node_enumerator(m->bus, NULL, NODE_PREFIX, enumerate, m);
}
