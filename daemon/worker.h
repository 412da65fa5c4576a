/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Slow work, cut into pieces and done by threads, so that the event loop never waits.
 *
 * A worker has lanes, usually one for each node: CPUs, a number of threads, and pieces that these threads
 * take one by one.  The first error, or a cancel, stops all lanes at the end of their current piece; system
 * calls that a signal can interrupt are interrupted until all threads have noticed.
 */

#include <systemd/sd-event.h>

#include "idset.h"

typedef struct Worker Worker;

typedef struct WorkerLane {
        IdSet cpus; /* empty: any */
        unsigned n_threads;
        size_t n_pieces;
        bool idle; /* whatever else wants to run goes first */
} WorkerLane;

/* Runs in a thread.  0, or a negative errno that ends the whole worker. */
typedef int (*worker_step_t)(Worker *w, size_t lane, size_t piece, void *userdata);
/* Runs in the event loop, once, when no thread is left.  -ECANCELED after a cancel.  May free the worker. */
typedef void (*worker_done_t)(Worker *w, int result, void *userdata);

int worker_start(sd_event *event, const WorkerLane *lanes, size_t n_lanes, worker_step_t step,
                 worker_done_t done, void *userdata, Worker **ret);
void worker_cancel(Worker *w);
/* Cancels and waits for the threads, if some are left. */
Worker *worker_free(Worker *w);
DEFINE_CLEANUP(Worker, worker_free);

/* For steps: */
bool worker_is_canceled(Worker *w);
void worker_add_progress(Worker *w, uint64_t bytes);
/* From here on the thread's system calls are not interrupted, whatever is canceled: it cleans up. */
void worker_block_cancel_signal(void);

/* For the event loop: */
uint64_t worker_progress(Worker *w);
/* Where the first error happened. */
void worker_failed_at(Worker *w, size_t *ret_lane, size_t *ret_piece);

/* To be called before the first thread or event loop is there. */
int worker_setup_signals(void);
