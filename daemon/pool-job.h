/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Changes of pools, as jobs.  One at a time on this host: two that write the same numbers lose one of them,
 * and two that compact memory hinder each other.  The others wait in a queue. */

#include "job.h"
#include "pool-resize.h"

typedef struct PoolJob PoolJob;

/* In the event loop, before the job ends: "r" is that of pool_resize(), and "result" NULL if that has not
 * begun. */
typedef void (*pool_job_done_t)(Manager *m, unsigned node, uint64_t page_size, const PoolRequest *request,
                                const PoolResult *result, int r, const sd_bus_error *error);

/* Whoever changes this pool now, it is us. */
bool pool_job_runs_on(Manager *m, unsigned node, uint64_t page_size);

/* Refuses what can be seen to be impossible: InvalidArgument, NoSuchNode, Unsupported. */
int pool_job_start(Manager *m, uid_t uid, unsigned node, uint64_t page_size, const PoolRequest *request,
                   pool_job_done_t done, Job **ret, sd_bus_error *error);
