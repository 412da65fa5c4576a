/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What handoffs have come to since the daemon was started, by side: for metrics, so what may be counted is
 * known beforehand. */

#include <systemd/sd-bus.h>

#include "handoff-record.h"

typedef struct HandoffCounts {
        struct {
                uint64_t committed;
                uint64_t aborted[_HANDOFF_REASON_MAX]; /* 0: for a reason of a newer version */
        } sides[HANDOFF_DESTINATION + 1];
} HandoffCounts;

/* It was in that state, and is in that of its record. Each handoff counts once: when it is known who has the
 * VM. */
void handoff_count(HandoffCounts *c, HandoffState before, const HandoffRecord *r);
/* As a(sst): role, "committed" or the reason that it is off, how often. What never was is not in it. */
int handoff_counts_append(const HandoffCounts *c, sd_bus_message *reply);
