/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vm.h"

#include <errno.h>
#include <inttypes.h>

#include "bus-error.h"
#include "bus-vm.h"
#include "clock.h"
#include "handoffs.h"
#include "log.h"
#include "name.h"
#include "quarantine.h"
#include "slots.h"

#define STATS_SHARE 20U

int vm_check_plain(const char *name, sd_bus_error *error) {
        if (!vm_name_is_valid(name))
                return sd_bus_error_setf(
                                error, TDP_ERROR_INVALID,
                                "name \"%.80s\"%s is not plain: use 1 to %u of A-Z, a-z, 0-9, '.', '_' and '-', "
                                "a letter or digit first",
                                name, strlen(name) > 80 ? "..." : "", VM_NAME_MAX);
        return 0;
}

int vm_check_name(Manager *m, const char *name, sd_bus_error *error) {
        const Quarantine *q;
        const VM *vm;
        int r;

        r = vm_check_plain(name, error);
        if (r < 0)
                return r;
        q = quarantine_find(m, name);
        if (q)
                return sd_bus_error_setf(
                                error, TDP_ERROR_NAME_TAKEN,
                                "there may be a VM \"%s\" already: %s is left alone, as %s; choose another name",
                                name, quarantine_what(q), quarantine_text(q));
        vm = vm_find(m, name);
        if (vm)
                return sd_bus_error_setf(
                                error, TDP_ERROR_NAME_TAKEN,
                                "there is a VM \"%s\" already%s, or choose another name", name,
                                vm->releasing ? ", whose memory is on its way back: wait for its end"
                                              : ": release it");
        return 0;
}

int vm_new(Manager *m, const char *name, uid_t uid, VMState state, const VMOptions *o, uint64_t bytes,
           sd_bus_error *error, VM **ret) {
        VM *vm;
        int r;

        /* For whoever has not asked: a record that is left alone would be written over. */
        r = vm_check_name(m, name, error);
        if (r < 0)
                return r;

        vm = calloc(1, sizeof(*vm));
        if (!vm)
                return -ENOMEM;
        vm->pidfd = vm->handle = vm->reap_handle = -1;
        vm->uid = uid;
        vm->state = state;
        vm->options = *o;
        vm->options.name = vm->options.cgroup = NULL; /* they go with the message */
        vm->kept.lease = o->lease;
        vm->generation = MAX_OF(handoff_seen(m, name), UINT64_C(1));
        vm->bytes = bytes;

        vm->name = strdup(name);
        if (!vm->name || sd_bus_path_encode("/org/tdpd1/vm", name, &vm->path) < 0) {
                vm_free(vm);
                return -ENOMEM;
        }
        r = charge_take(&vm->charge, &m->accounts, uid,
                        &(Amounts){ .vms = 1, .bytes = bytes, .fds = VM_FDS }, error);
        if (r < 0) {
                vm_free(vm);
                return r;
        }

        HASH_ADD_KEYPTR(hh, m->vms, vm->name, strlen(vm->name), vm);
        if (!vm->hh.tbl) {
                vm_free(vm);
                return -ENOMEM;
        }
        vm->manager = m;
        *ret = vm;
        return 0;
}

VM *vm_free(VM *vm) {
        if (!vm)
                return NULL;

        if (vm->manager)
                handoff_vm_changed(vm);
        job_free(vm->job);
        if (vm->rest.work)
                vm->rest.ops->free(vm->rest.work);
        healer_free(vm->healer);
        worker_free(vm->reaper);
        fdbarrier_free(vm->barrier);
        drain_free(vm->drain);
        sd_event_source_disable_unref(vm->grace);
        vm_events_done(vm);
        sd_event_source_disable_unref(vm->handle_source);
        sd_event_source_disable_unref(vm->pidfd_source);
        safe_close(vm->handle);
        safe_close(vm->reap_handle);
        safe_close(vm->pidfd);
        memory_free(vm->memory);
        vm_waiting_done(vm);
        spanset_done(&vm->built);
        spanset_done(&vm->let_go);
        spanset_done(&vm->added);
        if (vm->manager)
                HASH_DEL(vm->manager->vms, vm);
        charge_return(&vm->charge);
        free(vm->path);
        free(vm->cgroup);
        free(vm->name);
        free(vm);
        return NULL;
}

VM *vm_find(Manager *m, const char *name) {
        VM *vm;

        HASH_FIND_STR(m->vms, name, vm);
        return vm;
}

VM *vm_find_by_pid(Manager *m, pid_t pid) {
        VM *vm, *tmp;

        HASH_ITER (hh, m->vms, vm, tmp)
                if (vm->pid == pid && pid != 0)
                        return vm;
        return NULL;
}

void vm_event(VM *vm, VMEvent e) {
        VMState next = vm_state_next(vm->state, e);

        if (next < 0) {
                /* A bug of ours.  The VM is better left as it is. */
                log_error("VM %s: event %s does not fit state %s", vm->name, vm_event_to_string(e),
                          vm_state_to_string(vm->state));
                return;
        }
        log_debug("VM %s: %s -> %s (%s)", vm->name, vm_state_to_string(vm->state), vm_state_to_string(next),
                  vm_event_to_string(e));
        if (e == VM_EVENT_BUILD_START)
                vm->was_built = vm->state != VM_ATTACHED;
        vm->state = next;
        bus_vm_changed(vm, "State");
        /* What a client is told next is true for the daemon that comes next as well.  Holes come and go. */
        if (e == VM_EVENT_HOLE || e == VM_EVENT_HEALED)
                vm_keep_later(vm);
        else
                vm_keep_now(vm);
        handoff_vm_changed(vm);
}

void vm_set_stats(VM *vm, const struct kvm_gtdp_stats *stats, uint64_t cost_usec) {
        vm->stats = *stats;
        vm->has_stats = true;
        vm->stats_usec = clock_usec();
        vm->stats_cost_usec = cost_usec;

        /* The truth is in the page tables, and the state follows it. */
        if (vm->state == VM_BUILT && !vm_stats_are_whole(stats))
                vm_event(vm, VM_EVENT_HOLE);
        else if (vm->state == VM_HEALING && vm_stats_are_whole(stats))
                vm_event(vm, VM_EVENT_HEALED);
        if (vm->state == VM_BUILT)
                vm_events_healed(vm);
}

const struct kvm_gtdp_stats *vm_stats(VM *vm) {
        struct kvm_gtdp_stats stats;
        uint64_t start = clock_usec();

        if (vm->handle < 0)
                return NULL;
        /* A reading walks the page tables, and one client's GetAll asks a dozen times.  For large VMs of
         * small pages it takes long, and the event loop waits for it: a twentieth of its time is enough. */
        if (vm->has_stats && start - vm->stats_usec <= vm->stats_cost_usec * STATS_SHARE)
                return &vm->stats;

        if (handle_get_stats(vm->handle, &stats) < 0) /* it is about to go: the handle will say so */
                return NULL;
        /* A VMM that was attached to early makes its memory later. */
        if (!vm->memory)
                (void) slots_measure(vm->handle, &vm->bytes, &vm->page_size);
        vm_set_stats(vm, &stats, clock_usec() - start);
        return &vm->stats;
}

/* Nothing built has no holes either. */
bool vm_stats_are_whole(const struct kvm_gtdp_stats *stats) {
        return stats->hole_bytes == 0 && stats->built_bytes > 0;
}
