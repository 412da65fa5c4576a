/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Gives memory back from the end of files, in a thread: for small pages that takes seconds. */

#include "job.h"
#include "memory.h"

typedef struct Cut Cut;

/* All parts of "m" but for their first "keep" bytes.  "m" must outlive it. */
int cut_start(sd_event *event, Memory *m, uint64_t keep, worker_done_t done, void *userdata, Cut **ret);
Cut *cut_free(Cut *c);
DEFINE_CLEANUP(Cut, cut_free);

extern const JobOps cut_job;
