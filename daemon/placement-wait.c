/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Who goes first when there are too few pages.  Requests must have been through placement_resolve(). */

#include <errno.h>

#include "placement.h"

static bool may_use_node(const PlacementRequest *req, const Node *n) {
        for (size_t i = 0; i < req->n_parts; i++)
                if (req->parts[i].node == n->id)
                        return true;
        if (req->n_parts > 0)
                return false;
        if (!req->has_nodes || req->numa_mode == NUMA_PREFERRED)
                return n->mem_total > 0;
        return idset_has(&req->nodes, n->id);
}

static bool may_use_size(const PlacementRequest *req, uint64_t page_size) {
        return req->page_size != 0 ? req->page_size == page_size : req->bytes % page_size == 0;
}

void placement_wait_for(NodeTable *t, const PlacementRequest *req) {
        for (size_t i = 0; i < t->n_nodes; i++) {
                Node *n = &t->nodes[i];

                if (!may_use_node(req, n))
                        continue;
                if (may_use_size(req, base_page_size()))
                        n->waited_for = true;
                for (size_t k = 0; k < n->n_pools; k++)
                        if (may_use_size(req, n->pools[k].page_size))
                                n->pools[k].waited_for = true;
        }
}

bool placement_has_turn(const NodeTable *t, const PlacementRequest *req) {
        for (size_t i = 0; i < t->n_nodes; i++) {
                const Node *n = &t->nodes[i];

                if (!may_use_node(req, n))
                        continue;
                if (may_use_size(req, base_page_size()) && !n->waited_for)
                        return true;
                for (size_t k = 0; k < n->n_pools; k++)
                        if (may_use_size(req, n->pools[k].page_size) && !n->pools[k].waited_for)
                                return true;
        }
        return false;
}

/* The same nodes with nothing in use. */
static int copy_empty(const NodeTable *t, Node **ret_nodes, Pool **ret_pools) {
        _cleanup_free_ Node *nodes = NULL;
        _cleanup_free_ Pool *pools = NULL;
        size_t n = 0;

        for (size_t i = 0; i < t->n_nodes; i++)
                n += t->nodes[i].n_pools;
        nodes = calloc(t->n_nodes + 1, sizeof(Node));
        pools = calloc(n + 1, sizeof(Pool));
        if (!nodes || !pools)
                return -ENOMEM;
        n = 0;
        for (size_t i = 0; i < t->n_nodes; i++) {
                nodes[i] = t->nodes[i];
                nodes[i].pools = pools + n;
                nodes[i].mem_free = nodes[i].mem_total;
                nodes[i].mem_cache = 0;
                nodes[i].waited_for = false;
                for (size_t k = 0; k < nodes[i].n_pools; k++) {
                        Pool *p = &pools[n++];

                        *p = t->nodes[i].pools[k];
                        p->free = p->total;
                        p->reserved = 0;
                        p->waited_for = false;
                }
        }
        *ret_nodes = TAKE_PTR(nodes);
        *ret_pools = TAKE_PTR(pools);
        return 0;
}

bool placement_is_possible(const NodeTable *t, const PlacementRequest *req) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(placement_done) Placement p = {};
        _cleanup_free_ Node *nodes = NULL;
        _cleanup_free_ Pool *pools = NULL;
        NodeTable all;

        if (copy_empty(t, &nodes, &pools) < 0)
                return false;
        all = (NodeTable){ .nodes = nodes, .n_nodes = t->n_nodes };
        return placement_make(&all, NULL, 0, req, &p, &error) >= 0;
}
