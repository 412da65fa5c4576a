/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The VMM adds and takes away memory: what of it is ours, and who pays. */
#include <errno.h>
#include <inttypes.h>

#include "clock.h"
#include "format.h"
#include "log-message.h"
#include "slots.h"
#include "vm-heal.h"
#include "vm.h"

/* What the VM costs its user, with all that has come and gone since the build. */
static uint64_t charge_now(const VM *vm, const Slots *slots) {
        uint64_t bytes = slots->bytes - MIN_OF(slots->bytes, spanset_bytes(&vm->let_go));

        if (bytes >= vm->built_slots_bytes)
                return vm->built_charge + (bytes - vm->built_slots_bytes);
        /* Memory of ours is there whether the VMM uses it or not. */
        if (vm->memory)
                return vm->built_charge;
        return vm->built_charge - MIN_OF(vm->built_charge, vm->built_slots_bytes - bytes);
}

/* The kernel has built it already, before its VMM went on.  What may not be pinned is let go again. */
static void refuse(VM *vm, const SpanSet *added, const sd_bus_error *error) {
        log_message(MESSAGE_ADDED_NOT_PINNED,
                    FIELDS(FIELD_VM(vm), FIELD_BYTES(spanset_bytes(added)),
                           FIELD_TEXT("TDP_ERROR", error->name)),
                    "VM %s: memory that was added, %s, is mapped and not pinned: %s", vm->name,
                    format_bytes(spanset_bytes(added)), error->message);
        for (size_t i = 0; i < added->n; i++) {
                (void) spanset_add(&vm->let_go, added->spans[i]);
                (void) spanset_remove(&vm->built, added->spans[i]);
                healer_let_go(vm->healer, added->spans[i]);
        }
}

bool vm_slots_check_auto_builds(VM *vm) {
        const struct kvm_gtdp_stats *stats = vm_stats(vm);

        if (vm->added.n == 0)
                return true;
        if (!stats || vm->stats_usec < vm->added_usec)
                return !stats;
        if (stats->auto_errors != vm->auto_errors) {
                log_message_errno(
                                MESSAGE_ADDED_NOT_BUILT, (int) stats->auto_last_error, FIELDS(FIELD_VM(vm)),
                                "VM %s: memory that was added could not be built in full, healing tries again",
                                vm->name);
                for (size_t i = 0; i < vm->added.n; i++)
                        healer_hole(vm->healer, vm->added.spans[i], KVM_GTDP_HOLE_OTHER);
        }
        vm->auto_errors = stats->auto_errors;
        spanset_done(&vm->added);
        return true;
}

/* After events were lost: what is there and was neither built nor let go has been added, as far as we know.
 */
static int find_added(VM *vm, const Slots *slots, SpanSet *ret) {
        const SpanSet *known[] = { &vm->built, &vm->let_go };
        int r = 0;

        for (size_t i = 0; i < slots->all.n && r >= 0; i++)
                r = spanset_add(ret, slots->all.spans[i]);
        for (size_t k = 0; k < ELEMENTSOF(known); k++)
                for (size_t i = 0; i < known[k]->n && r >= 0; i++)
                        r = spanset_remove(ret, known[k]->spans[i]);
        return r;
}

void vm_slots_update(VM *vm, const SpanSet *added) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(spanset_done) SpanSet found = {};
        _cleanup_(slots_done) Slots slots = {};
        bool more;
        int r;

        r = slots_read(vm->handle, &slots);
        /* What is being built is known when that ends. */
        if (r >= 0 && vm->events.slots_unknown && vm->state != VM_BUILDING) {
                r = find_added(vm, &slots, &found);
                added = &found;
                vm->events.slots_unknown = r < 0;
        }
        more = added && added->n > 0 && vm->auto_slots;
        for (size_t i = 0; more && i < added->n && r >= 0; i++) {
                r = spanset_add(&vm->built, added->spans[i]);
                if (r >= 0)
                        r = spanset_remove(&vm->let_go, added->spans[i]);
        }
        if (r >= 0)
                r = spanset_intersect(&vm->built, &slots.all);
        if (r >= 0)
                r = spanset_intersect(&vm->let_go, &slots.all);
        if (r < 0) {
                if (r != -ESRCH) /* it is about to go: the handle will say so */
                        log_warning_errno(r, "VM %s: its slots cannot be read", vm->name);
                return;
        }
        if (!vm->memory) {
                vm->bytes = slots.bytes;
                vm->page_size = slots.page_size;
        }
        if (vm->healer)
                healer_set_logging(vm->healer, &slots.logging);

        vm_keep_later(vm);

        /* Without AUTO nothing is pinned before the next build, and that is when it is charged. */
        if (!vm->auto_slots)
                return;
        r = charge_resize(&vm->charge, charge_now(vm, &slots), &error);
        if (r < 0 && more)
                refuse(vm, added, &error);
        else if (more) {
                vm->added_usec = clock_usec();
                for (size_t i = 0; i < added->n; i++)
                        (void) spanset_add(&vm->added, added->spans[i]);
        }
}
