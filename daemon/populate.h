/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "job.h"
#include "memory.h"
#include "worker.h"

typedef struct Populate Populate;

typedef struct PopulateRequest {
        unsigned max_threads; /* for each part, and never more than its node has CPUs */
        bool idle;            /* in the background */
        /* Of each part, in whole pages; 0 bytes: all of it. */
        uint64_t offset, bytes;
} PopulateRequest;

/* Allocates and zeroes memory with threads on each part's node, and checks that it is there.  "m" must
 * outlive it.  "error" is set if it cannot be started. */
int populate_start(sd_event *event, Memory *m, const NodeTable *nodes, const PopulateRequest *request,
                   worker_done_t done, void *userdata, Populate **ret, sd_bus_error *error);
Populate *populate_free(Populate *p);
DEFINE_CLEANUP(Populate, populate_free);

extern const JobOps populate_job;
/* Says which part fell short, and by how much. */
int populate_set_error(Populate *p, int result, sd_bus_error *error);
