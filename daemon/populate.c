/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "populate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "bus-error.h"
#include "format.h"

/* Large enough that taking one costs nothing beside zeroing it, small enough to spread over threads. */
#define PIECE_BYTES MIB(16)

struct Populate {
        Worker *worker;
        Memory *memory;
        PopulateRequest request;
        uint8_t **maps;       /* of each part */
        _Atomic size_t *left; /* pieces of each part that are not done */
        worker_done_t done;
        void *userdata;

        atomic_bool misplaced; /* then the following are set, by one thread */
        _Atomic uint64_t misplaced_offset;
        atomic_int misplaced_node;
};

static void unmap_parts(Populate *p) {
        for (size_t i = 0; p->maps && i < p->memory->n_parts; i++) {
                if (p->maps[i])
                        munmap(p->maps[i], p->memory->parts[i].bytes);
                p->maps[i] = NULL;
        }
}

Populate *populate_free(Populate *p) {
        if (!p)
                return NULL;
        worker_free(p->worker);
        unmap_parts(p);
        free(p->left);
        free(p->maps);
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

static uint64_t part_size(const Populate *p, size_t i) {
        uint64_t bytes = p->memory->parts[i].bytes;

        if (p->request.bytes == 0)
                return bytes;
        return bytes > p->request.offset ? MIN_OF(bytes - p->request.offset, p->request.bytes) : 0;
}

/*
 * One mapping for all threads, which none of them has to stop the others for to change; emptied by them, so
 * that it costs the event loop next to nothing to take it away.  While huge pages leave it the kernel lets
 * no other thread fault some in, so this is done once for all of a part: at its end, or when "r" says that
 * the rest will not be done.
 */
static void empty(Populate *p, size_t lane, uint64_t at, uint64_t size, int r) {
        if (p->memory->page_size != base_page_size()) {
                if (atomic_fetch_sub(&p->left[lane], 1) > 1 && r >= 0)
                        return;
                at = p->request.offset;
                size = part_size(p, lane);
        }
        (void) madvise(p->maps[lane] + at, size, MADV_DONTNEED);
}

static int populate_step(Worker *w, size_t lane, size_t piece, void *userdata) {
        Populate *p = userdata;
        MemoryPart *part = &p->memory->parts[lane];
        uint64_t unit = piece_size(p->memory), at = piece * unit,
                 size = MIN_OF(unit, part_size(p, lane) - at), wrong;
        uint8_t *map = p->maps[lane];
        int r, node;

        at += p->request.offset;
        r = memory_part_populate(part, map, p->memory->page_size, at, size, go_on, w);
        if (r < 0)
                goto end;
        r = memory_part_verify(part, map, p->memory->page_size, at, size, &wrong, &node);
        if (r == -EXDEV && !atomic_exchange(&p->misplaced, true)) {
                atomic_store(&p->misplaced_offset, wrong);
                atomic_store(&p->misplaced_node, node);
        }
end:
        empty(p, lane, at, size, worker_is_canceled(w) ? -ECANCELED : r);
        return r;
}

static void populate_done(Worker *w, int result, void *userdata) {
        Populate *p = userdata;

        unmap_parts(p); /* pages that are to go back now are free when the file is closed */
        p->done(w, result, p->userdata);
}

static int map_parts(Populate *p, sd_bus_error *error) {
        for (size_t i = 0; i < p->memory->n_parts; i++) {
                const MemoryPart *part = &p->memory->parts[i];
                const char *call;
                int r;

                r = memory_part_map(part, &p->maps[i], &call);
                if (r < 0)
                        return sd_bus_error_setf(
                                        error, TDP_ERROR_FAILED,
                                        "allocating %" PRIu64 " bytes on node %u: %s failed: %s%s",
                                        part->bytes, part->node, call, strerror(-r),
                                        r == -EPERM    ? ": a filter of system calls is in the way, as "
                                                         "containers have them"
                                        : r == -EINVAL ? ": the cpuset of tdpd's cgroup must have that node in "
                                                         "cpuset.mems"
                                                       : "");
        }
        return 0;
}

int populate_start(sd_event *event, Memory *m, const NodeTable *nodes, const PopulateRequest *request,
                   worker_done_t done, void *userdata, Populate **ret, sd_bus_error *error) {
        _cleanup_free_ WorkerLane *lanes = NULL;
        _cleanup_(populate_freep) Populate *p = NULL;
        uint64_t unit = piece_size(m);
        int r;

        lanes = calloc(m->n_parts, sizeof(WorkerLane));
        p = calloc(1, sizeof(*p));
        if (!lanes || !p)
                return -ENOMEM;
        *p = (Populate){ .memory = m, .request = *request, .done = done, .userdata = userdata };
        p->maps = calloc(m->n_parts, sizeof(*p->maps));
        p->left = calloc(m->n_parts, sizeof(*p->left));
        if (!p->maps || !p->left)
                return -ENOMEM;
        r = map_parts(p, error);
        if (r < 0)
                return r;

        for (size_t i = 0; i < m->n_parts; i++) {
                const Node *node = node_table_find(nodes, m->parts[i].node);
                size_t pieces = (part_size(p, i) + unit - 1) / unit;
                unsigned cpus = node ? idset_count(&node->cpus) : 0;

                atomic_store(&p->left[i], pieces);
                lanes[i] = (WorkerLane){ .n_pieces = pieces, .idle = request->idle };
                if (node)
                        lanes[i].cpus = node->cpus;
                lanes[i].n_threads =
                                (unsigned) MIN_OF(pieces, MIN_OF(MAX_OF(cpus, 1U), request->max_threads));
        }

        r = worker_start(event, lanes, m->n_parts, populate_step, populate_done, p, &p->worker);
        if (r < 0)
                return sd_bus_error_setf(error, TDP_ERROR_FAILED, "no threads to populate %s with: %s",
                                         format_bytes(m->bytes), strerror(-r));
        *ret = TAKE_PTR(p);
        return 0;
}

int populate_set_error(Populate *p, int result, sd_bus_error *error) {
        const Memory *m = p->memory;
        const MemoryPart *part;
        size_t lane, piece;

        worker_failed_at(p->worker, &lane, &piece);
        part = &m->parts[MIN_OF(lane, m->n_parts - 1)];

        if (result == -EXDEV)
                return sd_bus_error_setf(
                                error, TDP_ERROR_FAILED,
                                "asked for memory on node %u, and the kernel put what is at %" PRIu64
                                " of it on node %i: a cpuset that changes while memory is allocated does that; "
                                "all is given back",
                                part->node, atomic_load(&p->misplaced_offset),
                                atomic_load(&p->misplaced_node));
        if (result == -EHWPOISON)
                return sd_bus_error_setf(
                                error, TDP_ERROR_FAILED,
                                "memory of node %u is broken: the kernel's log says where, and takes "
                                "that page out of the pool; all is given back, ask again",
                                part->node);
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
