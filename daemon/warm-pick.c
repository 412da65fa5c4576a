/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "warm-pick.h"

#include <errno.h>

static bool fits(const SlabFacts *s, const PlacementRequest *req, uint64_t min_page_size) {
        if (!s->ready || s->bytes < req->bytes || req->bytes == 0 || req->bytes % s->page_size != 0)
                return false;
        if (req->page_size != 0 ? s->page_size != req->page_size : s->page_size < min_page_size)
                return false;
        if (req->has_nodes && !idset_has(&req->nodes, s->node))
                return false;
        if (req->n_parts > 1 || (req->n_parts == 1 && req->parts[0].node != s->node))
                return false;
        /* Equal shares of several nodes are not what a slab has. */
        return req->numa_mode != NUMA_INTERLEAVE || (req->has_nodes && idset_count(&req->nodes) == 1);
}

int warm_pick(const SlabFacts *slabs, size_t n, const PlacementRequest *req, uint64_t min_page_size) {
        int best = -1;

        for (size_t i = 0; i < n; i++)
                if (fits(&slabs[i], req, min_page_size) &&
                    (best < 0 || slabs[i].bytes < slabs[best].bytes ||
                     (slabs[i].bytes == slabs[best].bytes && slabs[i].page_size > slabs[best].page_size)))
                        best = (int) i;
        return best;
}

/* A copy of the nodes, and of the claims, as they are once slabs are given up. */
typedef struct Future {
        NodeTable table;
        Node *nodes;
        Pool *pools;
        Claim *claims;
        size_t n_claims;
} Future;

static void future_done(Future *f) {
        free(f->nodes);
        free(f->pools);
        free(f->claims);
}

static int future_init(Future *f, const NodeTable *t, const Claim *claims, size_t n_claims) {
        size_t n_pools = 0;

        for (size_t i = 0; i < t->n_nodes; i++)
                n_pools += t->nodes[i].n_pools;
        f->nodes = calloc(t->n_nodes + 1, sizeof(Node));
        f->pools = calloc(n_pools + 1, sizeof(Pool));
        f->claims = calloc(n_claims + 1, sizeof(Claim));
        if (!f->nodes || !f->pools || !f->claims)
                return -ENOMEM;
        if (n_claims > 0)
                memcpy(f->claims, claims, n_claims * sizeof(Claim));
        f->n_claims = n_claims;

        n_pools = 0;
        for (size_t i = 0; i < t->n_nodes; i++) {
                f->nodes[i] = t->nodes[i];
                f->nodes[i].pools = f->pools + n_pools;
                for (size_t k = 0; k < t->nodes[i].n_pools; k++)
                        f->pools[n_pools++] = t->nodes[i].pools[k];
        }
        f->table = (NodeTable){ .nodes = f->nodes, .n_nodes = t->n_nodes };
        return 0;
}

static void future_without(Future *f, const SlabFacts *s) {
        uint64_t waiting = s->bytes - s->filled;

        for (size_t i = 0; i < f->table.n_nodes; i++) {
                Node *node = &f->nodes[i];

                if (s->page_size == base_page_size()) {
                        if (node->id == s->node)
                                node->mem_free += s->filled;
                        continue;
                }
                for (size_t k = 0; k < node->n_pools; k++) {
                        Pool *p = &node->pools[k];

                        if (p->page_size != s->page_size)
                                continue;
                        if (node->id == s->node)
                                p->free += s->filled / s->page_size;
                        /* The kernel counts these for all nodes together. */
                        p->reserved -= MIN_OF(p->reserved, waiting / s->page_size);
                }
        }
        for (size_t i = 0; i < f->n_claims && waiting > 0; i++)
                if (f->claims[i].node == s->node && f->claims[i].page_size == s->page_size) {
                        uint64_t k = MIN_OF(waiting, f->claims[i].unallocated);

                        f->claims[i].unallocated -= k;
                        waiting -= k;
                }
}

static bool is_enough(const Future *f, const PlacementRequest *req, Placement *ret) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;

        return placement_make(&f->table, f->claims, f->n_claims, req, ret, &error) >= 0;
}

static bool helps(const SlabFacts *s, const PlacementRequest *req) {
        if (req->page_size != 0 && s->page_size != req->page_size)
                return false;
        for (size_t i = 0; i < req->n_parts; i++)
                if (req->parts[i].node == s->node)
                        return true;
        if (req->n_parts > 0)
                return false;
        return !req->has_nodes || req->numa_mode == NUMA_PREFERRED || idset_has(&req->nodes, s->node);
}

static bool goes_before(const SlabFacts *a, const SlabFacts *b) {
        return a->ready != b->ready ? !a->ready : a->bytes < b->bytes;
}

bool warm_make_room(const NodeTable *t, const Claim *claims, size_t n_claims, const SlabFacts *slabs,
                    size_t n, const PlacementRequest *req, bool *ret_give_up, Placement *ret) {
        _cleanup_(future_done) Future f = {};

        memset(ret_give_up, 0, n * sizeof(*ret_give_up));
        if (future_init(&f, t, claims, n_claims) < 0)
                return false;

        for (;;) {
                const SlabFacts *next = NULL;

                for (size_t i = 0; i < n; i++)
                        if (!ret_give_up[i] && helps(&slabs[i], req) &&
                            (!next || goes_before(&slabs[i], next)))
                                next = &slabs[i];
                if (!next)
                        break;
                ret_give_up[next - slabs] = true;
                future_without(&f, next);
                if (is_enough(&f, req, ret))
                        return true;
        }
        memset(ret_give_up, 0, n * sizeof(*ret_give_up));
        return false;
}
