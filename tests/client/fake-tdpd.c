/* SPDX-License-Identifier: LGPL-2.1-or-later */

/*
 * A stand-in for tdpd, for the client's tests: what a host of the test machine's kind cannot show (builds,
 * several nodes) or a healthy daemon does not do (fail in mid-job, hang, die). It speaks
 * docs/ARCHITECTURE.md; what the real daemon says is tested with the real one.
 *
 * A VM's name tells how its jobs go: words separated by "-".
 *   (see fake-handoff.c for what handoffs do)
 *   slow: 2 s per phase   failreserve, failattach, failbuild: the job fails   refuse: Reserve, Attach
 * refused die: the daemon exits in mid-job   hang: it stops answering   two: memory in two parts   skip: not
 * built   older: its kernel cannot split   torn: it has lost memory, for a reason of later kernels as well
 */

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "fake-manager.h"
#include "fake-tdpd.h"

#define TICK_USEC 20000

sd_bus *bus;
static sd_event *event;
static struct vm vms[VMS_MAX];
static struct job jobs[JOBS_MAX];
static uint32_t last_job;

bool says(const struct vm *vm, const char *word) {
        return strstr(vm->name, word);
}

static unsigned n_parts(const struct vm *vm) {
        return says(vm, "two") ? 2 : 1;
}

struct vm *vm_by_name(const char *name) {
        for (unsigned i = 0; i < VMS_MAX; i++)
                if (vms[i].used && strcmp(vms[i].name, name) == 0)
                        return &vms[i];
        return NULL;
}

struct vm *vm_by_path(const char *path) {
        for (unsigned i = 0; i < VMS_MAX; i++)
                if (vms[i].used && strcmp(vms[i].path, path) == 0)
                        return &vms[i];
        return NULL;
}

struct vm *vm_new(const char *name, uint64_t bytes, const char *state) {
        for (unsigned i = 0; i < VMS_MAX; i++)
                if (!vms[i].used) {
                        struct vm *vm = &vms[i];
                        char *path;

                        *vm = (struct vm){ .bytes = bytes, .used = true, .fds = { -1, -1 } };
                        snprintf(vm->name, sizeof(vm->name), "%s", name);
                        snprintf(vm->state, sizeof(vm->state), "%s", state);
                        if (sd_bus_path_encode("/org/tdpd1/vm", name, &path) < 0)
                                return NULL;
                        snprintf(vm->path, sizeof(vm->path), "%s", path);
                        free(path);
                        return vm;
                }
        return NULL;
}

void vm_free(struct vm *vm) {
        for (unsigned i = 0; i < 2; i++)
                if (vm->fds[i] >= 0)
                        close(vm->fds[i]);
        vm->used = false;
}

struct job *job_new(struct vm *vm, const char *type, const char *phase) {
        for (unsigned i = 0; i < JOBS_MAX; i++)
                if (!jobs[i].used) {
                        struct job *job = &jobs[i];

                        *job = (struct job){
                                .used = true, .id = ++last_job, .vm = vm, .type = type, .total = vm->bytes
                        };
                        job->n_ticks = says(vm, "slow") || says(vm, "die") || says(vm, "hang") ? 100 : 2;
                        snprintf(job->state, sizeof(job->state), "running");
                        snprintf(job->phase, sizeof(job->phase), "%s", phase);
                        snprintf(job->path, sizeof(job->path), "/org/tdpd1/job/_3%u", job->id);
                        if (job->id > 9)
                                snprintf(job->path, sizeof(job->path), "/org/tdpd1/job/_3%u%u", job->id / 10,
                                         job->id % 10);
                        return job;
                }
        return NULL;
}

static void job_end(struct job *job, const char *result, const char *name, const char *message) {
        struct vm *vm = job->vm;
        bool done = strcmp(result, "done") == 0;

        if (strcmp(job->type, "reserve") == 0 && !done)
                vm_free(vm);
        else if (strcmp(job->type, "reserve") == 0) {
                for (unsigned i = 0; i < n_parts(vm); i++) {
                        vm->fds[i] = memfd_create(vm->name, MFD_CLOEXEC);
                        if (vm->fds[i] < 0 || ftruncate(vm->fds[i], vm->bytes / n_parts(vm)) < 0)
                                abort();
                }
                snprintf(vm->state, sizeof(vm->state), "populated");
        } else if (strcmp(job->type, "attach") == 0 || strcmp(job->type, "build") == 0) {
                vm->built = done && !says(vm, "skip");
                snprintf(vm->state, sizeof(vm->state), "%s", vm->built ? "built" : "attached");
        }
        job->used = false;
        sd_bus_emit_signal(bus, "/org/tdpd1", "org.tdpd1.Manager", "JobRemoved", "uosss", job->id, job->path,
                           result, name, message);
}

static void job_tick(struct job *job) {
        struct vm *vm = job->vm;
        bool half = ++job->ticks >= job->n_ticks / 2;

        if (strcmp(job->state, "canceling") == 0) {
                job_end(job, "canceled", "", "");
                return;
        }
        if (half && says(vm, "die"))
                _exit(1);
        if (half && says(vm, "hang"))
                (void) raise(SIGSTOP);
        if (half && says(vm, "fail") &&
            strstr(strstr(vm->name, "fail"), job->type) == strstr(vm->name, "fail") + 4) {
                job_end(job, "failed", E("NoPages"), "256M asked, 128M there, take less");
                return;
        }
        job->done = job->total * job->ticks / job->n_ticks;
        if (job->ticks >= job->n_ticks)
                job_end(job, "done", "", "");
}

static int on_tick(sd_event_source *s, uint64_t usec, void *userdata) {
        for (unsigned i = 0; i < JOBS_MAX; i++)
                if (jobs[i].used)
                        job_tick(&jobs[i]);
        handoffs_tick();
        sd_event_source_set_time_relative(s, TICK_USEC);
        return sd_event_source_set_enabled(s, SD_EVENT_ON);
}

/* Manager */

static int reply_job(sd_bus_message *m, struct vm *vm, struct job *job) {
        return sd_bus_reply_method_return(m, "oo", vm->path, job->path);
}

static int m_reserve(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name;
        struct vm *vm;
        uint64_t bytes;
        int r;

        r = sd_bus_message_read(m, "st", &name, &bytes);
        if (r < 0)
                return r;
        if (strstr(name, "refuse"))
                return sd_bus_error_set(error, E("NoPages"), "64M asked, nothing there, free some");
        if (vm_by_name(name))
                return sd_bus_error_setf(error, E("NameTaken"), "There is a VM \"%s\"", name);
        vm = vm_new(name, bytes, "reserved");
        return reply_job(m, vm, job_new(vm, "reserve", "populate"));
}

static int m_attach_pid(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name;
        struct vm *vm;
        uint32_t pid;
        int r;

        r = sd_bus_message_read(m, "su", &name, &pid);
        if (r < 0)
                return r;
        if (kill((pid_t) pid, 0) < 0)
                return sd_bus_error_setf(error, E("NoSuchProcess"), "There is no process %u", pid);
        if (strstr(name, "nothere"))
                return sd_bus_error_setf(error, E("NotVMM"), "Process %u runs no VM", pid);
        vm = vm_by_name(name) ?: vm_new(name, 64 << 20, "attached");
        vm->pid = pid;
        snprintf(vm->state, sizeof(vm->state), "building");
        return reply_job(m, vm, job_new(vm, "attach", "build"));
}

static int m_explain(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        sd_bus_message *reply = NULL;
        int r;

        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_append(reply, "sa(ss)a{sv}", "build", 1, "large", "64M is worth it", 2,
                                          "page-size", "t", UINT64_C(2097152), "nodes", "s", "0");
        if (r >= 0)
                r = sd_bus_send(NULL, reply, NULL);
        sd_bus_message_unref(reply);
        return r;
}

static int m_list_vms(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        sd_bus_message *reply = NULL;
        int r;

        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(ssout)");
        for (unsigned i = 0; r >= 0 && i < VMS_MAX; i++)
                if (vms[i].used)
                        r = sd_bus_message_append(reply, "(ssout)", vms[i].name, vms[i].state, vms[i].path,
                                                  vms[i].pid, vms[i].bytes);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r >= 0)
                r = sd_bus_send(NULL, reply, NULL);
        sd_bus_message_unref(reply);
        return r;
}

static int m_get_vm(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name;
        int r;

        r = sd_bus_message_read(m, "s", &name);
        if (r < 0)
                return r;
        if (!vm_by_name(name))
                return sd_bus_error_setf(error, E("NoSuchVM"), "There is no VM \"%s\"", name);
        return sd_bus_reply_method_return(m, "o", vm_by_name(name)->path);
}

static int m_list_nodes(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return sd_bus_reply_method_return(m, "a(uo)", 1, 0, "/org/tdpd1/node/_30");
}

static int m_list_jobs(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        sd_bus_message *reply = NULL;
        int r;

        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(uosso)");
        for (unsigned i = 0; r >= 0 && i < JOBS_MAX; i++)
                if (jobs[i].used)
                        r = sd_bus_message_append(reply, "(uosso)", jobs[i].id, jobs[i].path, jobs[i].type,
                                                  jobs[i].state, jobs[i].vm->path);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r >= 0)
                r = sd_bus_send(NULL, reply, NULL);
        sd_bus_message_unref(reply);
        return r;
}

static int m_release(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *path;
        int r;

        r = sd_bus_message_read(m, "o", &path);
        if (r < 0)
                return r;
        if (!vm_by_path(path))
                return sd_bus_error_set(error, E("NoSuchVM"), "There is no such VM");
        vm_free(vm_by_path(path));
        return sd_bus_reply_method_return(m, NULL);
}

static const sd_bus_vtable manager_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("Version", "s", fake_manager_property, 0, 0),
        SD_BUS_PROPERTY("Features", "as", fake_manager_property, 0, 0),
        SD_BUS_PROPERTY("Policy", "s", fake_manager_property, 0, 0),
        SD_BUS_PROPERTY("State", "s", fake_manager_property, 0, 0),
        SD_BUS_PROPERTY("Kernel", "a{sv}", fake_manager_property, 0, 0),
        SD_BUS_PROPERTY("Warm", "a(sttiuutss)", fake_manager_property, 0, 0),
        SD_BUS_PROPERTY("Draining", "a(stau)", fake_manager_property, 0, 0),
        SD_BUS_PROPERTY("HandoffOutcomes", "a(sst)", fake_manager_property, 0, 0),
        SD_BUS_PROPERTY("DrainingBytes", "a(utt)", fake_manager_property, 0, 0),
        SD_BUS_PROPERTY("Quarantine", "a(sss)", fake_manager_property, 0, 0),
        SD_BUS_PROPERTY("WarmBytes", "a(utt)", fake_manager_property, 0, 0),
        SD_BUS_PROPERTY("Calibration", "a{sv}", fake_manager_property, 0, 0),
        METHOD("Reserve", "sta{sv}", "oo", m_reserve),
        METHOD("AttachPid", "sua{sv}", "oo", m_attach_pid),
        METHOD("Explain", "a{sv}", "sa(ss)a{sv}", m_explain),
        METHOD("ListVMs", "", "a(ssout)", m_list_vms),
        METHOD("GetVM", "s", "o", m_get_vm),
        METHOD("ListNodes", "", "a(uo)", m_list_nodes),
        METHOD("ListJobs", "", "a(uosso)", m_list_jobs),
        METHOD("Release", "o", "", m_release),
        METHOD("PrepareIncoming", "aya{sv}", "oayo", m_prepare_incoming),
        METHOD("DeliverHandoff", "ay", "oay", m_deliver_handoff),
        METHOD("ListHandoffs", "", "a(ossss)", m_list_handoffs),
        SD_BUS_VTABLE_END,
};

/* VM, Job, Node */

static int find_vm(sd_bus *b, const char *path, const char *interface, void *userdata, void **ret,
                   sd_bus_error *error) {
        *ret = vm_by_path(path);
        return !!*ret;
}

static int find_job(sd_bus *b, const char *path, const char *interface, void *userdata, void **ret,
                    sd_bus_error *error) {
        for (unsigned i = 0; i < JOBS_MAX; i++)
                if (jobs[i].used && strcmp(jobs[i].path, path) == 0) {
                        *ret = &jobs[i];
                        return 1;
                }
        return 0;
}

static int m_get_memory(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        struct vm *vm = userdata;

        if (n_parts(vm) == 2)
                return sd_bus_reply_method_return(m, "a(stuh)", 2, "part0", vm->bytes / 2, 0, vm->fds[0],
                                                  "part1", vm->bytes / 2, 1, vm->fds[1]);
        return sd_bus_reply_method_return(m, "a(stuh)", 1, "part0", vm->bytes, 0, vm->fds[0]);
}

static const char *const range_types[] = { "heal", "split", "collapse" };

static int m_build(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return sd_bus_reply_method_return(m, "o", job_new(userdata, "build", "build")->path);
}

/* Heal, Split, Collapse. What was asked for is told by Leaves2M (max-level) and Slots (gpa, size). */
static int m_range_job(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *member = sd_bus_message_get_member(m), *key;
        struct vm *vm = userdata;
        int r;

        vm->asked_gpa = vm->asked_size = vm->asked_level = 0;
        r = sd_bus_message_enter_container(m, 'a', "{sv}");
        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                uint32_t u = 0;

                r = sd_bus_message_read(m, "s", &key);
                if (r >= 0 && strcmp(key, "gpa") == 0)
                        r = sd_bus_message_read(m, "v", "t", &vm->asked_gpa);
                else if (r >= 0 && strcmp(key, "size") == 0)
                        r = sd_bus_message_read(m, "v", "t", &vm->asked_size);
                else if (r >= 0 && strcmp(key, "max-level") == 0)
                        r = sd_bus_message_read(m, "v", "u", &u);
                else if (r >= 0)
                        return sd_bus_error_setf(error, E("InvalidArgument"), "option \"%s\" is unknown",
                                                 key);
                vm->asked_level = u > 0 ? u : vm->asked_level;
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        if (r < 0)
                return r;
        if (says(vm, "older"))
                return sd_bus_error_set(error, E("Unsupported"), "The modules are older than this tdpd");
        for (unsigned i = 0; i < sizeof(range_types) / sizeof(range_types[0]); i++)
                if (strcasecmp(range_types[i], member) == 0)
                        return sd_bus_reply_method_return(m, "o",
                                                          job_new(vm, range_types[i], range_types[i])->path);
        return -EINVAL;
}

static int m_cancel(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        struct job *job = userdata;

        snprintf(job->state, sizeof(job->state), "canceling");
        return sd_bus_reply_method_return(m, NULL);
}

static int p_vm(sd_bus *b, const char *path, const char *interface, const char *property,
                sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        struct vm *vm = userdata;
        uint64_t built = vm->built ? vm->bytes : 0;

        if (strcmp(property, "Name") == 0)
                return sd_bus_message_append(reply, "s", vm->name);
        if (strcmp(property, "State") == 0)
                return sd_bus_message_append(reply, "s", vm->state);
        if (strcmp(property, "Pid") == 0)
                return sd_bus_message_append(reply, "u", vm->pid);
        if (strcmp(property, "Uid") == 0)
                return sd_bus_message_append(reply, "u", 0);
        if (strcmp(property, "Nodes") == 0)
                return sd_bus_message_append(reply, "s", n_parts(vm) == 2 ? "0-1" : "0");
        if (strcmp(property, "Decision") == 0)
                return sd_bus_message_append(reply, "s", says(vm, "skip") ? "skip" : "build");
        if (strcmp(property, "Rule") == 0)
                return sd_bus_message_append(reply, "s", "");
        if (strcmp(property, "Reasons") == 0)
                return sd_bus_message_append(reply, "a(ss)", 1, "told", "The name says so");
        if (strcmp(property, "HoleReasons") == 0 && says(vm, "torn"))
                return sd_bus_message_append(reply, "a{st}", 3, "notifier", UINT64_C(4096), "other",
                                             UINT64_C(1) << 21, "unheard-of", UINT64_C(1) << 30);
        if (strcmp(property, "Holes") == 0 && says(vm, "torn"))
                return sd_bus_message_append(reply, "t", UINT64_C(8192));
        if (strcmp(property, "HealedBytes") == 0 && says(vm, "torn"))
                return sd_bus_message_append(reply, "t", UINT64_C(4096));
        if (strcmp(property, "FaultsSinceBuild") == 0 && says(vm, "torn"))
                return sd_bus_message_append(reply, "t", UINT64_C(3));
        if (strcmp(property, "HoleReasons") == 0)
                return sd_bus_message_append(reply, "a{st}", 1, "notifier", UINT64_C(0));
        if (strcmp(property, "TablePages") == 0)
                return sd_bus_message_append(reply, "a{ut}", 1, 0, UINT64_C(3));
        if (strcmp(property, "Bytes") == 0)
                return sd_bus_message_append(reply, "t", vm->bytes);
        if (strcmp(property, "PageSize") == 0)
                return sd_bus_message_append(reply, "t", UINT64_C(4096));
        if (strcmp(property, "Slots") == 0)
                return sd_bus_message_append(reply, "a(ttas)", 2, vm->asked_gpa, vm->asked_size, 0,
                                             UINT64_C(1) << 30, UINT64_C(4096), 1, "read-only");
        if (strcmp(property, "Leaves2M") == 0)
                return sd_bus_message_append(reply, "t", vm->asked_level);
        if (strcmp(property, "Leaves4K") == 0)
                return sd_bus_message_append(reply, "t", built / 4096);
        if (strstr(property, "Bytes") && strcmp(property, "HealedBytes") != 0)
                return sd_bus_message_append(reply, "t", built);
        if (strstr(property, "USec"))
                return sd_bus_message_append(reply, "t", UINT64_C(1500));
        return sd_bus_message_append(reply, "t", UINT64_C(0));
}

#define VM_PROPERTY(name, type) SD_BUS_PROPERTY(name, type, p_vm, 0, 0)

static const sd_bus_vtable vm_vtable[] = {
        SD_BUS_VTABLE_START(0),
        VM_PROPERTY("Name", "s"),
        VM_PROPERTY("State", "s"),
        VM_PROPERTY("Pid", "u"),
        VM_PROPERTY("Uid", "u"),
        VM_PROPERTY("Bytes", "t"),
        VM_PROPERTY("PageSize", "t"),
        VM_PROPERTY("Nodes", "s"),
        VM_PROPERTY("Decision", "s"),
        VM_PROPERTY("Reasons", "a(ss)"),
        VM_PROPERTY("Rule", "s"),
        VM_PROPERTY("MappedBytes", "t"),
        VM_PROPERTY("PinnedBytes", "t"),
        VM_PROPERTY("BuiltBytes", "t"),
        VM_PROPERTY("Leaves1G", "t"),
        VM_PROPERTY("Leaves2M", "t"),
        VM_PROPERTY("Leaves4K", "t"),
        VM_PROPERTY("Slots", "a(ttas)"),
        VM_PROPERTY("Holes", "t"),
        VM_PROPERTY("HoleReasons", "a{st}"),
        VM_PROPERTY("Heals", "t"),
        VM_PROPERTY("HealedBytes", "t"),
        VM_PROPERTY("HealsPutOff", "t"),
        VM_PROPERTY("KeptBytes", "t"),
        VM_PROPERTY("SplitLeaves", "t"),
        VM_PROPERTY("CollapsedLeaves", "t"),
        VM_PROPERTY("AutoBuilds", "t"),
        VM_PROPERTY("AutoErrors", "t"),
        VM_PROPERTY("DroppedEvents", "t"),
        VM_PROPERTY("FaultsSinceBuild", "t"),
        VM_PROPERTY("FaultsOther", "t"),
        VM_PROPERTY("TablePages", "a{ut}"),
        VM_PROPERTY("PopulateUSec", "t"),
        VM_PROPERTY("BuildUSec", "t"),
        VM_PROPERTY("Generation", "t"),
        METHOD("GetMemory", "", "a(stuh)", m_get_memory),
        METHOD("Build", "a{sv}", "o", m_build),
        METHOD("OfferHandoff", "a{sv}", "oay", m_offer_handoff),
        METHOD("Heal", "a{sv}", "o", m_range_job),
        METHOD("Split", "a{sv}", "o", m_range_job),
        METHOD("Collapse", "a{sv}", "o", m_range_job),
        SD_BUS_VTABLE_END,
};

static int p_job_text(sd_bus *b, const char *path, const char *interface, const char *property,
                      sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        struct job *job = userdata;

        if (strcmp(property, "VM") == 0)
                return sd_bus_message_append(reply, "o", job->vm->path);
        return sd_bus_message_append(reply, "s",
                                     strcmp(property, "Type") == 0    ? job->type
                                     : strcmp(property, "State") == 0 ? job->state
                                                                      : job->phase);
}

static const sd_bus_vtable job_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("Id", "u", NULL, offsetof(struct job, id), 0),
        SD_BUS_PROPERTY("Type", "s", p_job_text, 0, 0),
        SD_BUS_PROPERTY("State", "s", p_job_text, 0, 0),
        SD_BUS_PROPERTY("Phase", "s", p_job_text, 0, 0),
        SD_BUS_PROPERTY("VM", "o", p_job_text, 0, 0),
        SD_BUS_PROPERTY("Done", "t", NULL, offsetof(struct job, done), 0),
        SD_BUS_PROPERTY("Total", "t", NULL, offsetof(struct job, total), 0),
        METHOD("Cancel", "", "", m_cancel),
        SD_BUS_VTABLE_END,
};

static int p_node(sd_bus *b, const char *path, const char *interface, const char *property,
                  sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        if (strcmp(property, "Id") == 0)
                return sd_bus_message_append(reply, "u", 0);
        if (strcmp(property, "Cpus") == 0)
                return sd_bus_message_append(reply, "s", "0-1");
        if (strcmp(property, "Pools") == 0)
                return sd_bus_message_append(reply, "a(tttttt)", 1, UINT64_C(2097152), UINT64_C(64),
                                             UINT64_C(60), UINT64_C(0), UINT64_C(0), UINT64_C(4));
        if (strcmp(property, "Available") == 0)
                return sd_bus_message_append(reply, "a(ttt)", 1, UINT64_C(2097152), UINT64_C(50),
                                             UINT64_C(10));
        if (strcmp(property, "Targets") == 0)
                return sd_bus_message_append(reply, "a(ttts)", 1, UINT64_C(2097152), UINT64_C(128),
                                             UINT64_C(64), "short");
        return sd_bus_message_append(reply, "t", UINT64_C(1) << 33);
}

static const sd_bus_vtable node_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("Id", "u", p_node, 0, 0),
        SD_BUS_PROPERTY("Cpus", "s", p_node, 0, 0),
        SD_BUS_PROPERTY("MemoryTotal", "t", p_node, 0, 0),
        SD_BUS_PROPERTY("MemoryFree", "t", p_node, 0, 0),
        SD_BUS_PROPERTY("Pools", "a(tttttt)", p_node, 0, 0),
        SD_BUS_PROPERTY("Available", "a(ttt)", p_node, 0, 0),
        SD_BUS_PROPERTY("Targets", "a(ttts)", p_node, 0, 0),
        SD_BUS_VTABLE_END,
};

int main(void) {
        if (sd_event_default(&event) < 0 || sd_bus_open_system(&bus) < 0 ||
            sd_bus_attach_event(bus, event, 0) < 0 ||
            sd_bus_add_object_vtable(bus, NULL, "/org/tdpd1", "org.tdpd1.Manager", manager_vtable, NULL) <
                            0 ||
            sd_bus_add_fallback_vtable(bus, NULL, "/org/tdpd1/vm", "org.tdpd1.VM", vm_vtable, find_vm,
                                       NULL) < 0 ||
            sd_bus_add_fallback_vtable(bus, NULL, "/org/tdpd1/job", "org.tdpd1.Job", job_vtable, find_job,
                                       NULL) < 0 ||
            handoffs_register() < 0 ||
            sd_bus_add_object_vtable(bus, NULL, "/org/tdpd1/node/_30", "org.tdpd1.Node", node_vtable, NULL) <
                            0 ||
            sd_event_add_time_relative(event, NULL, CLOCK_MONOTONIC, TICK_USEC, 1, on_tick, NULL) < 0 ||
            sd_bus_request_name(bus, "org.tdpd1", 0) < 0) {
                fprintf(stderr, "fake-tdpd: cannot start\n");
                return 1;
        }
        return sd_event_loop(event) < 0;
}
