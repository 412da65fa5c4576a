/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What is said of a request that finds no room: what was asked, what each node has, and what would do. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "bus-error.h"
#include "format.h"
#include "memstream.h"
#include "placement.h"

static bool is_asked(const PlacementRequest *req, const Node *n) {
        for (size_t i = 0; i < req->n_parts; i++)
                if (req->parts[i].node == n->id)
                        return true;
        if (req->n_parts > 0)
                return false;
        return req->has_nodes ? idset_has(&req->nodes, n->id) : n->mem_total > 0;
}

/* Pages that the request lacks, on the nodes that it may use. */
static uint64_t count_lacking(const NodeTable *t, const Claim *claims, size_t n_claims,
                              const PlacementRequest *req, uint64_t page_size) {
        uint64_t lacking = 0, available = 0, share, n = 0, k = 0;

        for (size_t i = 0; i < t->n_nodes; i++)
                n += is_asked(req, &t->nodes[i]);
        for (size_t i = 0; i < t->n_nodes; i++) {
                uint64_t have = placement_available(&t->nodes[i], claims, n_claims, page_size);

                if (!is_asked(req, &t->nodes[i])) {
                        if (req->numa_mode == NUMA_PREFERRED)
                                available += have;
                        continue;
                }
                available += have;
                share = (req->bytes / page_size / n + (k < req->bytes / page_size % n)) * page_size;
                k++;
                for (size_t p = 0; p < req->n_parts; p++)
                        if (req->parts[p].node == t->nodes[i].id)
                                share = req->parts[p].bytes;
                lacking += share > have ? share - have : 0;
        }
        if (req->n_parts == 0 && req->numa_mode != NUMA_INTERLEAVE)
                lacking = req->bytes > available ? req->bytes - available : 0;
        return lacking / page_size;
}

/* "2000 free, 0 reserved on node 0; ...", in pages, of those that were asked for or of the others. */
static size_t describe_nodes(FILE *f, const NodeTable *t, const Claim *claims, size_t n_claims,
                             const PlacementRequest *req, uint64_t page_size, bool asked) {
        size_t n = 0;

        for (size_t i = 0; i < t->n_nodes; i++) {
                const Node *node = &t->nodes[i];
                const Pool *p = node_find_pool(node, page_size);
                uint64_t available = placement_available(node, claims, n_claims, page_size) / page_size,
                         all = 0;

                if (is_asked(req, node) != asked || (!asked && node->mem_total == 0))
                        continue;
                if (p)
                        all = p->free;
                else if (page_size == base_page_size())
                        all = (node->mem_free + node->mem_cache) / page_size;
                fprintf(f, "%s%" PRIu64 " free, %" PRIu64 " reserved on node %u%s", n++ > 0 ? "; " : "", all,
                        all - MIN_OF(all, available), node->id,
                        (p ? p->waited_for : page_size == base_page_size() && node->waited_for)
                                        ? " for requests that wait"
                                        : "");
        }
        return n;
}

static void describe_placement(FILE *f, const Placement *p) {
        for (size_t i = 0; i < p->n_parts; i++)
                fprintf(f, "%s%" PRIu64 " on node %u", i == 0 ? ": " : ", ",
                        p->parts[i].bytes / p->page_size, p->parts[i].node);
}

/* Requests that are not the same, and would have been granted. */
static void describe_alternatives(FILE *f, const NodeTable *t, const Claim *claims, size_t n_claims,
                                  const PlacementRequest *req, uint64_t page_size) {
        _cleanup_free_ uint64_t *sizes = NULL;
        size_t n_sizes = 0, n = 0;

        for (size_t i = 0; i < t->n_nodes; i++)
                if (!is_asked(req, &t->nodes[i]) &&
                    placement_available(&t->nodes[i], claims, n_claims, page_size) >= req->bytes)
                        fprintf(f, "%s%u", n++ > 0 ? "," : ", or take node ", t->nodes[i].id);

        if (n == 0 && (req->has_nodes || req->n_parts > 0)) {
                _cleanup_(placement_done) Placement p = {};
                PlacementRequest other = *req;

                other.n_parts = 0;
                other.numa_mode = NUMA_PREFERRED;
                for (size_t i = 0; i < req->n_parts; i++)
                        idset_add(&other.nodes, req->parts[i].node);
                other.has_nodes = true;
                if (placement_try(t, claims, n_claims, &other, page_size, &p) > 0) {
                        fprintf(f, ", or take numa-mode preferred");
                        describe_placement(f, &p);
                }
        }

        if (node_table_page_sizes(t, &sizes, &n_sizes) < 0)
                return;
        n = 0;
        for (size_t i = 0; i < n_sizes; i++) {
                _cleanup_(placement_done) Placement p = {};

                if (sizes[i] != page_size && req->bytes % sizes[i] == 0 &&
                    placement_try(t, claims, n_claims, req, sizes[i], &p) > 0)
                        fprintf(f, "%s%s", n++ > 0 ? ", " : ", or take pages of ", format_bytes(sizes[i]));
        }
}

int placement_refuse(const NodeTable *t, const Claim *claims, size_t n_claims, const PlacementRequest *req,
                     uint64_t page_size, sd_bus_error *error) {
        _cleanup_free_ char *nodes = NULL, *text = NULL;
        IdSet ids = {};
        size_t size;
        FILE *f;

        for (size_t i = 0; i < t->n_nodes; i++)
                if (is_asked(req, &t->nodes[i]))
                        idset_add(&ids, t->nodes[i].id);
        if (idset_format(&ids, &nodes) < 0)
                return -ENOMEM;

        f = open_memstream(&text, &size);
        if (!f)
                return -ENOMEM;
        fprintf(f, "asked %" PRIu64 " pages of %s on node %s (%s), ", req->bytes / page_size,
                format_bytes(page_size), *nodes ? nodes : "-",
                req->n_parts > 0 ? "parts" : numa_mode_to_string(req->numa_mode));
        if (describe_nodes(f, t, claims, n_claims, req, page_size, true) == 0)
                fputs("no node with memory", f);
        fprintf(f, ": short of %" PRIu64 "; ", count_lacking(t, claims, n_claims, req, page_size));
        if (req->has_nodes || req->n_parts > 0) {
                if (describe_nodes(f, t, claims, n_claims, req, page_size, false) > 0)
                        fputs(" (not asked for); ", f);
        }
        if (page_size == base_page_size())
                fputs("ask for less, or free memory there", f);
        else
                fprintf(f,
                        "free some, or grow the pool%s: "
                        "/sys/devices/system/node/node%s/hugepages/hugepages-%" PRIu64 "kB/nr_hugepages",
                        page_size >= GIB(1) ? " (at boot, as free memory is in smaller pieces later)" : "",
                        idset_count(&ids) == 1 ? nodes : "N", page_size / 1024);
        describe_alternatives(f, t, claims, n_claims, req, page_size);
        if (memstream_close(f, &text) < 0)
                return -ENOMEM;
        return sd_bus_error_set(error, TDP_ERROR_NO_PAGES, text);
}
