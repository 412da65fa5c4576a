/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <systemd/sd-bus.h>

#include "worker.h"

typedef struct Build Build;

/* Has all slots of the VM behind the handle built.  The handle must stay open until the worker is freed. */
int build_start(sd_event *event, int handle, uint32_t max_level, const IdSet *cpus, unsigned max_threads,
                worker_done_t done, void *userdata, Build **ret);
Build *build_free(Build *b);
DEFINE_CLEANUP(Build, build_free);

Worker *build_worker(Build *b);
uint64_t build_total(const Build *b);
int build_set_error(Build *b, int result, sd_bus_error *error);
