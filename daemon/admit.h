/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What else must allow a VM its huge pages, besides the pools: limits of cgroups. */

#include "manager.h"

/*
 * Before pages are claimed.  "cgroup" is that of the VMM to be, or NULL if it is not known.  LimitExceeded,
 * in "error", names the cgroup and the file in the way.
 */
int admit_huge_pages(Manager *m, const char *cgroup, uint64_t page_size, uint64_t bytes,
                     sd_bus_error *error);
/* The VMM's half of that, for memory that is charged to us already. */
int admit_vmm(Manager *m, const char *cgroup, uint64_t page_size, uint64_t bytes, sd_bus_error *error);
