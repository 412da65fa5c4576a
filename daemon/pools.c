/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pools.h"

#include <errno.h>
#include <inttypes.h>
#include <systemd/sd-daemon.h>

#include "format.h"
#include "log-message.h"
#include "manager.h"
#include "pool-job.h"

#define RETRY_DOUBLE_MAX 5U

static const char *const state_table[_POOL_TARGET_STATE_MAX] = {
        [POOL_TARGET_WAITING] = "waiting",
        [POOL_TARGET_MET] = "met",
        [POOL_TARGET_SHORT] = "short",
        [POOL_TARGET_CHANGED] = "changed",
};

const char *pool_target_state_to_string(PoolTargetState s) {
        return s < _POOL_TARGET_STATE_MAX ? state_table[s] : NULL;
}

static PoolTarget *find(Manager *m, unsigned node, uint64_t page_size) {
        for (size_t i = 0; i < m->pools.n_targets; i++)
                if (m->pools.targets[i].node == node && m->pools.targets[i].page_size == page_size)
                        return &m->pools.targets[i];
        return NULL;
}

const PoolTarget *pools_find_target(Manager *m, unsigned node, uint64_t page_size) {
        return find(m, node, page_size);
}

bool pools_are_degraded(Manager *m) {
        for (size_t i = 0; i < m->pools.n_targets; i++) {
                const PoolTarget *t = &m->pools.targets[i];

                if (t->state == POOL_TARGET_SHORT || (t->state == POOL_TARGET_CHANGED && t->got < t->pages))
                        return true;
        }
        return false;
}

void pools_tell_state(Manager *m) {
        bool degraded = pools_are_degraded(m);

        if (degraded == m->pools.degraded)
                return;
        m->pools.degraded = degraded;
        (void) sd_bus_emit_properties_changed(m->bus, "/org/tdpd1", "org.tdpd1.Manager", "State", NULL);
        (void) sd_notifyf(false, "STATUS=%s",
                          degraded ? "Degraded: a page pool is short of its target, see \"tdpctl pools\"."
                                   : "Serving org.tdpd1.");
}

static int add(Manager *m, const PoolSpec *s) {
        PoolTarget *grown = reallocarray(m->pools.targets, m->pools.n_targets + 1, sizeof(*grown));

        if (!grown)
                return -ENOMEM;
        m->pools.targets = grown;
        grown[m->pools.n_targets++] = (PoolTarget){
                .node = s->node,
                .page_size = s->page_size,
                .pages = s->pages,
        };
        return 0;
}

static void retry_later(Manager *m);

static void on_target_done(Manager *m, unsigned node, uint64_t page_size, const PoolRequest *q,
                           const PoolResult *result, int r, const sd_bus_error *error) {
        PoolTarget *t = find(m, node, page_size);

        if (!t || t->pages != q->pages) /* configured anew meanwhile, and another job is under way */
                return;
        if (result)
                t->got = result->after;
        /* Whoever has canceled it does not want it tried again. */
        t->state = r == -ECANCELED ? POOL_TARGET_CHANGED : r < 0 ? POOL_TARGET_SHORT : POOL_TARGET_MET;
        if (t->state == POOL_TARGET_SHORT)
                retry_later(m);
        else if (r >= 0)
                m->pools.n_retries = 0;
        pools_look(m);
}

static void apply(Manager *m, PoolTarget *t) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        PoolRequest q = { .mode = POOL_SET, .pages = t->pages, .allow_partial = true };
        Job *j;

        t->state = POOL_TARGET_WAITING;
        if (pool_job_start(m, JOB_NO_UID, t->node, t->page_size, &q, on_target_done, &j, &error) >= 0)
                return;
        /* It may come: nodes and their memory can be plugged in. */
        t->state = POOL_TARGET_SHORT;
        log_message(MESSAGE_POOL_SHORT,
                    FIELDS(FIELD_NUMBER("TDP_NODE", t->node), FIELD_NUMBER("TDP_PAGE_SIZE", t->page_size),
                           FIELD_NUMBER("TDP_PAGES", t->pages)),
                    "Configured are %" PRIu64 " pages of %s on node %u: %s", t->pages,
                    format_bytes(t->page_size), t->node, error.message ?: "no memory for the daemon itself");
        retry_later(m);
}

static int on_retry(sd_event_source *s, uint64_t usec, void *userdata) {
        Manager *m = userdata;

        m->pools.retry_source = sd_event_source_disable_unref(m->pools.retry_source);
        /* What is under way may change what was short, or what it is to be. */
        if (m->pools.queue) {
                retry_later(m);
                return 0;
        }
        pools_look(m);
        for (size_t i = 0; i < m->pools.n_targets; i++)
                if (m->pools.targets[i].state == POOL_TARGET_SHORT)
                        apply(m, &m->pools.targets[i]);
        return 0;
}

static void retry_later(Manager *m) {
        uint64_t sec = m->config.pools.retry_sec << MIN_OF(m->pools.n_retries, RETRY_DOUBLE_MAX);

        if (m->pools.retry_source)
                return;
        m->pools.n_retries++;
        if (sd_event_add_time_relative(m->event, &m->pools.retry_source, CLOCK_MONOTONIC,
                                       sec * UINT64_C(1000000), 0, on_retry, m) < 0)
                log_warning("Short pools will not be tried again: no memory for the daemon itself");
}

void pools_reconfigure(Manager *m) {
        const PoolSpecs *specs = &m->config.pools.targets;
        PoolTarget *old = m->pools.targets;
        size_t n_old = m->pools.n_targets;

        m->pools.targets = NULL;
        m->pools.n_targets = 0;
        m->pools.n_retries = 0;
        for (size_t i = 0; i < specs->n; i++)
                if (add(m, &specs->specs[i]) < 0)
                        log_oom();

        for (size_t i = 0; i < m->pools.n_targets; i++) {
                PoolTarget *t = &m->pools.targets[i];
                bool same = false;

                for (size_t k = 0; k < n_old && !same; k++)
                        if (old[k].node == t->node && old[k].page_size == t->page_size &&
                            old[k].pages == t->pages && old[k].state <= POOL_TARGET_MET) {
                                *t = old[k];
                                same = true;
                        }
                if (!same)
                        apply(m, t);
        }
        free(old);
        pools_look(m);
}

int pools_start(Manager *m) {
        int r;

        r = pools_watch(m);
        if (r < 0)
                return log_error_errno(r, "The pools cannot be watched");
        pools_reconfigure(m);
        return 0;
}

void pools_done(Manager *m) {
        sd_event_source_disable_unref(m->pools.start_source);
        sd_event_source_disable_unref(m->pools.retry_source);
        sd_event_source_disable_unref(m->pools.watch_source);
        node_table_free(m->pools.seen);
        free(m->pools.targets);
        free(m->pools.available);
        free(m->pools.low);
        m->pools = (Pools){};
}

static void on_set_done(Manager *m, unsigned node, uint64_t page_size, const PoolRequest *q,
                        const PoolResult *result, int r, const sd_bus_error *error) {
        PoolSpec s = { .node = node, .page_size = page_size };
        PoolTarget *t = find(m, node, page_size);

        /* If all is as before, so is what was wanted. */
        if (result && (r >= 0 || !result->restored)) {
                if (!t && add(m, &s) >= 0)
                        t = find(m, node, page_size);
                if (t) {
                        t->pages = t->got = result->after;
                        t->state = POOL_TARGET_MET;
                }
        }
        pools_look(m);
}

int pools_set(Manager *m, uid_t uid, unsigned node, uint64_t page_size, const PoolRequest *request,
              Job **ret, sd_bus_error *error) {
        return pool_job_start(m, uid, node, page_size, request, on_set_done, ret, error);
}
