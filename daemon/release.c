/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>

#include "bus-vm.h"
#include "drain-keep.h"
#include "draining.h"
#include "format.h"
#include "log-message.h"
#include "process.h"
#include "queue.h"
#include "vm.h"
#include "warm.h"

#define GRACE_USEC (UINT64_C(300) * 1000)

struct VMWaiting {
        sd_bus_message *message;
        Charge charge;
};

void vm_waiting_done(VM *vm) {
        for (size_t i = 0; i < vm->n_waiting; i++) {
                sd_bus_message_unref(vm->waiting[i].message);
                charge_return(&vm->waiting[i].charge);
        }
        free(vm->waiting);
        vm->waiting = NULL;
        vm->n_waiting = 0;
}

/* Closing the last descriptor frees every page, and closing the handle unpins every page: seconds for a
 * large VM of small pages. */
static int reap_step(Worker *w, size_t lane, size_t piece, void *userdata) {
        VM *vm = userdata;

        if (piece == 0)
                vm->reap_handle = safe_close(vm->reap_handle);
        else
                vm->memory->parts[piece - 1].fd = safe_close(vm->memory->parts[piece - 1].fd);
        return 0;
}

static void vm_gone(VM *vm) {
        Manager *m = vm->manager;

        vm_forget(vm);
        for (size_t i = 0; i < vm->n_waiting; i++)
                (void) sd_bus_reply_method_return(vm->waiting[i].message, NULL);
        if (vm->job)
                job_end(vm->job);
        log_message(MESSAGE_VM_RELEASED, FIELDS(FIELD_VM(vm), FIELD_BYTES(vm->bytes)), "VM %s: released",
                    vm->name);
        bus_vm_removed(vm);
        pools_look_soon(vm->manager);
        vm_free(vm);
        queue_kick(m); /* there is room again */
        warm_kick(m->warm);
}

/* Ours is gone, and others still have its memory. */
static void vm_drains(VM *vm) {
        log_message(MESSAGE_VM_DRAINS, FIELDS(FIELD_VM(vm), FIELD_BYTES(drain_bytes(vm->drain))),
                    "VM %s: others have %s of its memory still, which is not free before they let go",
                    vm->name, format_bytes(drain_bytes(vm->drain)));
        if (draining_add(vm) < 0)
                (void) log_oom();
        vm_gone(vm);
}

/* Nobody has its memory any more. */
static void vm_drained(VM *vm) {
        drain_unkeep(vm->manager, vm->kept.lease);
        vm_gone(vm);
}

static void on_drained(Drain *d, void *userdata) {
        vm_drained(userdata);
}

static int on_grace(sd_event_source *s, uint64_t usec, void *userdata) {
        vm_drains(userdata);
        return 0;
}

static void on_reaped(Worker *w, int result, void *userdata) {
        VM *vm = userdata;

        if (!vm->drain || drain_is_over(vm->drain))
                return vm_drained(vm);
        if (vm->pidfd >= 0 && process_is_alive(vm->pidfd))
                return vm_drains(vm); /* to whom the memory belongs now */
        /* Others let go a little later than we hear of their end. */
        drain_notify(vm->drain, on_drained, vm);
        if (sd_event_add_time_relative(vm->manager->event, &vm->grace, CLOCK_MONOTONIC, GRACE_USEC, 0,
                                       on_grace, vm) < 0)
                vm_drains(vm);
}

static size_t n_reap_pieces(const VM *vm) {
        return 1 + (vm->memory ? vm->memory->n_parts : 0);
}

static int reap_in_loop(sd_event_source *s, void *userdata) {
        VM *vm = userdata;

        vm->grace = sd_event_source_disable_unref(vm->grace);
        for (size_t i = 0; i < n_reap_pieces(vm); i++)
                (void) reap_step(NULL, 0, i, vm);
        on_reaped(NULL, 0, vm);
        return 0;
}

static void start_reaper(VM *vm) {
        WorkerLane lane = { .n_threads = 1, .n_pieces = n_reap_pieces(vm) };

        /* The pins go before the pages that they hold. */
        vm->reap_handle = TAKE_FD(vm->handle);
        if (worker_start(vm->manager->event, &lane, 1, reap_step, on_reaped, vm, &vm->reaper) >= 0)
                return;
        log_warning("VM %s: no thread for the release, so the loop waits for it", vm->name);
        /* Not now: whoever has asked for the release may still need the VM. */
        if (sd_event_add_defer(vm->manager->event, &vm->grace, reap_in_loop, vm) < 0)
                (void) reap_in_loop(NULL, vm);
}

static void on_taken_back(void *userdata) {
        VM *vm = userdata;

        vm->barrier = fdbarrier_free(vm->barrier);
        start_reaper(vm);
}

/* From here on others may be all who have it, whatever becomes of us. */
static void watch_memory(VM *vm) {
        Manager *m = vm->manager;
        int r;

        r = vm->memory ? drain_new(m->drain_watch, vm->memory, &vm->drain) : 0;
        if (r < 0)
                log_warning_errno(r, "VM %s: it will not be seen if others keep its memory", vm->name);
        else if (vm->drain) {
                r = drain_keep(m, vm->name, vm->uid, vm->kept.lease, vm->drain);
                if (r < 0) /* once more, if it is of use */
                        log_debug("VM %s: the record of its memory cannot be written: %s", vm->name,
                                  strerror(-r));
        }
}

void vm_release_continue(VM *vm) {
        if (vm->leaving || vm->rest.work || (vm->healer && healer_is_stopping(vm->healer)))
                return;
        vm->leaving = true;
        vm->handle_source = sd_event_source_disable_unref(vm->handle_source);
        watch_memory(vm);
        if (vm_unkeep(vm, on_taken_back, vm, &vm->barrier) == 0)
                start_reaper(vm);
}

static int wait_for_release(VM *vm, const VMRelease *call) {
        struct VMWaiting *grown, *w;
        int r;

        if (!call)
                return 0;
        grown = reallocarray(vm->waiting, vm->n_waiting + 1, sizeof(*grown));
        if (!grown)
                return -ENOMEM;
        vm->waiting = grown;
        w = &vm->waiting[vm->n_waiting];
        *w = (struct VMWaiting){};
        r = charge_take(&w->charge, &vm->manager->accounts, call->uid, &(Amounts){ .calls = 1 },
                        call->error);
        if (r < 0)
                return r;
        w->message = sd_bus_message_ref(call->message);
        vm->n_waiting++;
        return 0;
}

int vm_release(VM *vm, const VMRelease *call) {
        int r;

        r = wait_for_release(vm, call);
        if (r < 0)
                return r;
        if (vm->releasing)
                return 0;

        vm->releasing = true;
        vm->pidfd_source = sd_event_source_disable_unref(vm->pidfd_source);
        vm_event(vm, VM_EVENT_RELEASE);

        queue_leave(vm);
        /* Threads use the memory and the handle until their job's end, which goes on from there. */
        if (vm->job && job_worker(vm->job) && !vm->job->failed)
                job_cancel(vm->job);
        else
                vm_release_continue(vm); /* or when the thread that heals has ended */
        return 0;
}
