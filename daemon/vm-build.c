/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>

#include "bus-error.h"
#include "log.h"
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

        if (j->failed)
                vm_event(vm, VM_EVENT_BUILD_FAILED);
        else {
                vm->has_stats = false;
                stats = vm_stats(vm);
                /* Nothing is claimed that the page tables do not show. */
                vm_event(vm, stats && stats->hole_bytes == 0 && stats->built_bytes > 0
                                             ? VM_EVENT_BUILD_COMPLETE
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
        IdSet cpus;
        Job *j;
        int r;

        r = node_cpus(vm, &cpus, error);
        if (r < 0)
                return r;
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
                return r;
        }

        *ret = j;
        return 0;
}
