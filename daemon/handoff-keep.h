/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Records of handoffs, in a folder for each side. Those of a source are beside the records of VMs, and as
 * void as they are after a reboot. Those of a destination are where they survive one: the source may ask
 * then.
 */

#include "handoffs.h"

/* Writes it down.  Without a folder for records a source's is not, as nothing of this tdpd outlives it. */
int handoff_keep(Handoff *h, const HandoffRecord *r);
int handoff_unkeep(Handoff *h);
/* Where that is. */
const char *handoff_keep_path(const Handoff *h);

/* Takes over what the tdpd before has left, once its VMs are.  What cannot be made out is left alone. */
int handoff_take_over(Manager *m);
void handoff_keep_done(Manager *m);
/* Drops what has ended long ago, or if there is too much of it. */
void handoff_forget_old(Manager *m);
