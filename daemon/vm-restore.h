/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "manager.h"
#include "record.h"

/* Makes the VM of a record again, with the descriptors that have come for it, and goes on with what it was
 * doing.  Takes lists out of the record.  What has lost its descriptors is said to be lost, and is none any
 * more.  Only a lack of memory is an error. */
int vm_restore(Manager *m, Record *r);
/* Closes what has come for a lease and is taken by none. */
void vm_restore_undo(Manager *m, uint64_t lease);
/* The same for all VMs. */
void vm_restore_undo_extra(Manager *m);
/* Once all are charged for what they had: what has happened to them meanwhile, held to "limits". */
void vm_restore_catch_up(Manager *m, const AccountLimits *limits);
