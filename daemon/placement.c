/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "placement.h"

#include <errno.h>
#include <inttypes.h>

#include "bus-error.h"
#include "format.h"
#include "number.h"

static const char *const numa_mode_table[_NUMA_MODE_MAX] = {
        [NUMA_AUTO] = "auto",
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
                if (n->waited_for)
                        return 0;
                have = n->mem_free + n->mem_cache;
                taken = ours_here + base_pages_margin(n);
                return have > taken ? (have - taken) / page_size * page_size : 0;
        }

        p = node_find_pool(n, page_size);
        if (!p || p->waited_for)
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

static bool place_parts(Candidate *c, size_t n, const PlacementRequest *req, uint64_t page_size) {
        for (size_t k = 0; k < req->n_parts; k++) {
                Candidate *found = NULL;

                for (size_t i = 0; i < n; i++)
                        if (c[i].node->id == req->parts[k].node)
                                found = c + i;
                if (!found || req->parts[k].bytes > found->available || req->parts[k].bytes % page_size != 0)
                        return false;
                found->take = req->parts[k].bytes;
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

/* Nodes that can run all vCPUs, those that can run some, and those without CPUs. */
static unsigned cpu_rank(const Candidate *c, uint32_t vcpus) {
        unsigned cpus = idset_count(&c->node->cpus);

        return cpus == 0 ? 2 : cpus < vcpus ? 1 : 0;
}

static bool place_auto(Candidate *c, size_t n, uint64_t bytes, uint32_t vcpus) {
        Candidate *best = NULL;

        for (size_t i = 0; i < n; i++)
                if (c[i].available >= bytes &&
                    (!best || cpu_rank(c + i, vcpus) < cpu_rank(best, vcpus) ||
                     (cpu_rank(c + i, vcpus) == cpu_rank(best, vcpus) && c[i].available < best->available)))
                        best = c + i;
        if (best) {
                best->take = bytes;
                return true;
        }

        /* As few as possible: the largest first, and those without CPUs only if the others are not enough.
         */
        while (bytes > 0) {
                best = NULL;
                for (size_t i = 0; i < n; i++)
                        if (c[i].take == 0 && c[i].available > 0 &&
                            (!best || cpu_rank(c + i, 1) < cpu_rank(best, 1) ||
                             (cpu_rank(c + i, 1) == cpu_rank(best, 1) && c[i].available > best->available)))
                                best = c + i;
                if (!best)
                        return false;
                best->take = MIN_OF(bytes, best->available);
                bytes -= best->take;
        }
        return true;
}

static bool place(Candidate *c, size_t n, const PlacementRequest *req, uint64_t page_size) {
        uint64_t bytes = req->bytes;

        if (n == 0)
                return false;
        if (req->n_parts > 0)
                return place_parts(c, n, req, page_size);

        switch (req->numa_mode) {
        case NUMA_AUTO:
                return place_auto(c, n, bytes, req->vcpus);
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

/* Nodes with memory, only the asked ones unless others may help out. */
static size_t candidates(const NodeTable *t, const Claim *claims, size_t n_claims,
                         const PlacementRequest *req, uint64_t page_size, Candidate *c) {
        size_t n = 0;

        for (size_t i = 0; i < t->n_nodes; i++) {
                const Node *node = &t->nodes[i];
                bool asked = !req->has_nodes || idset_has(&req->nodes, node->id);

                if (!asked && req->numa_mode != NUMA_PREFERRED && req->n_parts == 0)
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

int placement_try(const NodeTable *t, const Claim *claims, size_t n_claims, const PlacementRequest *req,
                  uint64_t page_size, Placement *ret) {
        _cleanup_free_ Candidate *c = NULL;
        _cleanup_free_ PlacementPart *parts = NULL;
        size_t n, n_parts = 0;

        c = calloc(t->n_nodes + 1, sizeof(Candidate));
        parts = calloc(t->n_nodes + 1, sizeof(PlacementPart));
        if (!c || !parts)
                return -ENOMEM;
        n = candidates(t, claims, n_claims, req, page_size, c);
        if (!place(c, n, req, page_size))
                return 0;
        for (size_t i = 0; i < n; i++)
                if (c[i].take > 0)
                        parts[n_parts++] = (PlacementPart){ .node = c[i].node->id, .bytes = c[i].take };
        *ret = (Placement){ .page_size = page_size, .parts = TAKE_PTR(parts), .n_parts = n_parts };
        return 1;
}

static int check_node(const NodeTable *t, unsigned id, sd_bus_error *error) {
        _cleanup_free_ char *ids = NULL;

        if (node_table_find(t, id))
                return 0;
        if (node_table_format_ids(t, &ids) < 0)
                return -ENOMEM;
        return sd_bus_error_setf(error, TDP_ERROR_NO_SUCH_NODE, "node %u is not there: this host has %s", id,
                                 ids);
}

static int check_parts(const NodeTable *t, const PlacementRequest *req, uint64_t unit, sd_bus_error *error) {
        uint64_t sum = 0;

        if (req->has_nodes || req->has_cpus || req->numa_mode != NUMA_AUTO)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "parts say where memory goes: leave nodes, cpus and numa-mode out");
        for (size_t i = 0; i < req->n_parts; i++) {
                int r = check_node(t, req->parts[i].node, error);

                if (r < 0)
                        return r;
                if (req->parts[i].bytes % unit != 0)
                        return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                                 "the part of node %u is %" PRIu64
                                                 " bytes, not a multiple of the page size %s",
                                                 req->parts[i].node, req->parts[i].bytes,
                                                 format_bytes(unit));
                sum += req->parts[i].bytes; /* of at most INT64_MAX / 64 each */
        }
        if (sum != req->bytes)
                return sd_bus_error_setf(
                                error, TDP_ERROR_INVALID,
                                "the parts are %s together, and %s were asked for: both must be the same",
                                format_bytes(sum), format_bytes(req->bytes));
        return 0;
}

static int check_request(const NodeTable *t, const PlacementRequest *req, const uint64_t *sizes,
                         size_t n_sizes, sd_bus_error *error) {
        _cleanup_free_ char *known = NULL;
        uint64_t unit = req->page_size ?: base_page_size();
        bool found = false;

        for (size_t i = 0; i < n_sizes; i++)
                found = found || sizes[i] == unit;
        if (!found) {
                if (node_table_format_page_sizes(t, &known) < 0)
                        return -ENOMEM;
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "page size %s is none of this host's: use one of %s",
                                         format_bytes(req->page_size), known);
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
        if (req->bytes < unit)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "size %" PRIu64
                                         " is less than a page of %s: ask for at least %" PRIu64,
                                         req->bytes, format_bytes(unit), unit);
        if (req->bytes % unit != 0)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "size %" PRIu64
                                         " is not a multiple of the page size %s: ask for %" PRIu64
                                         " or %" PRIu64,
                                         req->bytes, format_bytes(unit), req->bytes / unit * unit,
                                         req->bytes / unit * unit + unit);

        if (req->n_parts > 0)
                return check_parts(t, req, unit, error);
        if (!req->has_nodes)
                return 0;
        if (idset_count(&req->nodes) == 0)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "the set of nodes is empty: name one, or leave \"nodes\" out");
        IDSET_FOREACH (id, &req->nodes) {
                int r = check_node(t, (unsigned) id, error);

                if (r < 0)
                        return r;
        }
        return 0;
}

int placement_resolve(const NodeTable *t, PlacementRequest *req, sd_bus_error *error) {
        IdSet nodes = {};

        if (!req->has_cpus)
                return 0;
        if (req->has_nodes)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "nodes and cpus are both there: give one of them");
        IDSET_FOREACH (cpu, &req->cpus) {
                const Node *found = NULL;

                for (size_t i = 0; i < t->n_nodes && !found; i++)
                        if (idset_has(&t->nodes[i].cpus, (unsigned) cpu))
                                found = &t->nodes[i];
                if (!found)
                        return sd_bus_error_setf(
                                        error, TDP_ERROR_INVALID,
                                        "CPU %i is on no node: this host has none of that number online",
                                        cpu);
                idset_add(&nodes, found->id);
        }
        req->nodes = nodes;
        req->has_nodes = true;
        req->has_cpus = false;
        return 0;
}

int placement_make(const NodeTable *t, const Claim *claims, size_t n_claims, const PlacementRequest *request,
                   Placement *ret, sd_bus_error *error) {
        _cleanup_free_ uint64_t *sizes = NULL;
        PlacementRequest req = *request;
        size_t n_sizes;
        int r;

        r = node_table_page_sizes(t, &sizes, &n_sizes);
        if (r < 0)
                return r;
        r = check_request(t, &req, sizes, n_sizes, error);
        if (r < 0)
                return r;
        r = placement_resolve(t, &req, error);
        if (r < 0)
                return r;

        /* The largest size that fits, unless one was asked for. */
        for (size_t i = n_sizes; i-- > 0;) {
                if (req.page_size != 0 ? sizes[i] != req.page_size : req.bytes % sizes[i] != 0)
                        continue;
                r = placement_try(t, claims, n_claims, &req, sizes[i], ret);
                if (r != 0)
                        return r < 0 ? r : 0;
        }
        return placement_refuse(t, claims, n_claims, &req, req.page_size ?: sizes[0], error);
}

static int compare_parts(const void *a, const void *b) {
        unsigned x = ((const PlacementPart *) a)->node, y = ((const PlacementPart *) b)->node;

        return (x > y) - (x < y);
}

int placement_parts_parse(const char *s, PlacementPart parts[static PLACEMENT_PARTS_MAX], size_t *ret_n) {
        size_t n = 0;

        do {
                uint64_t node, bytes;
                int r;

                if (n == PLACEMENT_PARTS_MAX)
                        return -ERANGE;
                r = number_read(&s, &node);
                if (r < 0)
                        return r;
                if (*s++ != ':')
                        return -EINVAL;
                r = size_read(&s, 1, &bytes);
                if (r < 0)
                        return r;
                if (*s != '\0' && *s != ',')
                        return -EINVAL;
                if (node >= NODE_ID_MAX || bytes == 0 || bytes > INT64_MAX / PLACEMENT_PARTS_MAX)
                        return -ERANGE;
                parts[n++] = (PlacementPart){ .node = (unsigned) node, .bytes = bytes };
        } while (*s++ == ',');

        qsort(parts, n, sizeof(*parts), compare_parts);
        for (size_t i = 1; i < n; i++)
                if (parts[i].node == parts[i - 1].node)
                        return -ERANGE;
        *ret_n = n;
        return 0;
}
