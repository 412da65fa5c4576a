/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The job that measures this host: how fast memory is populated, on each node and in each page size, and
 * what a leaf costs.  It takes pages that are free at that moment, half of them at most, and gives them
 * back. */

#include "job.h"

int calibrate_start(Manager *m, uid_t uid, Job **ret, sd_bus_error *error);
