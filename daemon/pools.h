/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What is kept of this host's pools between two looks at them: what size they are to have, who is changing
 * them, and what was seen last, to notice others' changes.
 */

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

#include "node.h"
#include "pool-resize.h"
#include "pool-spec.h"

typedef struct Manager Manager;
typedef struct Job Job;

typedef enum PoolTargetState {
        POOL_TARGET_WAITING, /* for its job, or the job's end */
        POOL_TARGET_MET,
        POOL_TARGET_SHORT,   /* tried again, later and later */
        POOL_TARGET_CHANGED, /* somebody else has changed it since, or canceled it; left alone */
        _POOL_TARGET_STATE_MAX,
} PoolTargetState;

typedef struct PoolTarget {
        unsigned node;
        uint64_t page_size;
        uint64_t pages;
        uint64_t got; /* when last looked at */
        PoolTargetState state;
} PoolTarget;

typedef struct Pools {
        struct PoolJob *queue; /* the first one runs */
        sd_event_source *start_source;

        PoolTarget *targets;
        size_t n_targets;
        unsigned n_retries; /* since something was met */
        sd_event_source *retry_source;
        bool degraded; /* as last told */

        NodeTable *seen;
        uint64_t *available; /* pages of each pool in "seen", in order */
        bool *low;           /* and told */
        sd_event_source *watch_source;
} Pools;

const char *pool_target_state_to_string(PoolTargetState s);

/* Starts to watch, and makes the jobs for what the configuration asks for. */
int pools_start(Manager *m);
/* The configuration has changed.  Pools that it asks nothing else for than before are left alone. */
void pools_reconfigure(Manager *m);
void pools_done(Manager *m);

/* "uid" wants it so now.  What is reached becomes the target until tdpd or its configuration starts anew. */
int pools_set(Manager *m, uid_t uid, unsigned node, uint64_t page_size, const PoolRequest *request,
              Job **ret, sd_bus_error *error);
const PoolTarget *pools_find_target(Manager *m, unsigned node, uint64_t page_size);
/* A configured pool has fewer pages than it is to have. */
bool pools_are_degraded(Manager *m);

/* Tells the bus if that has changed. */
void pools_tell_state(Manager *m);

/* pool-watch.c: looks at the pools now, and tells the bus what has changed. */
void pools_look(Manager *m);
/* The same within a moment: we have just taken or given back pages. */
void pools_look_soon(Manager *m);
int pools_watch(Manager *m);
