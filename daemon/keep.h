/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What outlives the daemon: a record of each VM, and its memory and handle with the service manager.
 *
 * A VM is kept in three steps (its record is prepared, its descriptors are handed over, its record is
 * committed), and let go in the reverse order after its record says "released": wherever the daemon dies,
 * takeover.h knows what is whole, and undoes the rest.
 */

#include <systemd/sd-bus.h>

#include "fdstore.h"
#include "state.h"
#include "vm-state.h"

typedef struct Manager Manager;
typedef struct VM VM;

/* Embedded in each VM. */
typedef struct Kept {
        uint64_t lease;      /* 0: nothing is kept of it yet */
        bool memory, handle; /* the manager has them */
        bool dirty;          /* the record is older than the VM */
} Kept;

/* Of the manager. */
typedef struct Keeper {
        State *state;    /* NULL: nothing is kept */
        State *draining; /* records of what drains; NULL: there was none yet */
        FdStore *store;
        sd_event_source *flush;
        sd_event_source *retry;
        uint64_t retry_usec;
        uint32_t last_job; /* of those before us */
        char boot_id[40];
} Keeper;

/* Whether anything can be kept is found out here: "state_dir" may be NULL. */
int keeper_init(Manager *m, const char *state_dir);
void keeper_done(Manager *m);
/* Writes records and tells the service manager what could not be, a little later. */
void keeper_retry_later(Manager *m);
/* The same, for the last time: the daemon ends. */
void keeper_flush(Manager *m);
/* To be logged when the daemon ends: it cannot know if it is stopped or started again. */
void keeper_say_what_stays(Manager *m);

/* Keeps the VM, as if it were in that state.  Either all of that, or an error and what was kept before. */
int vm_keep(VM *vm, VMState state, sd_bus_error *error);
/* Its record is to be written again: soon, and then now and again until that works. */
void vm_keep_later(VM *vm);
/* The same, at once. */
void vm_keep_now(VM *vm);
/* Takes the descriptors back: closing them is up to us then.  "done" follows, maybe at once. */
int vm_unkeep(VM *vm, fdstore_done_t done, void *userdata, FdBarrier **ret);
/* By which this VM is known from others of its name: before it, after it, and on a restart. */
int vm_get_lease(VM *vm, uint64_t *ret);
/* Nothing is left of it. */
void vm_forget(VM *vm);
