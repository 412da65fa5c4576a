/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A message against the handoff that it claims to belong to: what it is for that side. */

#include "handoff-table.h"

/* What a record says of its handoff. */
typedef struct HandoffIdentity {
        HandoffRole side;
        HandoffId id;
        HandoffId grant;      /* not set: there is none yet */
        HandoffId self, peer; /* hosts; a source knows its peer from the answer on */
        const char *vm;
        uint64_t generation;
} HandoffIdentity;

/* -EBADMSG with *problem set (HANDOFF_MISMATCH) for what was written for another handoff, host, side or
 * generation. */
int handoff_match(const HandoffIdentity *h, const HandoffMessage *m, HandoffEvent *ret,
                  HandoffProblem *problem);
