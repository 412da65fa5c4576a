/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cut.h"

#include <errno.h>

/* What a cancel has to wait for. */
#define STEP_BYTES MIB(256)

struct Cut {
        Worker *worker;
        Memory *memory;
        uint64_t keep;
        worker_done_t done;
        void *userdata;
};

Cut *cut_free(Cut *c) {
        if (!c)
                return NULL;
        worker_free(c->worker);
        free(c);
        return NULL;
}

static Worker *job_get_worker(void *work) {
        return ((Cut *) work)->worker;
}

static void job_free_work(void *work) {
        cut_free(work);
}

const JobOps cut_job = { .worker = job_get_worker, .free = job_free_work };

static int cut_step(Worker *w, size_t lane, size_t piece, void *userdata) {
        Cut *c = userdata;
        const MemoryPart *part = &c->memory->parts[piece];
        uint64_t step = MAX_OF(STEP_BYTES, c->memory->page_size), size = part->bytes;

        while (size > c->keep) {
                if (worker_is_canceled(w))
                        return -EINTR;
                size -= MIN_OF(step, size - c->keep);
                if (ftruncate(part->fd, (off_t) size) < 0)
                        return -errno;
        }
        return 0;
}

static void cut_done(Worker *w, int result, void *userdata) {
        Cut *c = userdata;

        /* Claims count what is still there until all of it has gone. */
        if (result >= 0) {
                c->memory->bytes = 0;
                for (size_t i = 0; i < c->memory->n_parts; i++) {
                        MemoryPart *part = &c->memory->parts[i];

                        part->bytes = MIN_OF(part->bytes, c->keep);
                        c->memory->bytes += part->bytes;
                }
        }
        c->done(w, result, c->userdata);
}

int cut_start(sd_event *event, Memory *m, uint64_t keep, worker_done_t done, void *userdata, Cut **ret) {
        _cleanup_(cut_freep) Cut *c = NULL;
        WorkerLane lane = { .n_threads = 1, .n_pieces = m->n_parts };
        int r;

        c = calloc(1, sizeof(*c));
        if (!c)
                return -ENOMEM;
        *c = (Cut){ .memory = m, .keep = keep, .done = done, .userdata = userdata };
        r = worker_start(event, &lane, 1, cut_step, cut_done, c, &c->worker);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(c);
        return 0;
}
