/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The messages of one side, from what it knows. */

#include "handoff-record.h"

/* -EINVAL: what we know does not make a message, which is a defect of ours; it is in "problem". */
int handoff_say(const HandoffRecord *r, const HandoffId *self, HandoffSend what, uint64_t time_left_usec,
                uint8_t **ret, size_t *ret_size, HandoffProblem *problem);
/* To a message that is for nothing that goes on here: released, or this abort. */
int handoff_say_back(const HandoffMessage *to, const HandoffId *self, HandoffSend what,
                     const HandoffAbort *why, uint8_t **ret, size_t *ret_size, HandoffProblem *problem);
