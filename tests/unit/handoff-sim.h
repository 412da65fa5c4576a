/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Two hosts that hand one VM to and fro by the table, over a channel that loses, repeats, swaps and delays
 * messages, with daemons that die at any point. What is recorded survives, all else of a daemon does not;
 * VMs and their memory do (they are not the daemon's).
 */

#include "handoff-table.h"

#define SIM_IDS 5 /* attempts in one trace */

typedef struct SimStats {
        uint64_t traces, steps, crashes, lost, replayed, moved, moved_by_post_copy, kept, stale;
        uint64_t cells[_HANDOFF_STATE_MAX][_HANDOFF_EVENT_MAX];
} SimStats;

/* One trace. false: what should hold does not, and the whole trace has been told on stderr. */
bool sim_run(uint64_t seed, SimStats *stats);
