/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool-job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

#include "bus-error.h"
#include "bus-job.h"
#include "format.h"
#include "log.h"
#include "pool-cap.h"
#include "pool-error.h"
#include "pool-io.h"
#include "pools.h"

struct PoolJob {
        Manager *manager;
        Job *job;
        Worker *worker; /* NULL while it waits */
        PoolFiles files;
        PoolRequest request;
        PoolResult result;
        int r; /* of the thread's work; -ECANCELED as long as it has not begun */
        pool_job_done_t done;
        PoolJob *prev, *next;
};

static Worker *get_worker(void *work) {
        return ((PoolJob *) work)->worker;
}

static void tell(PoolJob *p, const sd_bus_error *error) {
        if (p->r < 0)
                job_fail(p->job, error);
        if (p->done)
                p->done(p->manager, p->files.node, p->files.page_size, &p->request,
                        p->result.looked ? &p->result : NULL, p->r, error);
}

bool pool_job_runs_on(Manager *m, unsigned node, uint64_t page_size) {
        const PoolJob *p = m->pools.queue;

        return p && p->worker && p->files.node == node && p->files.page_size == page_size;
}

/* A job that waits has no thread to cancel. */
static void cancel(void *work) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        PoolJob *p = work;

        if (p->worker || p->job->failed)
                return;
        sd_bus_error_set_const(&error, TDP_ERROR_CANCELED, "canceled before it began; nothing was changed");
        tell(p, &error);
        if (job_end_soon(p->job) < 0)
                job_end(p->job);
}

static int start_next_soon(Manager *m);

static void free_work(void *work) {
        PoolJob *p = work;
        Manager *m = p->manager;
        bool was_first = m->pools.queue == p;

        worker_free(p->worker);
        DL_DELETE(m->pools.queue, p);
        free(p);
        if (was_first && m->pools.queue && start_next_soon(m) < 0)
                log_warning("Changes of pools wait, and the event loop has no memory to start the next");
}

static const JobOps ops = { .worker = get_worker, .cancel = cancel, .free = free_work };

static int resize_step(Worker *w, size_t lane, size_t piece, void *userdata) {
        PoolJob *p = userdata;
        PoolIo io;

        p->files.worker = w;
        io = pool_files_io(&p->files);
        p->r = pool_resize(&io, &p->request, &p->result);
        return 0;
}

static void on_resized(Worker *w, int result, void *userdata) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        PoolJob *p = userdata;

        if (p->result.foreign != 0)
                log_info("Somebody else has %s %" PRIu64 " pages of %s meanwhile",
                         p->result.foreign > 0 ? "added to" : "taken from",
                         p->result.foreign > 0 ? (uint64_t) p->result.foreign
                                               : -(uint64_t) p->result.foreign,
                         p->job->what);
        /* A cancel that came too late has changed nothing, so it is what the thread says that counts. */
        if (p->r < 0)
                pool_set_error(p->files.node, p->files.page_size, &p->request, &p->result, p->r, &error);
        tell(p, &error);
        job_end(p->job);
}

static uint64_t wanted_pages(const Pool *p, const PoolRequest *q) {
        uint64_t there = pool_persistent(p);

        return q->mode == POOL_GROW     ? there + MIN_OF(q->pages, INT64_MAX / p->page_size)
               : q->mode == POOL_SHRINK ? there - MIN_OF(q->pages, there)
                                        : q->pages;
}

static int check_cap(Manager *m, const Node *n, const Pool *p, const PoolRequest *q, sd_bus_error *error) {
        uint64_t percent = m->config.pools.max_percent, wanted = wanted_pages(p, q),
                 cap = pool_cap_pages(n, p, percent);

        if (wanted <= cap)
                return 0;
        if (wanted > n->mem_total / p->page_size)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "%" PRIu64 " pages of %s are more than all memory of node %u, %s",
                                         wanted, format_bytes(p->page_size), n->id,
                                         format_bytes(n->mem_total));
        return sd_bus_error_setf(
                        error, TDP_ERROR_INVALID,
                        "%" PRIu64
                        " pages of %s would leave too little of node %u: %s of its %s stay out of all "
                        "its pools (MaxPercent=%" PRIu64
                        " in tdpd.conf, and 512 MiB at least below 100), so with "
                        "its other pools as they are this one can have %" PRIu64 " pages",
                        wanted, format_bytes(p->page_size), n->id, format_bytes(pool_cap_kept(n, percent)),
                        format_bytes(n->mem_total), percent, cap);
}

/* Pages of this pool that the configuration keeps for programs which have not taken them yet. */
static int read_facts(PoolJob *p, NodeTable **ret_nodes, sd_bus_error *error) {
        _cleanup_free_ Claim *claims = NULL;
        const Node *n;
        const Pool *pool;
        size_t n_claims;
        int r;

        r = manager_load_nodes(p->manager, ret_nodes, error);
        if (r < 0)
                return r;
        r = manager_claims(p->manager, &claims, &n_claims);
        if (r < 0)
                return r;
        n = node_table_find(*ret_nodes, p->files.node);
        pool = n ? node_find_pool(n, p->files.page_size) : NULL;
        p->request.keep = pool ? placement_set_aside(n, pool, claims, n_claims) : 0;
        /* Others that were queued before may have changed what there is. */
        return pool ? check_cap(p->manager, n, pool, &p->request, error) : 0;
}

static int start(PoolJob *p, sd_bus_error *error) {
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        WorkerLane lane = { .n_threads = 1, .n_pieces = 1 };
        const Node *n;
        int r;

        r = read_facts(p, &nodes, error);
        if (r < 0)
                return r;
        n = node_table_find(nodes, p->files.node);
        if (n)
                lane.cpus = n->cpus;
        return worker_start(p->manager->event, &lane, 1, resize_step, on_resized, p, &p->worker);
}

static int on_start(sd_event_source *s, void *userdata) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        Manager *m = userdata;
        PoolJob *p = m->pools.queue;
        int r;

        m->pools.start_source = sd_event_source_disable_unref(m->pools.start_source);
        if (!p || p->worker || p->job->failed) /* runs, or is about to end */
                return 0;
        r = start(p, &error);
        if (r >= 0)
                return 0;
        if (!sd_bus_error_is_set(&error))
                sd_bus_error_setf(&error, TDP_ERROR_FAILED, "%s cannot be changed: %s; nothing was changed",
                                  p->job->what, strerror(-r));
        p->r = r;
        tell(p, &error);
        job_end(p->job);
        return 0;
}

static int start_next_soon(Manager *m) {
        return m->pools.start_source ? 0 : sd_event_add_defer(m->event, &m->pools.start_source, on_start, m);
}

static int check(Manager *m, unsigned node, uint64_t page_size, const PoolRequest *q, uint64_t *ret_bytes,
                 sd_bus_error *error) {
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        _cleanup_free_ char *known = NULL;
        uint64_t there, wanted;
        const Pool *pool;
        const Node *n;
        int r;

        r = manager_load_nodes(m, &nodes, error);
        if (r < 0)
                return r;
        n = node_table_find(nodes, node);
        if (!n) {
                r = node_table_format_ids(nodes, &known);
                return r < 0 ? r
                             : sd_bus_error_setf(error, TDP_ERROR_NO_SUCH_NODE,
                                                 "node %u is not there: this host has %s", node, known);
        }
        pool = node_find_pool(n, page_size);
        if (!pool) {
                r = node_table_format_page_sizes(nodes, &known);
                return r < 0 ? r
                             : sd_bus_error_setf(
                                               error, TDP_ERROR_INVALID,
                                               "node %u has no pool of pages of %s: this host's sizes are %s, the first of "
                                               "which has no pool",
                                               node, format_bytes(page_size), known);
        }
        r = check_cap(m, n, pool, q, error);
        if (r < 0)
                return r;
        there = pool_persistent(pool);
        wanted = wanted_pages(pool, q);
        *ret_bytes = (wanted > there ? wanted - there : there - wanted) * page_size;
        return 0;
}

int pool_job_start(Manager *m, uid_t uid, unsigned node, uint64_t page_size, const PoolRequest *request,
                   pool_job_done_t done, Job **ret, sd_bus_error *error) {
        char path[64], what[96];
        uint64_t bytes = 0;
        PoolJob *p;
        Job *j;
        int r;

        r = check(m, node, page_size, request, &bytes, error);
        if (r < 0)
                return r;
        snprintf(path, sizeof(path), "/org/tdpd1/node/%u", node);
        snprintf(what, sizeof(what), "the pool of %s on node %u", format_bytes(page_size), node);
        r = job_new_for(m, path, what, uid, JOB_POOL, &j, error);
        if (r < 0)
                return r;

        p = calloc(1, sizeof(*p));
        if (!p) {
                job_free(j);
                return -ENOMEM;
        }
        *p = (PoolJob){
                .manager = m,
                .job = j,
                .files = { .sysfs_root = m->options.sysfs_root, .node = node, .page_size = page_size },
                .request = *request,
                .r = -ECANCELED,
                .done = done,
        };
        DL_APPEND(m->pools.queue, p);
        job_set_work(j, &ops, p);

        r = job_watch(j, JOB_PHASE_RESIZE, bytes);
        if (r >= 0)
                r = start_next_soon(m);
        if (r < 0) {
                job_free(j);
                return sd_bus_error_setf(error, TDP_ERROR_FAILED, "a change of %s cannot be started: %s",
                                         what, strerror(-r));
        }
        bus_job_added(j);
        *ret = j;
        return 0;
}
