/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>

#include "bus-vm.h"
#include "log-message.h"
#include "vm.h"
#include "warm.h"

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

        for (size_t i = 0; i < vm->n_waiting; i++)
                (void) sd_bus_reply_method_return(vm->waiting[i], NULL);
        if (vm->job)
                job_end(vm->job);
        log_message(MESSAGE_VM_RELEASED, FIELDS(FIELD_VM(vm), FIELD_BYTES(vm->bytes)), "VM %s: released",
                    vm->name);
        bus_vm_removed(vm);
        vm_free(vm);
        warm_kick(m->warm); /* there is room again */
}

static void on_reaped(Worker *w, int result, void *userdata) {
        vm_gone(userdata);
}

void vm_release_continue(VM *vm) {
        WorkerLane lane = { .n_threads = 1 };

        if (vm->reaper || (vm->healer && healer_is_stopping(vm->healer)))
                return;

        /* The pins go before the pages that they hold. */
        vm->handle_source = sd_event_source_disable_unref(vm->handle_source);
        vm->reap_handle = TAKE_FD(vm->handle);
        lane.n_pieces = 1 + (vm->memory ? vm->memory->n_parts : 0);
        if (worker_start(vm->manager->event, &lane, 1, reap_step, on_reaped, vm, &vm->reaper) < 0) {
                log_warning("VM %s: no thread for the release, so the loop waits for it", vm->name);
                vm_gone(vm);
        }
}

static int wait_for_release(VM *vm, sd_bus_message *message) {
        sd_bus_message **grown;

        if (!message)
                return 0;
        grown = reallocarray(vm->waiting, vm->n_waiting + 1, sizeof(*grown));
        if (!grown)
                return -ENOMEM;
        vm->waiting = grown;
        vm->waiting[vm->n_waiting++] = sd_bus_message_ref(message);
        return 0;
}

int vm_release(VM *vm, sd_bus_message *message) {
        int r;

        r = wait_for_release(vm, message);
        if (r < 0)
                return r;
        if (vm->releasing)
                return 0;

        vm->releasing = true;
        vm->pidfd_source = sd_event_source_disable_unref(vm->pidfd_source);
        vm_event(vm, VM_EVENT_RELEASE);

        /* Threads use the memory and the handle until their job's end, which goes on from there. */
        if (vm->job && job_worker(vm->job) && !vm->job->failed)
                job_cancel(vm->job);
        else
                vm_release_continue(vm); /* or when the thread that heals has ended */
        return 0;
}
