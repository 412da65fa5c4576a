/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "keep.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

#include "bus-error.h"
#include "draining.h"
#include "log-message.h"
#include "process.h"
#include "record.h"
#include "sysfs.h"
#include "vm.h"

#define RETRY_FIRST_USEC (UINT64_C(1) * 1000000)
#define RETRY_MAX_USEC   (UINT64_C(60) * 1000000)

static int read_boot_id(char ret[static 40]) {
        _cleanup_free_ char *text = NULL;
        int r;

        r = sysfs_read(&text, "/proc/sys/kernel/random/boot_id");
        if (r < 0)
                return r;
        text[strcspn(text, "\n")] = '\0';
        if (strlen(text) != BOOT_ID_LEN)
                return -EBADMSG;
        strcpy(ret, text);
        return 0;
}

int keeper_init(Manager *m, const char *state_dir) {
        Keeper *k = &m->keeper;
        int r;

        r = fdstore_new(&k->store);
        if (r < 0)
                return log_error_errno(r, "What the service manager has kept for us cannot be taken");
        r = read_boot_id(k->boot_id);
        if (r < 0)
                return log_error_errno(r, "The boot id cannot be read");
        if (!state_dir || !fdstore_is_there(k->store)) {
                log_info("Nothing outlives this tdpd: it was started without %s",
                         state_dir ? "a service manager that keeps descriptors" : "a folder for records");
                return 0;
        }
        r = state_open(state_dir, &k->state);
        if (r == -EBUSY)
                return log_error_errno(r, "Another tdpd uses %s: stop it, or give --state-dir=", state_dir);
        if (r < 0)
                return log_error_errno(r, "Records cannot be kept in %s", state_dir);
        return 0;
}

void keeper_done(Manager *m) {
        Keeper *k = &m->keeper;

        sd_event_source_disable_unref(k->flush);
        sd_event_source_disable_unref(k->retry);
        state_free(k->state);
        fdstore_free(k->store);
}

void keeper_say_what_stays(Manager *m) {
        char names[400] = "";
        size_t n = 0;
        VM *vm, *tmp;

        HASH_ITER (hh, m->vms, vm, tmp)
                if (n < sizeof(names))
                        n += (size_t) snprintf(names + n, sizeof(names) - n, "%s%s", n > 0 ? ", " : "",
                                               vm->name);
        if (n >= sizeof(names))
                strcpy(names + sizeof(names) - 4, "...");
        if (n == 0)
                return;
        log_message(MESSAGE_STOPPING_WITH_VMS, FIELDS(FIELD_NUMBER("TDP_VMS", HASH_COUNT(m->vms))),
                    "Ending with %u VMs. %s pins go, and memory that no VMM has mapped: %s",
                    HASH_COUNT(m->vms),
                    m->keeper.state ? "A restart takes them over; if this is a stop, their" : "Their",
                    names);
}

/* The lists belong to the VM still. */
static void fill_record(VM *vm, VMState state, Record *r) {
        *r = (Record){
                .lease = vm->kept.lease,
                .uid = vm->uid,
                .state = state,
                .was_built = vm->was_built,
                .generation = vm->generation,
                .bytes = vm->bytes,
                .page_size = vm->page_size,
                .nodes = vm->nodes,
                .has_handle = vm->handle >= 0 && vm->kept.handle,
                .last_job = vm->manager->last_job_id,
                .job_id = vm->job ? vm->job->id : 0,
                .job_type = "-",
                .has_decision = vm->options.has_decision,
                .decision = vm->options.decision,
                .facts = vm->options.facts,
                .max_level = vm->options.max_level,
                .auto_slots = vm->auto_slots,
                .built = vm->built,
                .let_go = vm->let_go,
                .built_charge = vm->built_charge,
                .built_slots_bytes = vm->built_slots_bytes,
                .built_level = vm->built_level,
                .heal_level = vm->heal_level,
                .charge_bytes = vm->charge.amounts.bytes,
                .populate_usec = vm->populate_usec,
                .policy = vm->policy,
        };
        strcpy(r->boot_id, vm->manager->keeper.boot_id);
        strcpy(r->name, vm->name);
        if (state >= VM_ATTACHED) {
                r->pid = (uint32_t) vm->pid;
                r->start_time = vm->start_time;
        }
        if (vm->job)
                snprintf(r->job_type, sizeof(r->job_type), "%s", job_type_to_string(vm->job->type));
}

static int format(VM *vm, VMState state, char **ret, size_t *ret_size) {
        _cleanup_free_ PlacementPart *parts = NULL;
        size_t n = vm->memory ? vm->memory->n_parts : 0;
        Record record;

        fill_record(vm, state, &record);
        parts = calloc(n + 1, sizeof(*parts));
        if (!parts)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++)
                /* Of a warm slab as much as the VM will have. */
                parts[i] = (PlacementPart){ .node = vm->memory->parts[i].node,
                                            .bytes = MIN_OF(vm->memory->parts[i].bytes, vm->bytes) };
        record.parts = parts;
        record.n_parts = n;
        return record_format(&record, ret, ret_size);
}

static int new_lease(uint64_t *ret) {
        do
                if (getrandom(ret, sizeof(*ret), 0) != sizeof(*ret))
                        return -EIO;
        while (*ret == 0);
        return 0;
}

int vm_get_lease(VM *vm, uint64_t *ret) {
        int r = vm->kept.lease == 0 ? new_lease(&vm->kept.lease) : 0;

        *ret = vm->kept.lease;
        return r;
}

static int on_flush(sd_event_source *s, void *userdata);

static int on_retry(sd_event_source *s, uint64_t usec, void *userdata) {
        return on_flush(s, userdata);
}

void keeper_retry_later(Manager *m) {
        int r, enabled = SD_EVENT_OFF;
        Keeper *k = &m->keeper;

        /* Many failures at once are one. */
        if (k->retry && sd_event_source_get_enabled(k->retry, &enabled) >= 0 && enabled != SD_EVENT_OFF)
                return;
        k->retry_usec = k->retry_usec == 0 ? RETRY_FIRST_USEC : MIN_OF(2 * k->retry_usec, RETRY_MAX_USEC);
        k->retry = sd_event_source_disable_unref(k->retry);
        r = sd_event_add_time_relative(m->event, &k->retry, CLOCK_MONOTONIC, k->retry_usec, 0, on_retry, m);
        if (r < 0) {
                k->retry_usec = 0;
                log_warning_errno(r, "Records will not be written before the next change");
        }
}

static void take_back(VM *vm, bool memory, bool handle) {
        FdStore *store = vm->manager->keeper.store;
        uint64_t lease = vm->kept.lease;
        int r = 0;

        for (unsigned i = 0; memory && vm->memory && i < vm->memory->n_parts; i++)
                r = MIN_OF(r, fdstore_remove(store, (FdName){ FD_MEMORY, i, lease }));
        if (handle)
                r = MIN_OF(r, fdstore_remove(store, (FdName){ FD_HANDLE, 0, lease }));
        if (r < 0) {
                log_warning_errno(r,
                                  "VM %s: the service manager still has its descriptors, and is told again",
                                  vm->name);
                keeper_retry_later(vm->manager);
        }
        vm->kept.memory &= !memory;
        vm->kept.handle &= !handle;
}

/* All or nothing. */
static int hand_over(VM *vm, bool memory, bool handle) {
        FdStore *store = vm->manager->keeper.store;
        unsigned n = memory ? (unsigned) vm->memory->n_parts : 0, pushed = 0;
        uint64_t lease = vm->kept.lease;
        int r = 0;

        while (pushed < n && r >= 0) {
                r = fdstore_push(store, (FdName){ FD_MEMORY, pushed, lease }, vm->memory->parts[pushed].fd);
                pushed += r >= 0;
        }
        if (handle && r >= 0)
                r = fdstore_push(store, (FdName){ FD_HANDLE, 0, lease }, vm->handle);
        while (r < 0 && pushed > 0)
                if (fdstore_remove(store, (FdName){ FD_MEMORY, --pushed, lease }) < 0)
                        keeper_retry_later(vm->manager);
        return r;
}

int vm_keep(VM *vm, VMState state, sd_bus_error *error) {
        bool memory = vm->memory && !vm->kept.memory, handle = vm->handle >= 0 && !vm->kept.handle;
        size_t n = (memory ? vm->memory->n_parts : 0) + handle;
        Keeper *k = &vm->manager->keeper;
        _cleanup_free_ char *text = NULL;
        size_t size;
        int r = 0;

        if (!k->state)
                return 0;
        (void) fdstore_remove_late(k->store); /* what is late takes room */
        if (fdstore_room(k->store) < n)
                return sd_bus_error_setf(
                                error, TDP_ERROR_LIMIT,
                                "VM \"%s\" has %zu descriptors to be kept over a restart of tdpd, and the service "
                                "manager keeps %zu more: release a VM, or raise FileDescriptorStoreMax= of "
                                "tdpd.service, up to %u",
                                vm->name, n, fdstore_room(k->store), FD_NAMES_MAX);
        if (vm->kept.lease == 0)
                r = new_lease(&vm->kept.lease);
        vm->kept.memory |= memory;
        vm->kept.handle |= handle;
        if (r >= 0)
                r = format(vm, state, &text, &size);
        if (r >= 0)
                r = state_prepare(k->state, vm->name, text, size);
        if (r < 0) {
                vm->kept.memory &= !memory;
                vm->kept.handle &= !handle;
        } else {
                r = hand_over(vm, memory, handle);
                if (r < 0) {
                        vm->kept.memory &= !memory;
                        vm->kept.handle &= !handle;
                } else {
                        r = state_commit(k->state, vm->name);
                        if (r < 0)
                                take_back(vm, memory, handle);
                }
                if (r < 0)
                        (void) state_forget_prepared(k->state, vm->name);
        }
        if (r < 0)
                return sd_bus_error_setf(
                                error, TDP_ERROR_FAILED,
                                "VM \"%s\" could not be kept over a restart of tdpd, as its record cannot be "
                                "written to %s: %s; make room there, all is as it was before",
                                vm->name, state_path(k->state), strerror(-r));
        vm->kept.dirty = false;
        return 0;
}

static int write_record(VM *vm) {
        Keeper *k = &vm->manager->keeper;
        _cleanup_free_ char *text = NULL;
        size_t size;
        int r;

        r = format(vm, vm->state, &text, &size);
        if (r >= 0)
                r = state_write(k->state, vm->name, text, size);
        if (r >= 0)
                vm->kept.dirty = false;
        return r;
}

/* Said once, until it works again.  An old record is still true enough: nothing is let go because of it. */
static void try_again(Manager *m, const VM *vm, int error) {
        Keeper *k = &m->keeper;

        if (k->retry_usec == 0)
                (void) log_message_errno(
                                MESSAGE_RECORD_NOT_WRITTEN, error, FIELDS(FIELD_VM(vm)),
                                "The record of VM %s in %s cannot be brought up to date; all stays as "
                                "it is, and this is tried again",
                                vm->name, state_path(k->state));
        keeper_retry_later(m);
}

/* All that is not up to date; the last one that cannot be written. */
static VM *write_records(Manager *m, int *ret_error) {
        VM *vm, *tmp, *bad = NULL;
        int r;

        HASH_ITER (hh, m->vms, vm, tmp) {
                if (!vm->kept.dirty || vm->kept.lease == 0)
                        continue;
                r = write_record(vm);
                if (r < 0) {
                        bad = vm;
                        *ret_error = r;
                }
        }
        return bad;
}

static int on_flush(sd_event_source *s, void *userdata) {
        Manager *m = userdata;
        int error = 0, late;
        VM *bad;

        m->keeper.flush = sd_event_source_disable_unref(m->keeper.flush);
        late = MIN_OF(fdstore_remove_late(m->keeper.store), draining_keep_late(m));
        bad = write_records(m, &error);
        if (bad)
                try_again(m, bad, error);
        else if (late < 0)
                keeper_retry_later(m);
        else {
                if (m->keeper.retry_usec > 0)
                        log_info("Records in %s are up to date again", state_path(m->keeper.state));
                m->keeper.retry_usec = 0;
        }
        return 0;
}

void keeper_flush(Manager *m) {
        int error = 0;
        VM *bad;

        (void) fdstore_remove_late(m->keeper.store);
        (void) draining_keep_late(m);
        bad = m->keeper.state ? write_records(m, &error) : NULL;
        if (bad)
                (void) log_message_errno(MESSAGE_RECORD_NOT_WRITTEN, error, FIELDS(FIELD_VM(bad)),
                                         "The record of VM %s in %s cannot be brought up to date; the next "
                                         "tdpd finds the one before",
                                         bad->name, state_path(m->keeper.state));
}

void vm_keep_later(VM *vm) {
        Keeper *k = &vm->manager->keeper;

        if (!k->state || vm->kept.lease == 0)
                return;
        vm->kept.dirty = true;
        /* After a failure the timer comes. */
        if (k->flush || k->retry_usec > 0)
                return;
        if (sd_event_add_defer(vm->manager->event, &k->flush, on_flush, vm->manager) < 0)
                vm_keep_now(vm);
}

void vm_keep_now(VM *vm) {
        int r;

        if (!vm->manager->keeper.state || vm->kept.lease == 0)
                return;
        r = write_record(vm);
        if (r < 0) {
                vm->kept.dirty = true;
                try_again(vm->manager, vm, r);
        }
}

int vm_unkeep(VM *vm, fdstore_done_t done, void *userdata, FdBarrier **ret) {
        bool any = vm->kept.memory || vm->kept.handle;

        if (!any)
                return 0;
        take_back(vm, vm->kept.memory, vm->kept.handle);
        /* Who closes a file last frees its memory: that shall be a thread of ours. */
        return fdstore_barrier(vm->manager->keeper.store, vm->manager->event, done, userdata, ret) < 0 ? 0
                                                                                                       : 1;
}

void vm_forget(VM *vm) {
        Keeper *k = &vm->manager->keeper;
        int r;

        if (!k->state || vm->kept.lease == 0)
                return;
        take_back(vm, vm->kept.memory, vm->kept.handle);
        vm->kept.dirty = false;
        r = state_remove(k->state, vm->name);
        if (r < 0)
                log_warning_errno(r, "VM %s: its record in %s cannot be removed; the next tdpd will do it",
                                  vm->name, state_path(k->state));
}
