/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vm-events.h"

#include <errno.h>

#include "bus-vm.h"
#include "format.h"
#include "log-message.h"
#include "vm-heal.h"
#include "vm.h"

#define BATCH     64U
#define TELL_USEC (UINT64_C(1) * 1000000)
/* A VM may lose and regain parts of its mapping all day. */
#define LOG_AGAIN_USEC (UINT64_C(600) * 1000000)

static bool has_lost(const Events *e) {
        for (unsigned i = 0; i < KVM_GTDP_HOLE_REASONS; i++)
                if (e->lost[i] > 0)
                        return true;
        return false;
}

static int on_tell(sd_event_source *s, uint64_t usec, void *userdata) {
        VM *vm = userdata;
        Events *e = &vm->events;
        uint64_t healed = vm->healer ? healer_counts(vm->healer).bytes : 0;

        (void) sd_event_now(vm->manager->event, CLOCK_MONOTONIC, &e->told_usec);
        if (vm->releasing)
                return 0;
        /* The state follows the page tables. */
        (void) vm_stats(vm);
        if (e->dropped || healed > e->healed_told || has_lost(e))
                bus_vm_holes_changed(vm, e->lost, healed - e->healed_told);
        if (e->slots_changed)
                bus_vm_slots_changed(vm);

        memset(e->lost, 0, sizeof(e->lost));
        e->healed_told = healed;
        e->slots_changed = e->dropped = false;
        /* Where statistics take long they are not read each time. */
        if (vm->healer && !vm_slots_check_auto_builds(vm))
                vm_events_tell(vm);
        return 0;
}

void vm_events_tell(VM *vm) {
        Events *e = &vm->events;
        uint64_t now = 0, when;
        int enabled = SD_EVENT_OFF, r;

        if (e->timer && sd_event_source_get_enabled(e->timer, &enabled) >= 0 && enabled != SD_EVENT_OFF)
                return;
        (void) sd_event_now(vm->manager->event, CLOCK_MONOTONIC, &now);
        when = e->told_usec == 0 ? now : MAX_OF(now, e->told_usec + TELL_USEC);
        if (!e->timer)
                r = sd_event_add_time(vm->manager->event, &e->timer, CLOCK_MONOTONIC, when, 1000, on_tell,
                                      vm);
        else {
                r = sd_event_source_set_time(e->timer, when);
                if (r >= 0)
                        r = sd_event_source_set_enabled(e->timer, SD_EVENT_ONESHOT);
        }
        if (r < 0)
                log_warning_errno(r, "VM %s: its changes cannot be told", vm->name);
}

void vm_events_done(VM *vm) {
        vm->events.timer = sd_event_source_disable_unref(vm->events.timer);
}

static bool log_is_due(VM *vm, uint64_t *usec) {
        uint64_t now = 0;

        (void) sd_event_now(vm->manager->event, CLOCK_MONOTONIC, &now);
        if (*usec != 0 && now < *usec + LOG_AGAIN_USEC)
                return false;
        *usec = now;
        return true;
}

void vm_events_healed(VM *vm) {
        if (!vm->events.logged_loss)
                return;
        vm->events.logged_loss = false;
        log_message(MESSAGE_HOLES_HEALED, FIELDS(FIELD_VM(vm), FIELD_BYTES(vm->stats.mapped_bytes)),
                    "VM %s: its mapping is whole again, %s", vm->name, format_bytes(vm->stats.mapped_bytes));
}

static void on_hole(VM *vm, const struct kvm_gtdp_event *ev) {
        const char *reason = handle_hole_reason_to_string(ev->reason) ?: "unknown reason";
        Events *e = &vm->events;

        if (ev->reason >= KVM_GTDP_HOLE_REASONS)
                return;
        log_debug("VM %s: lost %s in %s at 0x%" PRIx64 " (%s)", vm->name, format_bytes(ev->bytes),
                  format_bytes(ev->size), (uint64_t) ev->gpa, reason);
        if (log_is_due(vm, &e->logged_usec[ev->reason])) {
                e->logged_loss |= ev->reason != KVM_GTDP_HOLE_SLOT;
                log_message(MESSAGE_HOLE_LOST,
                            FIELDS(FIELD_VM(vm), FIELD_BYTES(ev->bytes), FIELD_TEXT("TDP_REASON", reason)),
                            "VM %s: %s of its mapping lost (%s); HoleReasons counts what follows", vm->name,
                            format_bytes(ev->bytes), reason);
        }
        e->lost[ev->reason] += ev->bytes;
        if (ev->bytes > 0 && vm->state == VM_BUILT && ev->reason != KVM_GTDP_HOLE_SLOT)
                vm_event(vm, VM_EVENT_HOLE);
        healer_hole(vm->healer, (Span){ .gpa = ev->gpa, .size = ev->size }, ev->reason);
}

static void on_dropped(VM *vm) {
        if (log_is_due(vm, &vm->events.logged_drop_usec))
                log_message(MESSAGE_EVENTS_DROPPED, FIELDS(FIELD_VM(vm)),
                            "VM %s: more changes than could be told one by one; all of it is looked at",
                            vm->name);
        vm->events.dropped = vm->events.slots_unknown = true;
        healer_everything(vm->healer);
}

int vm_events_read(VM *vm) {
        _cleanup_(spanset_done) SpanSet added = {};
        struct kvm_gtdp_event events[BATCH];
        bool slots = false;
        ssize_t n;

        /* As many as the kernel keeps; the loop calls again if there are more. */
        for (unsigned k = 0; k < KVM_GTDP_MAX_EVENTS / BATCH; k++) {
                n = handle_read_events(vm->handle, events, BATCH);
                if (n <= 0)
                        break;
                for (ssize_t i = 0; i < n; i++) {
                        const struct kvm_gtdp_event *ev = &events[i];
                        Span span = { .gpa = ev->gpa, .size = ev->size };

                        switch (ev->type) {
                        case KVM_GTDP_EVENT_HOLE:
                                on_hole(vm, ev);
                                break;
                        case KVM_GTDP_EVENT_SLOT_ADDED:
                                if (!(ev->reason & KVM_GTDP_SLOT_READONLY))
                                        (void) spanset_add(&added, span);
                                slots = true;
                                break;
                        case KVM_GTDP_EVENT_SLOT_REMOVED:
                                (void) spanset_remove(&added, span);
                                healer_slot_gone(vm->healer, span);
                                slots = true;
                                break;
                        case KVM_GTDP_EVENT_DROPPED:
                                on_dropped(vm);
                                slots = true;
                                break;
                        case KVM_GTDP_EVENT_SLOT_FLAGS:
                                slots = true;
                                break;
                        }
                }
                vm_events_tell(vm);
        }
        if (slots) {
                vm->events.slots_changed = true;
                vm_slots_update(vm, &added);
        }
        return n < 0 ? (int) n : 0;
}
