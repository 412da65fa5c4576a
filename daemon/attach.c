/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>

#include "bus-error.h"
#include "bus-job.h"
#include "bus-vm.h"
#include "decide.h"
#include "discover.h"
#include "format.h"
#include "log-message.h"
#include "mapping.h"
#include "process.h"
#include "slots.h"
#include "vm.h"

static int on_vmm_gone(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        VM *vm = userdata;

        log_message(MESSAGE_VMM_GONE, FIELDS(FIELD_VM(vm), FIELD_NUMBER("TDP_PID", (uint64_t) vm->pid)),
                    "VM %s: its VMM (pid %i) has gone", vm->name, (int) vm->pid);
        vm->handle_source = sd_event_source_disable_unref(vm->handle_source);
        return vm_release(vm, NULL);
}

static int on_handle(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        VM *vm = userdata;
        int r = 0;

        /* What has happened before the end counts as well, for whoever looks at the log. */
        if (revents & EPOLLIN)
                r = vm_events_read(vm);
        if ((revents & (EPOLLHUP | EPOLLERR)) || r == -ESRCH)
                return on_vmm_gone(s, fd, revents, vm);
        if (r < 0) {
                log_message_errno(
                                MESSAGE_NOT_HEALED, r, FIELDS(FIELD_VM(vm)),
                                "VM %s: the kernel's events cannot be read, so its holes are counted and not healed",
                                vm->name);
                return sd_event_source_set_io_events(s, 0);
        }
        return 0;
}

/* What the attach is about, before any object of ours is touched. */
typedef struct Attach {
        int handle;
        bool auto_slots, events;
        PolicyOutput policy;
        VMFacts facts;
        bool always; /* by this call, or else by the reservation */
        bool dirty_log;
        uint64_t bytes;     /* all slots that can be built */
        uint64_t page_size; /* the largest one that backs a slot */
} Attach;

static void attach_done(Attach *a) {
        a->handle = safe_close(a->handle);
}

static int open_handle(Manager *m, int vm_fd, bool auto_slots, int *ret, sd_bus_error *error) {
        int fd = handle_attach(m->options.device, vm_fd, auto_slots);

        switch (fd) {
        case -EBUSY:
                return sd_bus_error_setf(
                                error, TDP_ERROR_BUSY,
                                "this VM has a handle already: it is attached under another name, or by another "
                                "program");
        case -EOPNOTSUPP:
                return sd_bus_error_setf(
                                error, TDP_ERROR_UNSUPPORTED,
                                "KVM must not map this VM's memory by itself: it is confidential, or has private "
                                "memory");
        case -ESRCH:
                return sd_bus_error_setf(error, TDP_ERROR_NO_SUCH_PROCESS, "the VM's VMM has gone");
        case -EINVAL:
                return sd_bus_error_setf(error, TDP_ERROR_NOT_VMM,
                                         "the kernel does not take this descriptor for a VM");
        default:
                if (fd < 0)
                        return sd_bus_error_setf(error, TDP_ERROR_FAILED, "%s refused the VM: %s",
                                                 m->options.device, strerror(-fd));
                *ret = fd;
                return 0;
        }
}

static int check_device(Manager *m, struct kvm_gtdp_info *ret, sd_bus_error *error) {
        int r = handle_get_info(m->options.device, ret);

        if (r == -ENOENT)
                return sd_bus_error_setf(
                                error, TDP_ERROR_UNSUPPORTED,
                                "this kernel has no %s: install tdpd-kvm-modules and load its kvm.ko with "
                                "kvm-intel.ko or kvm-amd.ko, or attach with decision \"never\"",
                                m->options.device);
        if (r == -EPROTO)
                return sd_bus_error_setf(
                                error, TDP_ERROR_UNSUPPORTED,
                                "%s speaks another version than %i: tdpd and tdpd-kvm-modules must fit together",
                                m->options.device, KVM_GTDP_ABI_VERSION);
        if (r < 0)
                return sd_bus_error_setf(error, TDP_ERROR_UNSUPPORTED, "%s cannot be used: %s",
                                         m->options.device, strerror(-r));
        return 0;
}

/* What the reservation said holds, unless this call says otherwise. */
static VMOptions join_options(const VM *joined, const VMOptions *o) {
        VMOptions all = *o;

        if (!joined)
                return all;
        if (!o->has_decision && joined->options.has_decision) {
                all.has_decision = true;
                all.decision = joined->options.decision;
        }
        vm_facts_merge(&all.facts, &joined->options.facts);
        return all;
}

/* "request" has who asks; the rest of what the decision is about is known by now. */
static int decide_attach(Manager *m, const VM *joined, const DecideRequest *request, const VMOptions *o,
                         Attach *a) {
        VMOptions all = join_options(joined, o);
        DecideRequest r = *request;
        const Rule *rule;
        int k;

        /* The rule that adopts is the one that decides: it has matched this name, and not ours. */
        if (o->name)
                r.name = o->name[0] ? o->name : NULL;
        r.bytes = joined ? joined->bytes : a->bytes;
        r.page_size = joined ? joined->page_size : a->page_size;
        r.backed = joined;
        r.dirty_log = a->dirty_log;
        k = decide_prepare(m, &r, &all, &rule);
        if (k < 0)
                return k;
        a->always = all.has_decision && all.decision == DECISION_ALWAYS;
        a->facts = all.facts;
        decide(m, &r, &all, rule, &a->policy);
        return 0;
}

/* Opens the handle and decides.  Without the device only "never" goes on, and has no handle. */
static int prepare(Manager *m, const VM *joined, int vm_fd, const DecideRequest *request, const VMOptions *o,
                   Attach *a, sd_bus_error *error) {
        _cleanup_(slots_done) Slots slots = {};
        struct kvm_gtdp_info info;
        int r, k;

        r = check_device(m, &info, error);
        if (r < 0) {
                k = decide_attach(m, joined, request, o, a);
                if (k < 0)
                        return k;
                if (a->policy.n_reasons > 0 && !streq(a->policy.reasons[0].word, "no-device")) {
                        sd_bus_error_free(error);
                        return 0;
                }
                return r;
        }

        a->events = info.features & KVM_GTDP_FEAT_EVENTS;
        a->auto_slots = o->auto_slots;
        r = open_handle(m, vm_fd, a->auto_slots, &a->handle, error);
        if (r < 0)
                return r;
        r = slots_read(a->handle, &slots);
        if (r == -ESRCH)
                return sd_bus_error_setf(error, TDP_ERROR_NO_SUCH_PROCESS, "the VM's VMM has gone");
        if (r < 0)
                return sd_bus_error_setf(error, TDP_ERROR_FAILED, "the VM's slots cannot be read: %s",
                                         strerror(-r));
        a->bytes = slots.bytes;
        a->page_size = slots.page_size;
        a->dirty_log = slots.logging.n > 0;
        r = decide_attach(m, joined, request, o, a);
        if (r < 0)
                return r;

        /* Whoever says "always" is not served with something else. */
        if (!a->policy.build && a->always)
                return sd_bus_error_setf(error, TDP_ERROR_UNSUPPORTED,
                                         "asked to build, and it cannot be: %s", a->policy.reasons[0].text);

        /* Whether later slots are built is said at the attach, and for the decision we needed one. */
        if (!a->policy.build && a->auto_slots) {
                a->auto_slots = false;
                a->handle = safe_close(a->handle);
                return open_handle(m, vm_fd, false, &a->handle, error);
        }
        return 0;
}

int vm_watch(VM *vm, bool events) {
        int r;

        if (vm->handle >= 0 && events) {
                r = healer_new(vm, &vm->healer);
                if (r < 0)
                        return r;
        } else if (vm->handle >= 0)
                log_message(MESSAGE_NOT_HEALED, FIELDS(FIELD_VM(vm)),
                            "VM %s: the kernel's modules are older than this tdpd and tell no events: holes are "
                            "counted and not healed, and memory that is added is charged at the next build",
                            vm->name);
        if (vm->handle >= 0) {
                /* EPOLLHUP needs no asking for. */
                r = sd_event_add_io(vm->manager->event, &vm->handle_source, vm->handle, events ? EPOLLIN : 0,
                                    on_handle, vm);
                if (r < 0)
                        return r;
        }
        return sd_event_add_io(vm->manager->event, &vm->pidfd_source, vm->pidfd, EPOLLIN, on_vmm_gone, vm);
}

static void unwatch(VM *vm) {
        vm->handle_source = sd_event_source_disable_unref(vm->handle_source);
        vm->pidfd_source = sd_event_source_disable_unref(vm->pidfd_source);
        vm->healer = healer_free(vm->healer);
        vm_events_done(vm);
        vm->handle = safe_close(vm->handle);
        vm->pidfd = safe_close(vm->pidfd);
        vm->pid = 0;
        vm->has_stats = false;
}

/* Memory that lies idle while the guest runs in another is seen by nobody otherwise. */
static void look_at_mapping(VM *vm) {
        size_t n = vm->policy.n_reasons;
        Mapping mapping;
        int r;

        r = mapping_read(vm->manager->options.proc_root, vm->pid, vm->memory, &mapping);
        if (r < 0) {
                log_debug("VM %s: what its VMM has mapped cannot be told: %s", vm->name, strerror(-r));
                return;
        }
        policy_note_mapping(&vm->policy, mapping.bytes, mapping.page_size, vm->page_size);
        if (vm->policy.n_reasons > n)
                log_message(MESSAGE_OTHER_MEMORY,
                            FIELDS(FIELD_VM(vm), FIELD_BYTES(vm->bytes),
                                   FIELD_NUMBER("TDP_PAGE_SIZE", vm->page_size),
                                   FIELD_NUMBER("TDP_PID", (uint64_t) vm->pid)),
                            "VM %s: %s", vm->name, vm->policy.reasons[n].text);
}

/* By which the next daemon knows the VMM from others of its pid. */
static int get_start_time(VM *vm, sd_bus_error *error) {
        int r;

        r = process_get_start_time(vm->pid, &vm->start_time);
        if (r == -ESRCH)
                return sd_bus_error_setf(error, TDP_ERROR_NO_SUCH_PROCESS, "the VM's VMM has gone");
        if (r < 0)
                return sd_bus_error_setf(error, TDP_ERROR_FAILED,
                                         "/proc/%i/stat does not say when the VM's VMM was started: %s",
                                         (int) vm->pid, strerror(-r));
        return 0;
}

/* The job that tells of the end, with or without work to do. */
static int start_job(VM *vm, uid_t uid, const VMOptions *o, Job **ret, sd_bus_error *error) {
        int r;

        if (vm->policy.build)
                return vm_start_build(vm, uid, JOB_ATTACH, o->max_level, NULL, ret, error);

        r = job_new(vm, uid, JOB_ATTACH, ret, error);
        if (r < 0)
                return r;
        r = job_end_soon(*ret);
        if (r < 0)
                job_free(*ret);
        return r;
}

int vm_attach(Manager *m, VM *joined, uid_t uid, const char *name, int vm_fd_taken, pid_t pid,
              int pidfd_taken, const VMOptions *o, VM **ret, sd_bus_error *error) {
        /* The VM's fd keeps the VM, and is not ours to keep: it goes at the end, whatever happens. */
        _cleanup_close_ int vm_fd = vm_fd_taken, pidfd = pidfd_taken;
        _cleanup_(attach_done) Attach a = { .handle = -1 };
        const DecideRequest request = {
                .name = name,
                .has_uid = true,
                .uid = joined ? joined->uid : uid,
                .pid = pid,
                .pid_is_vmm = true,
        };
        _cleanup_free_ char *why = NULL;
        PolicyOutput policy_before = {};
        VMFacts facts_before = {};
        VM *vm = joined;
        Job *j;
        int r;

        r = prepare(m, joined, vm_fd, &request, o, &a, error);
        if (r < 0)
                return r;

        if (!joined) {
                r = vm_new(m, name, uid, VM_ATTACHED, o, a.bytes, error, &vm);
                if (r < 0)
                        return r;
                vm->page_size = a.page_size;
        }
        policy_before = vm->policy;
        facts_before = vm->options.facts;
        vm->policy = a.policy;
        vm->options.facts = a.facts;
        vm->handle = TAKE_FD(a.handle);
        vm->pidfd = TAKE_FD(pidfd);
        vm->pid = pid;
        vm->auto_slots = a.auto_slots;
        if (joined && vm->memory && a.bytes > 0) /* before it has slots it need not have mapped it */
                look_at_mapping(vm);

        r = get_start_time(vm, error);
        if (r >= 0)
                r = vm_watch(vm, a.events);
        if (r >= 0)
                r = start_job(vm, uid, o, &j, error);
        if (r >= 0)
                r = vm_keep(vm, vm->policy.build ? VM_BUILDING : VM_ATTACHED, error);
        if (r < 0)
                goto fail;

        if (joined)
                vm_event(vm, VM_EVENT_ATTACH);
        else
                bus_vm_added(vm);
        if (vm->policy.build)
                vm_event(vm, VM_EVENT_BUILD_START);
        bus_job_added(j);
        why = decide_describe(&vm->policy);
        log_message(MESSAGE_VM_ATTACHED,
                    FIELDS(FIELD_VM(vm), FIELD_BYTES(vm->bytes),
                           FIELD_NUMBER("TDP_PAGE_SIZE", vm->page_size),
                           FIELD_NUMBER("TDP_PID", (uint64_t) pid),
                           FIELD_TEXT("TDP_DECISION", vm->policy.build ? "build" : "skip"),
                           FIELD_TEXT("TDP_REASON", vm->policy.reasons[0].word),
                           FIELD_TEXT("TDP_RULE", vm->policy.rule)),
                    "VM %s of user %u: attached to pid %i, %s, decision %s", vm->name, vm->uid, (int) pid,
                    format_bytes(vm->bytes), why ?: "unknown");
        *ret = vm;
        return 0;

fail:
        if (!joined) {
                vm_free(vm);
                return r;
        }
        job_free(vm->job);
        unwatch(vm);
        vm->policy = policy_before;
        vm->options.facts = facts_before;
        return r;
}
