/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "job.h"
#include "memory.h"
#include "worker.h"

typedef struct Populate Populate;

/* Allocates and zeroes all of a VM's memory, with threads on each part's node.  "m" must outlive it. */
int populate_start(sd_event *event, Memory *m, const NodeTable *nodes, unsigned max_threads,
                   worker_done_t done, void *userdata, Populate **ret);
Populate *populate_free(Populate *p);
DEFINE_CLEANUP(Populate, populate_free);

extern const JobOps populate_job;
/* Says which part fell short, and by how much. */
int populate_set_error(Populate *p, int result, sd_bus_error *error);
