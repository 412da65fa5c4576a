/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>

#include "build.h"
#include "bus-error.h"
#include "log-message.h"
#include "slots.h"
#include "vm.h"

static const struct {
        HandleOp op;
        JobPhase phase;
        const char *kept; /* by a cancel */
} types[_JOB_TYPE_MAX] = {
        [JOB_ATTACH] = { HANDLE_BUILD, JOB_PHASE_BUILD,
                         "what is built stays, the rest is mapped on demand" },
        [JOB_BUILD] = { HANDLE_BUILD, JOB_PHASE_BUILD, "what is built stays, the rest is mapped on demand" },
        [JOB_HEAL] = { HANDLE_HEAL, JOB_PHASE_HEAL, "what is healed stays" },
        [JOB_SPLIT] = { HANDLE_SPLIT, JOB_PHASE_SPLIT, "what is split stays so" },
        [JOB_COLLAPSE] = { HANDLE_COLLAPSE, JOB_PHASE_COLLAPSE, "what is collapsed stays so" },
};

static void take_note(VM *vm, const Build *b) {
        const SpanSet *covers = build_covers(b);
        int r = 0;

        for (size_t i = 0; i < covers->n && r >= 0; i++)
                r = spanset_add(&vm->built, covers->spans[i]);
        if (r < 0)
                log_message_errno(MESSAGE_NOT_HEALED, r, FIELDS(FIELD_VM(vm)),
                                  "VM %s: what was built cannot be remembered, so it will not be healed",
                                  vm->name);
        /* Some of it may have been taken away meanwhile. */
        vm_slots_update(vm, NULL);
}

/* Nothing is claimed that the page tables do not show. */
static void tell_state(VM *vm, const Job *j) {
        const struct kvm_gtdp_stats *stats;

        vm->has_stats = false;
        if (build_op(j->work) != HANDLE_BUILD) {
                (void) vm_stats(vm);
                return;
        }
        if (j->failed) {
                /* What an earlier build has mapped is there still, and the next look says whether all of it.
                 */
                vm_event(vm, vm->was_built ? VM_EVENT_BUILD_SHORT : VM_EVENT_BUILD_FAILED);
                return;
        }
        stats = vm_stats(vm);
        vm_event(vm, stats && vm_stats_are_whole(stats) ? VM_EVENT_BUILD_COMPLETE : VM_EVENT_BUILD_SHORT);
}

static void on_built(Worker *w, int result, void *userdata) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        VM *vm = userdata;
        Job *j = vm->job;

        if (result == -ECANCELED || vm->releasing)
                sd_bus_error_setf(&error, TDP_ERROR_CANCELED,
                                  "canceled after %" PRIu64 " of %" PRIu64 " bytes; %s", worker_progress(w),
                                  j->total, types[j->type].kept);
        else if (result < 0)
                build_set_error(j->work, result, &error);
        if (sd_bus_error_is_set(&error))
                job_fail(j, &error);

        if (vm->releasing) {
                vm_release_continue(vm);
                return;
        }

        if (build_op(j->work) == HANDLE_BUILD)
                take_note(vm, j->work);
        tell_state(vm, j);
        if (vm->events.slots_unknown)
                vm_slots_update(vm, NULL);
        job_end(j);
        vm_keep_later(vm);
        if (vm->healer)
                healer_resume(vm->healer);
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

int vm_check_build(VM *vm, JobType type, sd_bus_error *error) {
        const char *device = vm->manager->options.device;
        struct kvm_gtdp_info info;

        if (vm->handle < 0)
                return sd_bus_error_setf(
                                error, TDP_ERROR_UNSUPPORTED,
                                "VM \"%s\" was attached without %s: load the modules of tdpd-kvm-modules, "
                                "release the VM and attach it again",
                                vm->name, device);
        if (types[type].op != HANDLE_SPLIT && types[type].op != HANDLE_COLLAPSE)
                return 0;
        if (handle_get_info(device, &info) < 0 || !(info.features & KVM_GTDP_FEAT_SPLIT))
                return sd_bus_error_setf(error, TDP_ERROR_UNSUPPORTED,
                                         "the kernel's modules are older than this tdpd and cannot split or "
                                         "collapse: load those of tdpd-kvm-modules when no VM runs");
        return 0;
}

/* All will be pinned, and a VMM that brings its own memory may have got more of it since the attach. */
static int charge(VM *vm, sd_bus_error *error) {
        uint64_t bytes, page_size;
        int r;

        if (slots_measure(vm->handle, &bytes, &page_size) < 0)
                return 0;
        if (!vm->memory) {
                r = charge_resize(&vm->charge, bytes, error);
                if (r < 0)
                        return r;
                vm->bytes = bytes;
                vm->page_size = page_size;
        }
        spanset_done(&vm->let_go);
        vm->built_charge = vm->charge.amounts.bytes;
        vm->built_slots_bytes = bytes;
        return 0;
}

/* What is healed later is to look like what is there now. */
static void note_level(VM *vm, HandleOp op, uint32_t max_level, bool all) {
        if (op == HANDLE_BUILD)
                vm->built_level = vm->heal_level = max_level;
        else if (op == HANDLE_SPLIT && all)
                vm->heal_level = max_level == 0 ? 1 : max_level;
        else if (op == HANDLE_COLLAPSE && all)
                vm->heal_level = vm->built_level;
}

int vm_start_build(VM *vm, uid_t uid, JobType type, uint32_t max_level, const SpanSet *within, Job **ret,
                   sd_bus_error *error) {
        BuildRequest request = {
                .op = types[type].op,
                .max_level = max_level,
                .within = within,
                .max_threads = (unsigned) vm->manager->config.threads,
        };
        Manager *m = vm->manager;
        Build *build;
        Job *j;
        int r;

        r = node_cpus(vm, &request.cpus, error);
        if (r < 0)
                return r;
        r = job_new(vm, uid, type, &j, error);
        if (r < 0)
                return r;
        if (request.op == HANDLE_BUILD) {
                r = charge(vm, error);
                if (r < 0) {
                        job_free(j);
                        return r;
                }
        }

        r = build_start(m->event, vm->handle, &request, on_built, vm, &build);
        if (r >= 0) {
                job_set_work(j, &build_job, build);
                r = job_watch(j, types[type].phase, build_total(build));
        }
        if (r < 0) {
                job_free(j);
                if (r == -ESRCH)
                        return sd_bus_error_setf(error, TDP_ERROR_NO_SUCH_PROCESS,
                                                 "the VM or its VMM has gone");
                return sd_bus_error_setf(error, TDP_ERROR_FAILED,
                                         "job \"%s\" of VM \"%s\" cannot be started: %s",
                                         job_type_to_string(type), vm->name, strerror(-r));
        }
        note_level(vm, request.op, max_level, !within);
        if (vm->healer)
                healer_pause(vm->healer);

        *ret = j;
        return 0;
}
