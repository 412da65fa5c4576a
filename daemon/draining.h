/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Memory of VMs that were released, and that another process has not let go of yet. */

#include "drain-record.h"
#include "drain-scan.h"
#include "manager.h"
#include "record.h"

typedef struct Draining {
        Manager *manager;
        char *name;
        uint64_t lease; /* that the VM had; 0: it was not kept */
        Drain *drain;
        /* What is not free yet is not free for its user either. */
        Charge charge;
        DrainPids holders;
        bool unkept; /* its record is to be written still */
        struct Draining *prev, *next;
} Draining;

/* Takes what is left of the VM's memory, and its charge. */
int draining_add(VM *vm);
/* What the daemon before has known of.  Takes the files out of the record. */
int draining_restore(Manager *m, DrainRecord *r);
/* The daemon before has let go of that VM, and maybe not told us of what it had yet.  To be called before
 * what came for it is closed. */
int draining_add_stored(Manager *m, const Record *r);
/* The VM of that lease lives on, with its memory. */
void draining_drop(Manager *m, uint64_t lease);
/* Writes records that could not be written before. */
int draining_keep_late(Manager *m);
void draining_done(Manager *m);
/* Somebody asks who has it.  What is known is a little old, and what is found is told. */
void draining_look(Manager *m);
