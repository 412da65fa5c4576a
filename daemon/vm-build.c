/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>

#include "bus-error.h"
#include "slots.h"
#include "vm.h"

static void on_built(Worker *w, int result, void *userdata) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        const struct kvm_gtdp_stats *stats;
        VM *vm = userdata;
        Job *j = vm->job;

        if (result == -ECANCELED || vm->releasing)
                sd_bus_error_setf(&error, TDP_ERROR_CANCELED,
                                  "canceled after %" PRIu64 " of %" PRIu64
                                  " bytes; what is built stays, the rest is "
                                  "mapped on demand",
                                  worker_progress(w), j->total);
        else if (result < 0)
                build_set_error(j->build, result, &error);
        if (sd_bus_error_is_set(&error))
                job_fail(j, &error);

        if (vm->releasing) {
                vm_release_continue(vm);
                return;
        }

        vm->has_stats = false;
        if (j->failed)
                /* What an earlier build has mapped is there still, and the next look says whether all of it.
                 */
                vm_event(vm, vm->was_built ? VM_EVENT_BUILD_SHORT : VM_EVENT_BUILD_FAILED);
        else {
                stats = vm_stats(vm);
                /* Nothing is claimed that the page tables do not show. */
                vm_event(vm, stats && vm_stats_are_whole(stats) ? VM_EVENT_BUILD_COMPLETE
                                                                : VM_EVENT_BUILD_SHORT);
        }
        job_end(j);
}

/* The CPUs of the VM's nodes; none, which means any, if it brought its own memory. */
static int node_cpus(VM *vm, IdSet *ret, sd_bus_error *error) {
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        int r;

        *ret = (IdSet){};
        r = manager_load_nodes(vm->manager, &nodes, error);
        if (r < 0)
                return r;
        for (size_t i = 0; i < nodes->n_nodes; i++)
                if (idset_has(&vm->nodes, nodes->nodes[i].id))
                        idset_merge(ret, &nodes->nodes[i].cpus);
        return 0;
}

int vm_start_build(VM *vm, uid_t uid, JobType type, uint32_t max_level, Job **ret, sd_bus_error *error) {
        Manager *m = vm->manager;
        uint64_t bytes, page_size;
        IdSet cpus;
        Job *j;
        int r;

        r = node_cpus(vm, &cpus, error);
        if (r < 0)
                return r;
        /* A VMM that brings its own memory may have got more of it since the attach, and all will be pinned.
         */
        if (!vm->memory && slots_measure(vm->handle, &bytes, &page_size) >= 0) {
                r = charge_resize(&vm->charge, bytes, error);
                if (r < 0)
                        return r;
                vm->bytes = bytes;
                vm->page_size = page_size;
        }
        r = job_new(vm, uid, type, &j, error);
        if (r < 0)
                return r;

        r = build_start(m->event, vm->handle, max_level, &cpus, (unsigned) m->config.threads, on_built, vm,
                        &j->build);
        if (r >= 0)
                r = job_watch(j, JOB_PHASE_BUILD, build_total(j->build));
        if (r < 0) {
                job_free(j);
                if (r == -ESRCH)
                        return sd_bus_error_setf(error, TDP_ERROR_NO_SUCH_PROCESS,
                                                 "the VM or its VMM has gone");
                return sd_bus_error_setf(error, TDP_ERROR_FAILED,
                                         "the build of VM \"%s\" cannot be started: %s", vm->name,
                                         strerror(-r));
        }

        *ret = j;
        return 0;
}
