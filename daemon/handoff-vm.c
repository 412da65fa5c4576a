/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdio.h>
#include <utlist.h>

#include "bus-error.h"
#include "handoff-keep.h"
#include "handoff-work.h"
#include "log.h"
#include "vm.h"

static bool is_of(const Handoff *h, const VM *vm) {
        return vm->kept.lease != 0 && h->r.lease == vm->kept.lease && !handoff_state_is_final(h->r.state);
}

Handoff *handoff_find_by_vm(const VM *vm, HandoffRole side) {
        Handoff *h;

        if (vm->manager->handoffs)
                DL_FOREACH (vm->manager->handoffs->list, h)
                        if (h->r.side == side && is_of(h, vm))
                                return h;
        return NULL;
}

void handoff_vm_changed(VM *vm) {
        Handoff *h;

        if (!vm->manager->handoffs)
                return;
        DL_FOREACH (vm->manager->handoffs->list, h)
                if (is_of(h, vm)) {
                        if (vm->job && vm->job->failed) {
                                snprintf(h->why, sizeof(h->why), "%s", vm->job->error.message);
                                snprintf(h->error_name, sizeof(h->error_name), "%s", vm->job->error.name);
                        }
                        handoff_look_soon(h);
                }
}

void handoff_vm_memory_taken(VM *vm) {
        Handoff *h = handoff_find_by_vm(vm, HANDOFF_DESTINATION);

        if (!h || h->r.memory_taken)
                return;
        h->r.memory_taken = true;
        /* The next daemon may have to ask for it again, and no more than that. */
        if (handoff_keep(h, &h->r) < 0)
                log_debug("Handoff %s: it is not written down that its memory is handed out", h->key);
}

static int refuse(const Handoff *h, sd_bus_error *error) {
        return sd_bus_error_setf(error, TDP_ERROR_BUSY,
                                 "VM \"%s\" is being handed over (%s, %s): wait for the end, or cancel "
                                 "handoff %s first",
                                 h->r.name, handoff_role_to_string(h->r.side),
                                 handoff_state_to_string(h->r.state), h->key);
}

int handoff_check_release(const VM *vm, sd_bus_error *error) {
        const Handoff *h = handoff_find_by_vm(vm, HANDOFF_SOURCE);

        if (h && h->r.state != HANDOFF_S_UNDOING && h->r.state != HANDOFF_S_RELEASING)
                return refuse(h, error);
        h = handoff_find_by_vm(vm, HANDOFF_DESTINATION);
        if (h && !handoff_state_owns(h->r.state) && h->r.state != HANDOFF_D_FREEING)
                return refuse(h, error);
        return 0;
}

int handoff_check_build(const VM *vm, sd_bus_error *error) {
        const Handoff *h = handoff_find_by_vm(vm, HANDOFF_SOURCE);

        if (h && h->r.state >= HANDOFF_S_STARTED)
                return refuse(h, error);
        h = handoff_find_by_vm(vm, HANDOFF_DESTINATION);
        if (h && h->r.state == HANDOFF_D_VERIFYING)
                return refuse(h, error);
        return 0;
}
