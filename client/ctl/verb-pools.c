/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* pools: what each node has of huge pages, and what it is to have. */

#include <string.h>

#include "daemon.h"
#include "json.h"
#include "log.h"
#include "signals.h"
#include "size.h"
#include "table.h"
#include "verbs.h"

DEFINE_CLEANUP_FUNC(struct table *, table_free);

#define NUMBER_MAX 24

/* One pool, out of three properties of its node. */
struct pool {
        uint64_t node, page_size;
        uint64_t total, free, reserved, surplus, leased;
        uint64_t available, for_others;
        bool has_target;
        uint64_t target;
        const char *state;
};

static uint64_t at(const struct tdp_value *v, unsigned i) {
        return tdp_value_get_uint(tdp_value_at(v, i));
}

static const struct tdp_value *find_size(const struct tdp_value *list, uint64_t page_size) {
        const struct tdp_value *v;

        tdp_value_foreach (list, v)
                if (at(v, 0) == page_size)
                        return v;
        return NULL;
}

static struct pool read_pool(const struct tdp_node *node, const struct tdp_value *v) {
        const struct tdp_value *p = tdp_node_get_properties(node), *available, *target;
        struct pool pool = {
                .node = tdp_node_get_id(node),
                .page_size = at(v, 0),
                .total = at(v, 1),
                .free = at(v, 2),
                .reserved = at(v, 3),
                .surplus = at(v, 4),
                .leased = at(v, 5),
        };

        available = find_size(tdp_value_find(p, "Available"), pool.page_size);
        target = find_size(tdp_value_find(p, "Targets"), pool.page_size);
        pool.available = available ? at(available, 1) : 0;
        pool.for_others = available ? at(available, 2) : 0;
        pool.has_target = target;
        if (target) {
                pool.target = at(target, 1);
                pool.state = tdp_value_get_string(tdp_value_at(target, 3));
        }
        return pool;
}

static json_object *to_json(const struct pool *p) {
        json_object *o = json_object_new_object();

        json_add_uint(o, "node", p->node);
        json_add_uint(o, "page_size", p->page_size);
        json_add_uint(o, "total", p->total);
        json_add_uint(o, "free", p->free);
        json_add_uint(o, "available", p->available);
        json_add_uint(o, "reserved", p->reserved);
        json_add_uint(o, "surplus", p->surplus);
        json_add_uint(o, "leased", p->leased);
        json_add_uint(o, "for_others", p->for_others);
        json_object_object_add(o, "target", p->has_target ? json_object_new_uint64(p->target) : NULL);
        json_add_string(o, "state", p->state);
        return o;
}

static int add(struct table *t, const struct pool *p) {
        char size[SIZE_TEXT_MAX], n[9][NUMBER_MAX];
        const uint64_t numbers[] = { p->node,    p->total,  p->free,       p->available, p->reserved,
                                     p->surplus, p->leased, p->for_others, p->target };
        const char *cells[11];

        for (unsigned i = 0; i < ELEMENTSOF(numbers); i++)
                (void) snprintf(n[i], NUMBER_MAX, "%llu", (unsigned long long) numbers[i]);
        cells[0] = n[0];
        cells[1] = size_format(p->page_size, size);
        for (unsigned i = 1; i < 9; i++)
                cells[i + 1] = n[i];
        if (!p->has_target)
                cells[9] = NULL;
        cells[10] = p->state;
        return table_add(t, cells);
}

static int list(const struct args *args, struct tdp_ctx *ctx) {
        static const char *const headers[] = {
                "NODE",    "SIZE",   "TOTAL",  "FREE",   "AVAILABLE", "RESERVED",
                "SURPLUS", "LEASED", "OTHERS", "TARGET", "STATE",
        };
        _cleanup_(tdp_node_freep) struct tdp_node *nodes = NULL;
        _cleanup_(table_freep) struct table *t = NULL;
        json_object *array = NULL;
        struct tdp_node *node;
        int r;

        r = tdp_list_nodes(ctx, &nodes);
        if (r < 0)
                return daemon_failed(ctx, r);

        if (args->json != JSON_OFF)
                array = json_object_new_array();
        r = table_new(&t, headers, ELEMENTSOF(headers));
        for (size_t i = 2; r >= 0 && i < 10; i++)
                table_align_right(t, i);
        for (node = nodes; r >= 0 && node; node = tdp_node_get_next(node)) {
                const struct tdp_value *v;

                tdp_value_foreach (tdp_value_find(tdp_node_get_properties(node), "Pools"), v) {
                        struct pool p = read_pool(node, v);

                        if (array)
                                json_object_array_add(array, to_json(&p));
                        else if (r >= 0)
                                r = add(t, &p);
                }
        }
        if (r < 0) {
                (void) log_error(r, "Out of memory.");
                return EXIT_FAILED;
        }
        if (array)
                return json_print(args, array) < 0 ? EXIT_FAILED : EXIT_OK;
        table_print(t, stdout, !args->no_legend, "pool");
        return EXIT_OK;
}

static int list_holders(const struct args *args, struct tdp_ctx *ctx) {
        static const char *const headers[] = {
                "SIZE", "NODE", "PAGES", "PID", "USER", "KIND", "NAME", "FILE"
        };
        _cleanup_(tdp_value_freep) struct tdp_value *holders = NULL;
        _cleanup_(table_freep) struct table *t = NULL;
        const struct tdp_value *v;
        bool complete;
        int r;

        r = tdp_list_holders(ctx, &holders, &complete);
        if (r < 0)
                return daemon_failed(ctx, r);
        if (!complete && !args->quiet)
                (void) log_error(0, "Not all processes could be looked at: there may be more.");
        if (args->json != JSON_OFF)
                return json_print(args, json_from_holders(holders)) < 0 ? EXIT_FAILED : EXIT_OK;

        r = table_new(&t, headers, ELEMENTSOF(headers));
        for (size_t i = 2; r >= 0 && i < 5; i++)
                table_align_right(t, i);
        tdp_value_foreach (holders, v) {
                char size[SIZE_TEXT_MAX], n[4][NUMBER_MAX];
                int64_t node = tdp_value_get_int(tdp_value_at(v, 1));
                const char *file = tdp_value_get_string(tdp_value_at(v, 7));

                (void) snprintf(n[0], NUMBER_MAX, "%lld", (long long) node);
                for (unsigned i = 1; i < 4; i++)
                        (void) snprintf(n[i], NUMBER_MAX, "%llu", (unsigned long long) at(v, 1 + i));
                if (r >= 0)
                        r = table_add(t, (const char *const[]){
                                                         size_format(at(v, 0), size),
                                                         node >= 0 ? n[0] : NULL,
                                                         n[1],
                                                         n[2],
                                                         n[3],
                                                         tdp_value_get_string(tdp_value_at(v, 5)),
                                                         tdp_value_get_string(tdp_value_at(v, 6)),
                                                         file && file[0] ? file : NULL,
                                         });
        }
        if (r < 0) {
                (void) log_error(r, "Out of memory.");
                return EXIT_FAILED;
        }
        table_print(t, stdout, !args->no_legend, "holder");
        return EXIT_OK;
}

/* set, grow or shrink; NODE, SIZE, PAGES */
static int read_change(const struct args *args, uint64_t *ret_node, uint64_t *ret_size,
                       uint64_t *ret_pages) {
        char **p = args->positional;

        if (strcmp(p[0], "set") != 0 && strcmp(p[0], "grow") != 0 && strcmp(p[0], "shrink") != 0)
                return log_error(-EINVAL, "\"%s\" cannot be done with pools: use set, grow or shrink.",
                                 p[0]);
        if (args->n_positional != 4)
                return log_error(-EINVAL,
                                 "Say which pool, and how many pages: tdpctl pools %s NODE SIZE PAGES",
                                 p[0]);
        if (uint_parse(p[1], UINT32_MAX, ret_node) < 0)
                return log_error(-EINVAL, "\"%s\" is not the number of a node. \"tdpctl nodes\" shows them.",
                                 p[1]);
        if (size_parse(p[2], ret_size) < 0 || *ret_size == 0)
                return log_error(-EINVAL, "\"%s\" is not a page size, like 2M or 1G.", p[2]);
        if (uint_parse(p[3], UINT64_MAX, ret_pages) < 0)
                return log_error(-EINVAL, "\"%s\" is not a number of pages.", p[3]);
        return 0;
}

static int make_options(const struct args *args, struct tdp_options **ret) {
        _cleanup_(tdp_options_freep) struct tdp_options *o = NULL;

        if (tdp_options_new(&o) < 0 || tdp_options_set_string(o, "mode", args->positional[0]) < 0 ||
            tdp_options_set_bool(o, "allow-partial", args->allow_partial) < 0 ||
            tdp_options_set_bool(o, "drop-caches", args->drop_caches) < 0)
                return log_error(-ENOMEM, "Out of memory.");
        *ret = o;
        o = NULL;
        return 0;
}

static int change(const struct args *args, struct tdp_ctx *ctx, uint64_t node, uint64_t size,
                  uint64_t pages) {
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;
        int r;

        if (make_options(args, &options) < 0)
                return EXIT_FAILED;

        signals_block();
        r = tdp_set_pool(ctx, (uint32_t) node, size, pages, options, &job);
        if (r < 0)
                return daemon_failed(ctx, r);
        r = job_wait(args, ctx, job, NULL);
        if (r >= 0)
                return r;
        return args->quiet ? EXIT_OK : list(args, ctx);
}

int verb_pools(const struct args *args) {
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        uint64_t node = 0, size = 0, pages = 0;

        if (args->holders && args->n_positional > 0) {
                (void) log_error(0, "--holders only looks: leave \"%s\" out, or --holders.",
                                 args->positional[0]);
                return EXIT_USAGE;
        }
        if (args->n_positional > 0 && read_change(args, &node, &size, &pages) < 0)
                return EXIT_USAGE;
        if (daemon_connect(args, &ctx) < 0)
                return EXIT_NO_DAEMON;
        if (args->holders)
                return list_holders(args, ctx);
        return args->n_positional > 0 ? change(args, ctx, node, size, pages) : list(args, ctx);
}
