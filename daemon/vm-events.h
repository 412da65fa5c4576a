/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the kernel tells of a VM, and what of it the bus is told: once a second at most. */

#include <linux/kvm_gtdp.h>

#include "manager.h"

typedef struct Events {
        sd_event_source *timer;
        uint64_t told_usec;
        uint64_t lost[KVM_GTDP_HOLE_REASONS]; /* since it was last told */
        uint64_t healed_told;                 /* of the healer's count */
        bool slots_changed, dropped;
        bool slots_unknown; /* events were lost that may have told of one more */
        /* In the log once in a while, the bus has all. */
        uint64_t logged_usec[KVM_GTDP_HOLE_REASONS], logged_drop_usec;
        bool logged_loss; /* and not yet that it is healed */
} Events;

/* Reads all there is.  -ESRCH if the VM has gone; else an error means that no more will come. */
int vm_events_read(VM *vm);
/* There is something to tell: does it now or soon. */
void vm_events_tell(VM *vm);
void vm_events_done(VM *vm);
/* No holes are left: says so if the log has a loss. */
void vm_events_healed(VM *vm);
