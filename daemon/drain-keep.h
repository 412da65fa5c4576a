/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What drains outlives the daemon.  Before we let go of memory that others may have, a record says what it
 * is (in "draining" beside those of VMs); what watches it is with the service manager from the start.  The
 * next daemon goes on with both.  If the service manager has dropped the latter, as it does at a stop, who
 * has the memory is looked for (draining.c).
 */

#include "drain.h"
#include "manager.h"

/* Begins to watch, with what came from the daemon before. */
int drain_keep_start(Manager *m);
void drain_keep_done(Manager *m);

/* Nothing is kept, and 0, if the VM has no lease. */
int drain_keep(Manager *m, const char *name, uid_t uid, uint64_t lease, const Drain *d);
/* It is over. */
void drain_unkeep(Manager *m, uint64_t lease);
/* All that the records have.  Only a lack of memory is an error. */
int drain_take_over(Manager *m);
