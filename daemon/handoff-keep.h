/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Records of handoffs, in folders of their own. */

#include "handoffs.h"

/* Writes it down, so that it survives what it has to. */
int handoff_keep(Handoff *h, const HandoffRecord *r);
int handoff_unkeep(Handoff *h);
/* Where that is. */
const char *handoff_keep_path(const Handoff *h);
