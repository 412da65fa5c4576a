/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "populate.h"

#include <errno.h>
#include <inttypes.h>

#include "bus-error.h"
#include "format.h"

/* Large enough that mapping it costs nothing beside zeroing it, small enough to spread over threads. */
#define PIECE_BYTES MIB(64)

struct Populate {
        Worker *worker;
        Memory *memory;
        worker_done_t done;
        void *userdata;
};

Populate *populate_free(Populate *p) {
        if (!p)
                return NULL;
        worker_free(p->worker);
        free(p);
        return NULL;
}

static Worker *job_get_worker(void *work) {
        return ((Populate *) work)->worker;
}

static void job_free_work(void *work) {
        populate_free(work);
}

const JobOps populate_job = { .worker = job_get_worker, .free = job_free_work };

static uint64_t piece_size(const Memory *m) {
        return MAX_OF(PIECE_BYTES, m->page_size);
}

static bool go_on(void *userdata, uint64_t done) {
        Worker *w = userdata;

        worker_add_progress(w, done);
        return !worker_is_canceled(w);
}

static int populate_step(Worker *w, size_t lane, size_t piece, void *userdata) {
        Populate *p = userdata;
        MemoryPart *part = &p->memory->parts[lane];
        uint64_t unit = piece_size(p->memory), offset = piece * unit;

        return memory_part_populate(part, p->memory->page_size, offset, MIN_OF(unit, part->bytes - offset),
                                    go_on, w);
}

static void populate_done(Worker *w, int result, void *userdata) {
        Populate *p = userdata;

        p->done(w, result, p->userdata);
}

int populate_start(sd_event *event, Memory *m, const NodeTable *nodes, unsigned max_threads,
                   worker_done_t done, void *userdata, Populate **ret) {
        _cleanup_free_ WorkerLane *lanes = NULL;
        _cleanup_(populate_freep) Populate *p = NULL;
        uint64_t unit = piece_size(m);
        int r;

        lanes = calloc(m->n_parts, sizeof(WorkerLane));
        p = calloc(1, sizeof(*p));
        if (!lanes || !p)
                return -ENOMEM;
        *p = (Populate){ .memory = m, .done = done, .userdata = userdata };

        for (size_t i = 0; i < m->n_parts; i++) {
                const Node *node = node_table_find(nodes, m->parts[i].node);
                size_t pieces = (m->parts[i].bytes + unit - 1) / unit;
                unsigned cpus = node ? idset_count(&node->cpus) : 0;

                lanes[i] = (WorkerLane){ .n_pieces = pieces };
                if (node)
                        lanes[i].cpus = node->cpus;
                lanes[i].n_threads = (unsigned) MIN_OF(pieces, MIN_OF(MAX_OF(cpus, 1U), max_threads));
        }

        r = worker_start(event, lanes, m->n_parts, populate_step, populate_done, p, &p->worker);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(p);
        return 0;
}

int populate_set_error(Populate *p, int result, sd_bus_error *error) {
        const Memory *m = p->memory;
        const MemoryPart *part;
        size_t lane, piece;

        worker_failed_at(p->worker, &lane, &piece);
        part = &m->parts[MIN_OF(lane, m->n_parts - 1)];

        /* A page fault that finds no page is EFAULT, one that finds no memory at all ENOMEM. */
        if (result == -EFAULT || result == -ENOMEM || result == -ENOSPC)
                return sd_bus_error_setf(
                                error, TDP_ERROR_NO_PAGES,
                                "asked %" PRIu64 " pages of %s on node %u, and only %" PRIu64 " of %" PRIu64
                                " bytes could be allocated: another program took pages of that "
                                "node meanwhile, or a cgroup's limit is in the way; all is given back",
                                part->bytes / m->page_size, format_bytes(m->page_size), part->node,
                                worker_progress(p->worker), m->bytes);
        return sd_bus_error_setf(error, TDP_ERROR_FAILED,
                                 "allocating %" PRIu64 " bytes on node %u stopped after %" PRIu64
                                 " bytes: %s; all is given back",
                                 part->bytes, part->node, worker_progress(p->worker), strerror(-result));
}
