/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Long calls into the kernel for all of a VM's memory or a span of it: build, heal, split, collapse. */

#include <systemd/sd-bus.h>

#include "handle.h"
#include "job.h"
#include "span.h"
#include "worker.h"

typedef struct BuildRequest {
        HandleOp op;
        uint32_t max_level;
        const SpanSet *within; /* NULL: all slots */
        IdSet cpus;
        unsigned max_threads;
} BuildRequest;

typedef struct Build Build;

/* The handle must stay open until the worker is freed. */
int build_start(sd_event *event, int handle, const BuildRequest *request, worker_done_t done, void *userdata,
                Build **ret);
Build *build_free(Build *b);
DEFINE_CLEANUP(Build, build_free);

extern const JobOps build_job;
uint64_t build_total(const Build *b);
HandleOp build_op(const Build *b);
/* At its end: what it has come through. */
const SpanSet *build_covers(const Build *b);
int build_set_error(Build *b, int result, sd_bus_error *error);

/* For steps of workers: one piece, in as many calls as it takes.  It advances, and adds to the progress. */
int build_piece(Worker *w, int handle, HandleOp op, Span *piece, uint32_t max_level);
