/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "placement.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "bus-error.h"
#include "format.h"
#include "memstream.h"

static const char *const numa_mode_table[_NUMA_MODE_MAX] = {
        [NUMA_STRICT] = "strict",
        [NUMA_PREFERRED] = "preferred",
        [NUMA_INTERLEAVE] = "interleave",
};

const char *numa_mode_to_string(NumaMode m) {
        return m >= 0 && m < _NUMA_MODE_MAX ? numa_mode_table[m] : NULL;
}

NumaMode numa_mode_from_string(const char *s) {
        for (int m = 0; m < _NUMA_MODE_MAX; m++)
                if (streq(s, numa_mode_table[m]))
                        return m;
        return _NUMA_MODE_INVALID;
}

void placement_done(Placement *p) {
        free(p->parts);
        *p = (Placement){};
}

uint64_t placement_bytes(const Placement *p) {
        uint64_t sum = 0;

        for (size_t i = 0; i < p->n_parts; i++)
                sum += p->parts[i].bytes;
        return sum;
}

/* Small pages come out of what everybody needs to live on, and running a node dry means the OOM killer. */
static uint64_t base_pages_margin(const Node *n) {
        return MAX_OF(n->mem_total / 32, MIB(64));
}

uint64_t placement_set_aside(const Node *n, const Pool *p, const Claim *claims, size_t n_claims) {
        uint64_t used = p->total - MIN_OF(p->total, p->free), ours = 0;

        for (size_t i = 0; i < n_claims; i++)
                if (claims[i].node == n->id && claims[i].page_size == p->page_size)
                        ours += (claims[i].bytes - claims[i].unallocated) / p->page_size;
        /* What is in use and not ours is what they have taken already. */
        used -= MIN_OF(used, ours);
        return p->for_others - MIN_OF(p->for_others, used);
}

uint64_t placement_available(const Node *n, const Claim *claims, size_t n_claims, uint64_t page_size) {
        uint64_t ours_here = 0, ours_elsewhere = 0, taken, have;
        const Pool *p;

        for (size_t i = 0; i < n_claims; i++)
                if (claims[i].page_size == page_size) {
                        if (claims[i].node == n->id)
                                ours_here += claims[i].unallocated;
                        else
                                ours_elsewhere += claims[i].unallocated;
                }

        if (page_size == base_page_size()) {
                have = n->mem_free + n->mem_cache;
                taken = ours_here + base_pages_margin(n);
                return have > taken ? (have - taken) / page_size * page_size : 0;
        }

        p = node_find_pool(n, page_size);
        if (!p)
                return 0;

        /* The kernel counts reserved pages for the whole system only.  Of ours we know the node; all others
         * may be meant for this one. */
        have = p->free * page_size;
        taken = p->reserved * page_size;
        taken -= MIN_OF(taken, ours_elsewhere);
        taken = MAX_OF(taken, ours_here);
        taken += placement_set_aside(n, p, claims, n_claims) * page_size;
        return have > taken ? have - taken : 0;
}

typedef struct Candidate {
        const Node *node;
        uint64_t available;
        uint64_t take;
        bool asked; /* in the request's set */
} Candidate;

static uint64_t sum_available(const Candidate *c, size_t n) {
        uint64_t sum = 0;

        for (size_t i = 0; i < n; i++)
                sum += c[i].available;
        return sum;
}

/* Takes what it can from each, in order; returns what is left to place. */
static uint64_t fill(Candidate *c, size_t n, bool asked, uint64_t left) {
        for (size_t i = 0; i < n; i++) {
                uint64_t k = MIN_OF(left, c[i].available - c[i].take);

                if (c[i].asked != asked)
                        continue;
                c[i].take += k;
                left -= k;
        }
        return left;
}

static bool place_equal(Candidate *c, size_t n, uint64_t bytes, uint64_t page_size) {
        uint64_t pages = bytes / page_size;

        for (size_t i = 0; i < n; i++) {
                c[i].take = (pages / n + (i < pages % n)) * page_size;
                if (c[i].take > c[i].available)
                        return false;
        }
        return true;
}

/* The node with the least room among those that have enough: large holes stay for large VMs. */
static bool place_on_one(Candidate *c, size_t n, bool asked, uint64_t bytes) {
        Candidate *best = NULL;

        for (size_t i = 0; i < n; i++)
                if (c[i].asked == asked && c[i].available >= bytes &&
                    (!best || c[i].available < best->available))
                        best = c + i;
        if (best)
                best->take = bytes;
        return best != NULL;
}

static bool place(Candidate *c, size_t n, NumaMode mode, uint64_t bytes, uint64_t page_size) {
        if (n == 0)
                return false;

        switch (mode) {
        case NUMA_INTERLEAVE:
                return place_equal(c, n, bytes, page_size);
        case NUMA_STRICT:
                return place_on_one(c, n, true, bytes) || fill(c, n, true, bytes) == 0;
        case NUMA_PREFERRED:
                return place_on_one(c, n, true, bytes) || fill(c, n, false, fill(c, n, true, bytes)) == 0;
        default:
                return false;
        }
}

/* Candidates for a page size: nodes with memory, only the asked ones unless others may help out. */
static size_t candidates(const NodeTable *t, const Claim *claims, size_t n_claims,
                         const PlacementRequest *req, uint64_t page_size, Candidate *c) {
        size_t n = 0;

        for (size_t i = 0; i < t->n_nodes; i++) {
                const Node *node = &t->nodes[i];
                bool asked = !req->has_nodes || idset_has(&req->nodes, node->id);

                if (!asked && req->numa_mode != NUMA_PREFERRED)
                        continue;
                if (!req->has_nodes && node->mem_total == 0)
                        continue;
                c[n++] = (Candidate){
                        .node = node,
                        .available = placement_available(node, claims, n_claims, page_size),
                        .asked = asked,
                };
        }
        return n;
}

/* "node 0: 2000 free, 0 reserved; node 1: ...", in pages. */
static int describe_nodes(const Candidate *c, size_t n, uint64_t page_size, char **ret) {
        _cleanup_free_ char *s = NULL;
        size_t size;
        FILE *f;

        f = open_memstream(&s, &size);
        if (!f)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                const Pool *p = node_find_pool(c[i].node, page_size);
                uint64_t all = p ? p->free : (c[i].node->mem_free + c[i].node->mem_cache) / page_size;

                if (page_size != base_page_size() && !p)
                        all = 0;
                fprintf(f, "%s%" PRIu64 " free, %" PRIu64 " reserved on node %u", i > 0 ? "; " : "", all,
                        all - MIN_OF(all, c[i].available / page_size), c[i].node->id);
        }
        if (memstream_close(f, &s) < 0)
                return -ENOMEM;
        *ret = TAKE_PTR(s);
        return 0;
}

/* Nodes outside of the request's set that could have served it alone. */
static int describe_alternatives(const NodeTable *t, const Claim *claims, size_t n_claims,
                                 const PlacementRequest *req, uint64_t page_size, char **ret) {
        IdSet fit = {};

        for (size_t i = 0; i < t->n_nodes; i++)
                if (req->has_nodes && !idset_has(&req->nodes, t->nodes[i].id) &&
                    placement_available(&t->nodes[i], claims, n_claims, page_size) >= req->bytes)
                        idset_add(&fit, t->nodes[i].id);
        return idset_format(&fit, ret);
}

static int refuse(const NodeTable *t, const Claim *claims, size_t n_claims, const PlacementRequest *req,
                  uint64_t page_size, const Candidate *c, size_t n, sd_bus_error *error) {
        _cleanup_free_ char *have = NULL, *fit = NULL, *nodes = NULL;
        uint64_t available = sum_available(c, n), need = req->bytes, lacking;
        char hint[200];
        IdSet ids = {};

        if (req->numa_mode == NUMA_INTERLEAVE) {
                lacking = 0;
                for (size_t i = 0; i < n; i++) {
                        uint64_t share = (need / page_size / n + (i < need / page_size % n)) * page_size;

                        lacking += share > c[i].available ? share - c[i].available : 0;
                }
        } else
                lacking = need > available ? need - available : 0;

        for (size_t i = 0; i < n; i++)
                idset_add(&ids, c[i].node->id);
        if (idset_format(&ids, &nodes) < 0 || describe_nodes(c, n, page_size, &have) < 0 ||
            describe_alternatives(t, claims, n_claims, req, page_size, &fit) < 0)
                return -ENOMEM;

        if (page_size == base_page_size())
                snprintf(hint, sizeof(hint), "ask for less, or free memory there");
        else
                snprintf(hint, sizeof(hint),
                         "free some, or grow the pool%s: "
                         "/sys/devices/system/node/node%s/hugepages/hugepages-%" PRIu64 "kB/nr_hugepages",
                         page_size >= GIB(1) ? " (at boot, as free memory is in smaller pieces later)" : "",
                         n == 1 ? nodes : "N", page_size / 1024);

        return sd_bus_error_setf(error, TDP_ERROR_NO_PAGES,
                                 "asked %" PRIu64 " pages of %s on node %s (%s), %s: short of %" PRIu64
                                 "; %s%s%s",
                                 need / page_size, format_bytes(page_size), *nodes ? nodes : "-",
                                 numa_mode_to_string(req->numa_mode), *have ? have : "no node with memory",
                                 lacking / page_size, hint, *fit ? ", or take node " : "", fit);
}

static int check_request(const NodeTable *t, const PlacementRequest *req, const uint64_t *sizes,
                         size_t n_sizes, sd_bus_error *error) {
        _cleanup_free_ char *known = NULL, *ids = NULL;
        uint64_t unit = req->page_size ?: base_page_size();
        bool found = false;

        for (size_t i = 0; i < n_sizes; i++)
                found = found || sizes[i] == unit;
        if (!found) {
                if (node_table_format_page_sizes(t, &known) < 0)
                        return -ENOMEM;
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "page size %" PRIu64
                                         " is none of this host's: use one of %s, in bytes",
                                         req->page_size, known);
        }
        if (req->bytes == 0)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "size is 0 bytes: ask for at least one page of %s",
                                         format_bytes(unit));
        if (req->bytes > INT64_MAX)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "size %" PRIu64 " overflows: no file can be larger than %" PRIi64
                                         " bytes",
                                         req->bytes, INT64_MAX);
        if (req->bytes % unit != 0)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "size %" PRIu64
                                         " is not a multiple of the page size %s: ask for %" PRIu64
                                         " or %" PRIu64,
                                         req->bytes, format_bytes(unit), req->bytes / unit * unit,
                                         req->bytes / unit * unit + unit);

        if (!req->has_nodes)
                return 0;
        if (idset_count(&req->nodes) == 0)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "the set of nodes is empty: name one, or leave \"nodes\" out");
        IDSET_FOREACH (id, &req->nodes)
                if (!node_table_find(t, (unsigned) id)) {
                        if (node_table_format_ids(t, &ids) < 0)
                                return -ENOMEM;
                        return sd_bus_error_setf(error, TDP_ERROR_NO_SUCH_NODE,
                                                 "node %i is not there: this host has %s", id, ids);
                }
        return 0;
}

int placement_make(const NodeTable *t, const Claim *claims, size_t n_claims, const PlacementRequest *req,
                   Placement *ret, sd_bus_error *error) {
        _cleanup_free_ uint64_t *sizes = NULL;
        _cleanup_free_ Candidate *c = NULL;
        _cleanup_free_ PlacementPart *parts = NULL;
        uint64_t page_size = 0;
        size_t n_sizes, n = 0, n_parts = 0;
        int r;

        r = node_table_page_sizes(t, &sizes, &n_sizes);
        if (r < 0)
                return r;
        r = check_request(t, req, sizes, n_sizes, error);
        if (r < 0)
                return r;

        c = calloc(t->n_nodes + 1, sizeof(Candidate));
        parts = calloc(t->n_nodes + 1, sizeof(PlacementPart));
        if (!c || !parts)
                return -ENOMEM;

        /* The largest size that fits, unless one was asked for. */
        for (size_t i = n_sizes; i-- > 0 && page_size == 0;) {
                if (req->page_size != 0 ? sizes[i] != req->page_size : req->bytes % sizes[i] != 0)
                        continue;
                n = candidates(t, claims, n_claims, req, sizes[i], c);
                if (place(c, n, req->numa_mode, req->bytes, sizes[i]))
                        page_size = sizes[i];
        }
        if (page_size == 0) {
                page_size = req->page_size ?: sizes[0];
                n = candidates(t, claims, n_claims, req, page_size, c);
                return refuse(t, claims, n_claims, req, page_size, c, n, error);
        }

        for (size_t i = 0; i < n; i++)
                if (c[i].take > 0)
                        parts[n_parts++] = (PlacementPart){ .node = c[i].node->id, .bytes = c[i].take };

        *ret = (Placement){ .page_size = page_size, .parts = TAKE_PTR(parts), .n_parts = n_parts };
        return 0;
}
