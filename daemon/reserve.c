/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>

#include "bus-error.h"
#include "bus-job.h"
#include "bus-vm.h"
#include "format.h"
#include "log-message.h"
#include "populate.h"
#include "vm.h"

static void on_populated(Worker *w, int result, void *userdata) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        VM *vm = userdata;
        Job *j = vm->job;
        uint64_t now = 0;

        (void) sd_event_now(vm->manager->event, CLOCK_MONOTONIC, &now);
        vm->populate_usec = now - j->started_usec;

        if (result >= 0 && !vm->releasing) {
                vm_event(vm, VM_EVENT_POPULATE_DONE);
                job_end(j);
                return;
        }

        if (result == -ECANCELED || result >= 0)
                sd_bus_error_setf(&error, TDP_ERROR_CANCELED,
                                  "canceled after %" PRIu64 " of %" PRIu64 " bytes; all is given back",
                                  worker_progress(w), vm->bytes);
        else
                populate_set_error(j->work, result, &error);
        job_fail(j, &error);
        /* The job ends when the pages are back. */
        if (vm->releasing)
                vm_release_continue(vm);
        else
                (void) vm_release(vm, NULL);
}

static void decide(Manager *m, VM *vm) {
        PolicyInput in = {
                .asked = vm->options.decision,
                .asked_is_set = vm->options.has_decision,
                .bytes = vm->bytes,
                .page_size = vm->page_size,
                .vcpus = vm->options.vcpus,
                .max_level = vm->options.max_level,
        };

        manager_policy_facts(m, &in);
        policy_decide(&in, &vm->policy);
}

int vm_reserve(Manager *m, uid_t uid, const char *name, uint64_t bytes, const VMOptions *o, VM **ret,
               sd_bus_error *error) {
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        _cleanup_(placement_done) Placement placement = {};
        Populate *populate;
        VM *vm = NULL;
        Job *j;
        int r;

        r = vm_check_name(m, name, error);
        if (r < 0)
                return r;
        r = manager_place(m, bytes, o, &nodes, &placement, error);
        if (r < 0)
                return r;

        /* From here on vm_free() is the undo of everything. */
        r = vm_new(m, name, uid, VM_RESERVED, o, bytes, error, &vm);
        if (r < 0)
                return r;
        vm->page_size = placement.page_size;
        for (size_t i = 0; i < placement.n_parts; i++)
                idset_add(&vm->nodes, placement.parts[i].node);
        if ((r = charge_set(&vm->charge,
                            &(Amounts){ .vms = 1, .bytes = bytes, .fds = VM_FDS + placement.n_parts },
                            error)) < 0 ||
            (r = memory_new(name, &placement, &vm->memory, error)) < 0 ||
            (r = job_new(vm, uid, JOB_RESERVE, &j, error)) < 0)
                goto fail;
        decide(m, vm);

        r = populate_start(m->event, vm->memory, nodes, (unsigned) m->config.threads, on_populated, vm,
                           &populate);
        if (r >= 0) {
                job_set_work(j, &populate_job, populate);
                r = job_watch(j, JOB_PHASE_POPULATE, bytes);
        }
        if (r < 0) {
                r = sd_bus_error_setf(error, TDP_ERROR_FAILED,
                                      "populating %s for VM \"%s\" cannot be started: %s; all is given back",
                                      format_bytes(bytes), name, strerror(-r));
                goto fail;
        }

        bus_vm_added(vm);
        bus_job_added(j);
        log_message(MESSAGE_VM_RESERVED,
                    FIELDS(FIELD_VM(vm), FIELD_BYTES(bytes), FIELD_NUMBER("TDP_PAGE_SIZE", vm->page_size)),
                    "VM %s of user %u: %s in pages of %s, populating", name, uid, format_bytes(bytes),
                    format_bytes(vm->page_size));
        *ret = vm;
        return 0;

fail:
        vm_free(vm);
        return r;
}
