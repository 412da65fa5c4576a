/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>

#include "bus-pool.h"
#include "format.h"
#include "log-message.h"
#include "manager.h"
#include "pool-job.h"
#include "pools.h"
#include "queue.h"

#define SOON_USEC UINT64_C(100000)

typedef struct Look {
        NodeTable *nodes;
        uint64_t *available;
        bool *low;
} Look;

static void look_done(Look *l) {
        node_table_free(l->nodes);
        free(l->available);
        free(l->low);
}

static int take_look(Manager *m, Look *ret) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_free_ Claim *claims = NULL;
        size_t n_claims, n = 0, k = 0;
        int r;

        r = manager_load_nodes(m, &ret->nodes, &error);
        if (r < 0)
                return r;
        r = manager_claims(m, &claims, &n_claims);
        if (r < 0)
                return r;
        for (size_t i = 0; i < ret->nodes->n_nodes; i++)
                n += ret->nodes->nodes[i].n_pools;
        ret->available = calloc(n + 1, sizeof(uint64_t));
        ret->low = calloc(n + 1, sizeof(bool));
        if (!ret->available || !ret->low)
                return -ENOMEM;
        for (size_t i = 0; i < ret->nodes->n_nodes; i++)
                for (size_t p = 0; p < ret->nodes->nodes[i].n_pools; p++) {
                        uint64_t size = ret->nodes->nodes[i].pools[p].page_size;

                        ret->available[k++] =
                                        placement_available(&ret->nodes->nodes[i], claims, n_claims, size) /
                                        size;
                }
        return 0;
}

/* The same pool as it was seen last, or NULL. */
static const Pool *seen(Manager *m, unsigned node, uint64_t page_size, size_t *ret_index) {
        const NodeTable *t = m->pools.seen;
        size_t k = 0;

        for (size_t i = 0; t && i < t->n_nodes; i++)
                for (size_t p = 0; p < t->nodes[i].n_pools; p++, k++)
                        if (t->nodes[i].id == node && t->nodes[i].pools[p].page_size == page_size) {
                                *ret_index = k;
                                return &t->nodes[i].pools[p];
                        }
        return NULL;
}

/* true: the target has changed. */
static bool update_target(Manager *m, unsigned node, const Pool *p) {
        PoolTarget *t = (PoolTarget *) pools_find_target(m, node, p->page_size);
        uint64_t now = pool_persistent(p);
        PoolTargetState before;

        if (!t)
                return false;
        before = t->state;
        /* More than a target that was short: those are pages that somebody else wants. */
        if ((t->state == POOL_TARGET_MET && now != t->pages) ||
            (t->state == POOL_TARGET_SHORT && now > t->pages && now > t->got))
                t->state = POOL_TARGET_CHANGED;
        else if (t->state != POOL_TARGET_WAITING && now == t->pages)
                t->state = POOL_TARGET_MET;
        if (t->got == now && t->state == before)
                return false;
        t->got = now;
        return true;
}

static void tell_low(Manager *m, unsigned node, const Pool *p, uint64_t available, bool was_low,
                     bool *ret_low) {
        uint64_t limit = m->config.pools.low_percent;

        /* In percent of the total, without an overflow. */
        *ret_low = p->total > 0 && available < p->total &&
                   (double) available * 100 < (double) p->total * (double) limit;
        if (!*ret_low || was_low)
                return;
        log_message(MESSAGE_POOL_LOW,
                    FIELDS(FIELD_NUMBER("TDP_NODE", node), FIELD_NUMBER("TDP_PAGE_SIZE", p->page_size),
                           FIELD_NUMBER("TDP_PAGES", p->total), FIELD_NUMBER("TDP_AVAILABLE", available)),
                    "Pool of %s on node %u: %" PRIu64 " of %" PRIu64 " pages can still be had",
                    format_bytes(p->page_size), node, available, p->total);
        bus_pool_low(m, node, p->page_size, available, p->total);
}

static bool compare_pool(Manager *m, const Node *n, const Pool *p, uint64_t available, bool *ret_low) {
        size_t k = 0;
        const Pool *old = seen(m, n->id, p->page_size, &k);
        bool changed;

        changed = !old || old->total != p->total || old->free != p->free || old->reserved != p->reserved ||
                  old->surplus != p->surplus || m->pools.available[k] != available;
        if (old && pool_persistent(old) != pool_persistent(p) && !pool_job_runs_on(m, n->id, p->page_size))
                log_message(MESSAGE_POOL_CHANGED,
                            FIELDS(FIELD_NUMBER("TDP_NODE", n->id),
                                   FIELD_NUMBER("TDP_PAGE_SIZE", p->page_size),
                                   FIELD_NUMBER("TDP_PAGES_BEFORE", pool_persistent(old)),
                                   FIELD_NUMBER("TDP_PAGES", pool_persistent(p))),
                            "Pool of %s on node %u: somebody else has changed it from %" PRIu64
                            " to %" PRIu64 " pages",
                            format_bytes(p->page_size), n->id, pool_persistent(old), pool_persistent(p));
        if (update_target(m, n->id, p))
                changed = true;
        tell_low(m, n->id, p, available, old && m->pools.low[k], ret_low);
        return changed;
}

void pools_look(Manager *m) {
        _cleanup_(look_done) Look now = {};
        size_t k = 0;
        int r;

        r = take_look(m, &now);
        if (r < 0) {
                log_full_errno(LOG_DEBUG, r, "The pools cannot be looked at now");
                return;
        }
        for (size_t i = 0; i < now.nodes->n_nodes; i++) {
                const Node *n = &now.nodes->nodes[i];
                bool changed = false;

                for (size_t p = 0; p < n->n_pools; p++, k++)
                        changed = compare_pool(m, n, &n->pools[p], now.available[k], &now.low[k]) || changed;
                if (changed && m->pools.seen) {
                        bus_pools_changed(m, n->id);
                        queue_kick(m);
                }
        }
        pools_tell_state(m);

        node_table_free(m->pools.seen);
        free(m->pools.available);
        free(m->pools.low);
        m->pools.seen = TAKE_PTR(now.nodes);
        m->pools.available = TAKE_PTR(now.available);
        m->pools.low = TAKE_PTR(now.low);
}

static int on_look(sd_event_source *s, uint64_t usec, void *userdata) {
        Manager *m = userdata;

        pools_look(m);
        (void) sd_event_source_set_time_relative(s, m->config.pools.watch_sec * UINT64_C(1000000));
        return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

void pools_look_soon(Manager *m) {
        uint64_t due, now;

        if (!m->pools.watch_source || sd_event_now(m->event, CLOCK_MONOTONIC, &now) < 0 ||
            sd_event_source_get_time(m->pools.watch_source, &due) < 0 || due <= now + SOON_USEC)
                return;
        (void) sd_event_source_set_time(m->pools.watch_source, now + SOON_USEC);
}

int pools_watch(Manager *m) {
        return sd_event_add_time_relative(m->event, &m->pools.watch_source, CLOCK_MONOTONIC,
                                          m->config.pools.watch_sec * UINT64_C(1000000), 0, on_look, m);
}
