/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Sizes of page pools, and who holds their pages. */

#include <string.h>

#include "libtdp-private.h"

#define NODE TDP_SERVICE ".Node"

TDP_EXPORT int tdp_set_pool(struct tdp_ctx *ctx, uint32_t node, uint64_t page_size, uint64_t pages,
                            const struct tdp_options *options, struct tdp_job **ret_job) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        char path[sizeof(TDP_PATH "/node/") + 3 * sizeof(node)];
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;
        const char *job_path;
        int r;

        (void) snprintf(path, sizeof(path), TDP_PATH "/node/%u", node);
        r = bus_new_call(ctx, path, NODE, "SetPool", &m);
        if (r < 0)
                return r;
        r = sd_bus_message_append(m, "tt", page_size, pages);
        if (r >= 0)
                r = options_append(options, m, NULL, NULL);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "SetPool: cannot make the call: %s", strerror(-r));

        r = bus_call_message(ctx, m, "SetPool", &reply);
        if (r == -ENOENT)
                return ctx_fail(ctx, r, TDP_ERROR_PREFIX "NoSuchNode",
                                "There is no node %u: tdpctl nodes (ListNodes) has those of that host",
                                node);
        if (r < 0)
                return r;
        r = sd_bus_message_read(reply, "o", &job_path);
        if (r < 0)
                return bus_parse_failed(ctx, r, "SetPool");
        r = job_new_from_path(ctx, job_path, "pool", "/", &job);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "SetPool: %s", strerror(-r));

        if (ret_job)
                *ret_job = TAKE_PTR(job);
        return 0;
}

TDP_EXPORT int tdp_list_holders(struct tdp_ctx *ctx, struct tdp_value **ret_holders, bool *ret_complete) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        _cleanup_(tdp_value_freep) struct tdp_value *holders = NULL;
        int r, complete;

        r = bus_new_call(ctx, TDP_PATH, TDP_SERVICE ".Manager", "Holders", &m);
        if (r < 0)
                return r;
        r = bus_call_message(ctx, m, "Holders", &reply);
        if (r < 0)
                return r;
        r = value_read(reply, &holders);
        if (r >= 0)
                r = sd_bus_message_read(reply, "b", &complete);
        if (r < 0)
                return bus_parse_failed(ctx, r, "Holders");

        *ret_holders = TAKE_PTR(holders);
        *ret_complete = complete;
        return 0;
}
