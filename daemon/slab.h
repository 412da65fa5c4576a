/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Memory on one node that was zeroed before anybody asked for it.  Its file is not sealed, so that its end
 * can be cut off, and so nobody gets it before it is a VM's.  It serves one VM, once: what a VM has had is
 * given back to the kernel, which zeroes it for whoever is next.
 */

#include "manager.h"
#include "memory.h"
#include "populate.h"
#include "warm-pick.h"
#include "warm-spec.h"

typedef struct Slab {
        Manager *manager;
        WarmSpec spec; /* what it was made for */
        Memory *memory;
        uint64_t filled;    /* by steps that have ended */
        Populate *populate; /* of the step that runs */
        struct Slab *prev, *next;
} Slab;

/* Claims the pages.  NoPages, in "error", if there are none. */
int slab_new(Manager *m, const WarmSpec *spec, Slab **ret, sd_bus_error *error);
/* Gives all back.  Waits for the step that runs: for a page of 1 GiB, or a few MiB of smaller ones. */
Slab *slab_free(Slab *s);
DEFINE_CLEANUP(Slab, slab_free);

/* Fills a bit more of it in the background; slab_step_done() is to be called at its end. */
int slab_step(Slab *s, worker_done_t done, void *userdata, sd_bus_error *error);
/* Takes account of a step that has come to its end, or sets the error that it ended with. */
int slab_step_done(Slab *s, int result, sd_bus_error *error);
/* The step that runs is to end, with -ECANCELED: its pages are needed. */
void slab_cancel(Slab *s);
/* And has. */
void slab_step_canceled(Slab *s);
/* Threads that a step may have. */
unsigned slab_threads(const Manager *m, const NodeTable *nodes, unsigned node);

static inline bool slab_is_ready(const Slab *s) {
        return s->filled == s->memory->bytes;
}

static inline SlabFacts slab_facts(const Slab *s) {
        return (SlabFacts){
                .node = s->memory->parts[0].node,
                .page_size = s->memory->page_size,
                .bytes = s->memory->bytes,
                .filled = s->memory->bytes - memory_part_unallocated(&s->memory->parts[0]),
                .ready = slab_is_ready(s),
        };
}
