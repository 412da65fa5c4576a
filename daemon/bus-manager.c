/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bus-manager.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <utlist.h>

#include "auth.h"
#include "bus-calibrate.h"
#include "bus-draining.h"
#include "bus-error.h"
#include "bus-explain.h"
#include "bus-handoff.h"
#include "bus-holders.h"
#include "bus-job.h"
#include "bus-node.h"
#include "bus-vm.h"
#include "bus-warm.h"
#include "cgroup.h"
#include "discover.h"
#include "handle.h"
#include "handoffs.h"
#include "process.h"
#include "quarantine.h"
#include "refusal.h"
#include "vm.h"

static const char *const features[] = {
        "reserve", "attach-fd", "attach-pid", "build", "heal",  "split",   "collapse", "calibrate",
        "explain", "hugetlb",   "memfd",      "warm",  "pools", "handoff", NULL,
};

static int method_reserve(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        _cleanup_free_ char *cgroup = NULL;
        Manager *m = userdata;
        VMOptions options;
        const char *name;
        uint64_t bytes;
        Caller caller;
        VM *vm;
        int r;

        r = sd_bus_message_read(message, "st", &name, &bytes);
        if (r < 0)
                return r;
        r = options_read(message, OPTION_RESERVE, &options, error);
        if (r < 0)
                return r;
        r = auth_get_creator(m, message, &caller, error);
        if (r < 0)
                return r;
        if (options.cgroup) {
                r = auth_may_charge(m, &caller, options.cgroup, error);
                if (r < 0)
                        return refusal_log_denied(message, caller.uid, caller.pid, r, error);
        }
        /* Its VMM is a child of the caller's, most often, and in the same cgroup. */
        if (!options.cgroup && caller.pid > 0 && cgroup_of_process(caller.pid, &cgroup) >= 0)
                options.cgroup = cgroup;

        options.pid = caller.pid;
        r = vm_reserve(m, caller.uid, name, bytes, &options, &vm, error);
        if (r < 0) {
                r = refusal_log("reserve", name, caller.uid, r, error);
                if (sd_bus_error_has_name(error, TDP_ERROR_NO_PAGES) &&
                    options.page_size > base_page_size() &&
                    bus_holders_refuse(m, message, options.page_size, error) > 0) {
                        sd_bus_error_free(error);
                        return 1;
                }
                return r;
        }
        return sd_bus_reply_method_return(message, "oo", vm->path, vm->job->path);
}

/* An attach under the name of a VM that has memory and no VMM is meant for that VM. */
static int find_joined(Manager *m, const Caller *caller, const char *name, VM **ret, sd_bus_error *error) {
        VM *vm = vm_find(m, name);
        int r;

        if (!vm || (vm->state != VM_POPULATED && vm->state != VM_RESERVED)) {
                *ret = NULL;
                return vm_check_name(m, name, error);
        }
        r = auth_may_change(m, caller, vm, error);
        if (r < 0)
                return r;
        if (vm->state == VM_RESERVED)
                return sd_bus_error_setf(error, TDP_ERROR_BUSY,
                                         "VM \"%s\" is still being populated: wait for the end of its job",
                                         name);
        *ret = vm;
        return 0;
}

static int open_process(const Caller *caller, pid_t pid, int *ret_pidfd, sd_bus_error *error) {
        _cleanup_close_ int pidfd = -1;
        uid_t uid;
        int r;

        r = process_open(pid, &pidfd);
        if (r >= 0)
                r = process_get_uid(pid, &uid);
        /* What was read is about the process behind pidfd only if that one still runs. */
        if (r == -ESRCH || (r >= 0 && !process_is_alive(pidfd)))
                return sd_bus_error_setf(error, TDP_ERROR_NO_SUCH_PROCESS,
                                         "process %i is not there: check the pid of the running VMM",
                                         (int) pid);
        if (r < 0)
                return sd_bus_error_setf(error, TDP_ERROR_FAILED, "process %i cannot be looked at: %s",
                                         (int) pid, strerror(-r));
        r = auth_may_take(caller, pid, uid, error);
        if (r < 0)
                return r;
        *ret_pidfd = TAKE_FD(pidfd);
        return 0;
}

static int check_pid(uint32_t pid, sd_bus_error *error) {
        if (pid > 0 && pid <= INT32_MAX)
                return 0;
        return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                 "pid %" PRIu32 " is none: give the pid of the running VMM", pid);
}

/* message_fd -1: it is taken from the process.  The options are what is left to read of the message. */
static int attach(Manager *m, sd_bus_message *message, const char *name, int message_fd, uint32_t pid,
                  sd_bus_error *error) {
        _cleanup_close_ int vm_fd = -1, pidfd = -1;
        VMOptions options;
        VM *vm, *joined;
        Caller caller;
        int r;

        r = options_read(message, OPTION_ATTACH, &options, error);
        if (r < 0)
                return r;
        r = auth_get_creator(m, message, &caller, error);
        if (r < 0)
                return r;
        if (pid == 0 && message_fd >= 0)
                pid = (uint32_t) caller.pid;
        r = check_pid(pid, error);
        if (r < 0)
                return r;
        r = find_joined(m, &caller, name, &joined, error);
        if (r < 0)
                return refusal_log_denied(message, caller.uid, caller.pid, r, error);
        if (message_fd >= 0 && discover_fd_is_vm(message_fd) <= 0)
                return sd_bus_error_setf(error, TDP_ERROR_NOT_VMM,
                                         "the descriptor is no KVM VM: pass what KVM_CREATE_VM returned");
        r = open_process(&caller, (pid_t) pid, &pidfd, error);
        if (r < 0)
                return refusal_log_denied(message, caller.uid, caller.pid, r, error);

        if (message_fd >= 0) {
                /* The message's own copy goes with the message, as soon as this is replied to. */
                vm_fd = fcntl(message_fd, F_DUPFD_CLOEXEC, 3);
                r = vm_fd < 0 ? -errno : 0;
        } else
                r = discover_vm_fd((pid_t) pid, pidfd, &vm_fd, error);
        if (r < 0)
                return r;

        r = vm_attach(m, joined, caller.uid, name, TAKE_FD(vm_fd), (pid_t) pid, TAKE_FD(pidfd), &options,
                      &vm, error);
        if (r < 0)
                return refusal_log("attach", name, caller.uid, r, error);
        return sd_bus_reply_method_return(message, "oo", vm->path, vm->job->path);
}

static int method_attach(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        const char *name;
        uint32_t pid;
        int fd, r;

        r = sd_bus_message_read(message, "shu", &name, &fd, &pid);
        if (r < 0)
                return r;
        return attach(userdata, message, name, fd, pid, error);
}

static int method_attach_pid(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        const char *name;
        uint32_t pid;
        int r;

        r = sd_bus_message_read(message, "su", &name, &pid);
        if (r < 0)
                return r;
        return attach(userdata, message, name, -1, pid, error);
}

static int method_list_vms(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        __attribute__((cleanup(sd_bus_message_unrefp))) sd_bus_message *reply = NULL;
        Manager *m = userdata;
        VM *vm, *tmp;
        int r;

        r = sd_bus_message_new_method_return(message, &reply);
        if (r < 0)
                return r;
        r = sd_bus_message_open_container(reply, 'a', "(ssout)");
        if (r < 0)
                return r;
        HASH_ITER (hh, m->vms, vm, tmp) {
                (void) vm_stats(vm); /* "built" only if it is still true */
                r = sd_bus_message_append(reply, "(ssout)", vm->name, vm_state_to_string(vm->state),
                                          vm->path, (uint32_t) vm->pid, vm->bytes);
                if (r < 0)
                        return r;
        }
        r = sd_bus_message_close_container(reply);
        if (r < 0)
                return r;
        return sd_bus_send(NULL, reply, NULL);
}

static int method_list_jobs(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        __attribute__((cleanup(sd_bus_message_unrefp))) sd_bus_message *reply = NULL;
        Manager *m = userdata;
        Job *j;
        int r;

        r = sd_bus_message_new_method_return(message, &reply);
        if (r < 0)
                return r;
        r = sd_bus_message_open_container(reply, 'a', "(uosso)");
        if (r < 0)
                return r;
        DL_FOREACH (m->jobs, j) {
                r = sd_bus_message_append(reply, "(uosso)", j->id, j->path, job_type_to_string(j->type),
                                          job_state_to_string(j), job_vm_path(j));
                if (r < 0)
                        return r;
        }
        r = sd_bus_message_close_container(reply);
        if (r < 0)
                return r;
        return sd_bus_send(NULL, reply, NULL);
}

static int method_list_nodes(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        __attribute__((cleanup(sd_bus_message_unrefp))) sd_bus_message *reply = NULL;
        int r;

        r = sd_bus_message_new_method_return(message, &reply);
        if (r < 0)
                return r;
        r = bus_node_append_list(userdata, reply, error);
        if (r < 0)
                return r;
        return sd_bus_send(NULL, reply, NULL);
}

static int method_get_vm(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        const char *name;
        VM *vm;
        int r;

        r = sd_bus_message_read(message, "s", &name);
        if (r < 0)
                return r;
        vm = vm_find(userdata, name);
        if (!vm)
                return sd_bus_error_setf(
                                error, TDP_ERROR_NO_SUCH_VM,
                                "there is no VM \"%.80s\": tdpctl vms (ListVMs) has those that there are",
                                name);
        return sd_bus_reply_method_return(message, "o", vm->path);
}

static int method_get_vm_by_pid(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        uint32_t pid;
        VM *vm;
        int r;

        r = sd_bus_message_read(message, "u", &pid);
        if (r < 0)
                return r;
        r = check_pid(pid, error);
        if (r < 0)
                return r;
        vm = vm_find_by_pid(userdata, (pid_t) pid);
        if (!vm)
                return sd_bus_error_setf(error, TDP_ERROR_NO_SUCH_VM,
                                         "no VM is attached to process %" PRIu32
                                         ": tdpctl vms (ListVMs) has those that there are",
                                         pid);
        return sd_bus_reply_method_return(message, "o", vm->path);
}

static int method_release(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        const char *path;
        VM *vm;
        int r;

        r = sd_bus_message_read(message, "o", &path);
        if (r < 0)
                return r;
        r = bus_vm_from_path(userdata, path, &vm);
        if (r < 0)
                return r;
        if (r == 0)
                return sd_bus_error_setf(
                                error, TDP_ERROR_NO_SUCH_VM,
                                "there is no VM at %.160s: tdpctl vms (ListVMs) has those that there are",
                                path);
        return bus_vm_release(vm, message, error);
}

static int method_reload(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        Manager *m = userdata;
        Caller caller;
        int r;

        r = auth_get_admin(m, message, AUTH_RELOAD, &caller, error);
        if (r != 0)
                return r;
        r = manager_reload(m, error);
        if (r < 0)
                return r;
        return sd_bus_reply_method_return(message, NULL);
}

static int get_version(sd_bus *bus, const char *path, const char *interface, const char *property,
                       sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", TDPD_VERSION);
}

static int get_features(sd_bus *bus, const char *path, const char *interface, const char *property,
                        sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append_strv(reply, (char **) features);
}

static int get_policy(sd_bus *bus, const char *path, const char *interface, const char *property,
                      sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        Manager *m = userdata;

        return sd_bus_message_append(reply, "s", decision_to_string(m->config.decision));
}

static int get_handoff_outcomes(sd_bus *bus, const char *path, const char *interface, const char *property,
                                sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Manager *m = userdata;

        return handoff_counts_append(m->handoffs ? &m->handoffs->counts : &(HandoffCounts){}, reply);
}

static int get_quarantine(sd_bus *bus, const char *path, const char *interface, const char *property,
                          sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return quarantine_append(userdata, reply);
}

void bus_manager_changed(Manager *m, const char *property) {
        (void) sd_bus_emit_properties_changed(m->bus, "/org/tdpd1", "org.tdpd1.Manager", property, NULL);
}

static int get_state(sd_bus *bus, const char *path, const char *interface, const char *property,
                     sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", pools_are_degraded(userdata) ? "degraded" : "running");
}

static const sd_bus_vtable vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD_WITH_ARGS("Reserve", SD_BUS_ARGS("s", name, "t", bytes, "a{sv}", options),
                                SD_BUS_RESULT("o", vm, "o", job), method_reserve,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Attach", SD_BUS_ARGS("s", name, "h", vm_fd, "u", pid, "a{sv}", options),
                                SD_BUS_RESULT("o", vm, "o", job), method_attach, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("AttachPid", SD_BUS_ARGS("s", name, "u", pid, "a{sv}", options),
                                SD_BUS_RESULT("o", vm, "o", job), method_attach_pid,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Explain", SD_BUS_ARGS("a{sv}", request),
                                SD_BUS_RESULT("s", decision, "a(ss)", reasons, "a{sv}", plan),
                                bus_method_explain, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("ListVMs", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(ssout)", vms), method_list_vms,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("GetVM", SD_BUS_ARGS("s", name), SD_BUS_RESULT("o", vm), method_get_vm,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("GetVMByPid", SD_BUS_ARGS("u", pid), SD_BUS_RESULT("o", vm),
                                method_get_vm_by_pid, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("ListNodes", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(uo)", nodes),
                                method_list_nodes, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("ListJobs", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(uosso)", jobs),
                                method_list_jobs, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Release", SD_BUS_ARGS("o", vm), SD_BUS_NO_RESULT, method_release,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Holders", SD_BUS_NO_ARGS,
                                SD_BUS_RESULT("a(tituusss)", holders, "b", complete), bus_method_holders,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Reload", SD_BUS_NO_ARGS, SD_BUS_NO_RESULT, method_reload,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Calibrate", SD_BUS_ARGS("a{sv}", options), SD_BUS_RESULT("o", job),
                                bus_method_calibrate, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("PrepareIncoming", SD_BUS_ARGS("ay", offer, "a{sv}", options),
                                SD_BUS_RESULT("o", handoff, "ay", answer, "o", job),
                                bus_method_prepare_incoming, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("DeliverHandoff", SD_BUS_ARGS("ay", message),
                                SD_BUS_RESULT("o", handoff, "ay", reply), bus_method_deliver_handoff,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("ListHandoffs", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(ossss)", handoffs),
                                bus_method_list_handoffs, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_PROPERTY("Version", "s", get_version, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Features", "as", get_features, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Policy", "s", get_policy, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("Warm", "a(sttiuutss)", bus_get_warm, 0, SD_BUS_VTABLE_PROPERTY_EMITS_INVALIDATION),
        SD_BUS_PROPERTY("WarmBytes", "a(utt)", bus_get_warm_bytes, 0,
                        SD_BUS_VTABLE_PROPERTY_EMITS_INVALIDATION),
        SD_BUS_PROPERTY("Draining", "a(stau)", bus_get_draining, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("DrainingBytes", "a(utt)", bus_get_draining_bytes, 0,
                        SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("HandoffOutcomes", "a(sst)", get_handoff_outcomes, 0, 0),
        SD_BUS_PROPERTY("Quarantine", "a(sss)", get_quarantine, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("State", "s", get_state, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("Kernel", "a{sv}", bus_get_kernel, 0, 0),
        SD_BUS_PROPERTY("Calibration", "a{sv}", bus_get_calibration, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_SIGNAL_WITH_ARGS("VMAdded", SD_BUS_ARGS("s", name, "o", vm), 0),
        SD_BUS_SIGNAL_WITH_ARGS("VMRemoved", SD_BUS_ARGS("s", name, "o", vm), 0),
        SD_BUS_SIGNAL_WITH_ARGS("HandoffNew", SD_BUS_ARGS("s", id, "o", handoff), 0),
        SD_BUS_SIGNAL_WITH_ARGS("HandoffRemoved", SD_BUS_ARGS("s", id, "o", handoff), 0),
        SD_BUS_SIGNAL_WITH_ARGS("PoolLow",
                                SD_BUS_ARGS("u", node, "t", page_size, "t", available, "t", total), 0),
        SD_BUS_SIGNAL_WITH_ARGS("JobNew", SD_BUS_ARGS("u", id, "o", job), 0),
        SD_BUS_SIGNAL_WITH_ARGS(
                        "JobRemoved",
                        SD_BUS_ARGS("u", id, "o", job, "s", result, "s", error_name, "s", error_message), 0),
        SD_BUS_VTABLE_END,
};

int bus_manager_register(Manager *m) {
        return sd_bus_add_object_vtable(m->bus, NULL, "/org/tdpd1", "org.tdpd1.Manager", vtable, m);
}
