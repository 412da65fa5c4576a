/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vm-restore.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "draining.h"
#include "format.h"
#include "log-message.h"
#include "process.h"
#include "vm.h"

void vm_restore_undo(Manager *m, uint64_t lease) {
        StoredFd *fds;
        size_t n;
        int r = 0;

        fds = fdstore_received(m->keeper.store, &n);
        for (size_t i = 0; i < n; i++)
                if (fds[i].fd >= 0 && fds[i].known && fds[i].name.lease == lease) {
                        r = MIN_OF(r, fdstore_remove(m->keeper.store, fds[i].name));
                        fds[i].fd = safe_close(fds[i].fd);
                }
        if (r < 0) {
                log_warning_errno(r,
                                  "The service manager still has descriptors of no use, and is told again");
                keeper_retry_later(m);
        }
}

void vm_restore_undo_extra(Manager *m) {
        StoredFd *fds;
        VM *vm, *tmp;
        size_t n, left = 0;

        fds = fdstore_received(m->keeper.store, &n);
        for (size_t i = 0; i < n; i++)
                left += fds[i].fd >= 0 && fds[i].known;
        if (left == 0)
                return;
        HASH_ITER (hh, m->vms, vm, tmp)
                vm_restore_undo(m, vm->kept.lease);
}

static bool is_part(int fd, const Record *r, size_t i) {
        int seals = fcntl(fd, F_GET_SEALS), sealed = F_SEAL_SHRINK | F_SEAL_GROW;
        uint64_t size;
        struct stat st;

        if (seals < 0 || fstat(fd, &st) < 0)
                return false;
        size = (uint64_t) st.st_size;
        if (r->page_size != base_page_size() && (uint64_t) st.st_blksize != r->page_size)
                return false;
        /* What comes from a warm slab may be cut still, and is not sealed before that. */
        if (r->state == VM_RESERVED && r->n_parts == 1 && !(seals & F_SEAL_SHRINK))
                return size >= r->parts[i].bytes;
        return (seals & sealed) == sealed && size == r->parts[i].bytes;
}

/* Of all its parts, or none. */
static int take_memory(Manager *m, const Record *r, Memory **ret) {
        _cleanup_(memory_freep) Memory *memory = NULL;

        for (size_t i = 0; i < r->n_parts; i++) {
                FdName name = { FD_MEMORY, (unsigned) i, r->lease };
                StoredFd *f = fdstore_find(m->keeper.store, name);

                if (!f)
                        return -ENOENT;
                if (!is_part(f->fd, r, i)) {
                        f->known = false; /* that is something else, and left alone */
                        return -ENOENT;
                }
        }
        memory = calloc(1, sizeof(*memory) + r->n_parts * sizeof(MemoryPart));
        if (!memory)
                return -ENOMEM;
        memory->page_size = r->page_size;
        for (; memory->n_parts < r->n_parts; memory->n_parts++) {
                MemoryPart *part = &memory->parts[memory->n_parts];
                struct stat st = {};

                part->fd = fdstore_take(m->keeper.store,
                                        (FdName){ FD_MEMORY, (unsigned) memory->n_parts, r->lease });
                part->node = r->parts[memory->n_parts].node;
                snprintf(part->name, sizeof(part->name), "node%u", part->node);
                (void) fstat(part->fd, &st);
                part->bytes = (uint64_t) st.st_size;
                memory->bytes += part->bytes;
                part->started = MIN_OF((uint64_t) st.st_blocks * 512, part->bytes);
        }
        *ret = TAKE_PTR(memory);
        return 0;
}

/* What others have of it drains. */
static int give_up(Manager *m, const Record *r) {
        int k = draining_add_stored(m, r);

        if (k < 0)
                return k;
        vm_restore_undo(m, r->lease);
        (void) state_remove(m->keeper.state, r->name);
        return 0;
}

/* It is not known what of it others have: nothing of it is given out again. */
static int lose(Manager *m, const Record *r) {
        bool has_vmm = r->state >= VM_ATTACHED;

        log_message(MESSAGE_VM_LOST, FIELDS(FIELD_TEXT("TDP_VM", r->name), FIELD_NUMBER("TDP_UID", r->uid)),
                    "VM %s of user %u is lost, as the service manager has not kept its descriptors; %s",
                    r->name, r->uid,
                    has_vmm ? "its pins are gone, and a running guest goes on with what its VMM has mapped: "
                              "attach it again"
                            : "its memory is free: reserve it again");
        return give_up(m, r);
}

static int finish_release(Manager *m, const Record *r) {
        log_info("VM %s: released", r->name);
        return give_up(m, r);
}

/* The very process that it was, and not another one of that pid.  A record that does not say when it was
 * started (0) is no reason to think so. */
static int find_vmm(const Record *r, int *ret_pidfd, uint64_t *ret_start_time) {
        _cleanup_close_ int pidfd = -1;
        uint64_t start_time;
        int k;

        k = process_open((pid_t) r->pid, &pidfd);
        if (k >= 0)
                k = process_get_start_time((pid_t) r->pid, &start_time);
        if (k < 0)
                return k;
        if ((r->start_time != 0 && start_time != r->start_time) || !process_is_alive(pidfd))
                return -ESRCH;
        *ret_pidfd = TAKE_FD(pidfd);
        *ret_start_time = start_time;
        return 0;
}

static void copy_record(VM *vm, Record *r) {
        vm->bytes = r->bytes;
        vm->page_size = r->page_size;
        vm->nodes = r->nodes;
        vm->was_built = r->was_built;
        vm->generation = MAX_OF(r->generation, UINT64_C(1)); /* before there were handoffs, 0 */
        vm->auto_slots = r->auto_slots;
        vm->built = r->built;
        vm->let_go = r->let_go;
        r->built = r->let_go = (SpanSet){};
        vm->built_charge = r->built_charge;
        vm->built_slots_bytes = r->built_slots_bytes;
        vm->built_level = r->built_level;
        vm->heal_level = r->heal_level;
        vm->populate_usec = r->populate_usec;
        vm->pid = (pid_t) r->pid;
        vm->start_time = r->start_time;
        vm->policy = r->policy;
        memcpy(vm->reason_words, r->words, sizeof(vm->reason_words));
        for (size_t i = 0; i < vm->policy.n_reasons; i++)
                vm->policy.reasons[i].word = vm->reason_words[i];
}

static JobType job_type(const Record *r) {
        for (JobType t = 0; t < _JOB_TYPE_MAX; t++)
                if (streq(job_type_to_string(t), r->job_type))
                        return t;
        return JOB_BUILD;
}

/* What ran goes on, under the same number. */
static int go_on(VM *vm, const Record *r) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        Manager *m = vm->manager;
        int k = 0;
        Job *j;

        if (r->job_id > 0)
                m->last_job_id = r->job_id - 1;
        if (vm->state == VM_RESERVED)
                k = vm_go_on_populating(vm, &error);
        else if (vm->state == VM_BUILDING) {
                k = vm_start_build(vm, vm->uid, r->job_type[0] == 'a' ? JOB_ATTACH : JOB_BUILD,
                                   vm->built_level, NULL, &j, &error);
                if (k < 0) /* the statistics say how much of it is there */
                        vm->state = vm->was_built ? VM_HEALING : VM_ATTACHED;
        } else if (r->job_id > 0 && strchr("hsc", r->job_type[0])) /* heal, split, collapse */
                log_info("VM %s: job %u (%s) has ended with the tdpd before, and what it has done stays",
                         vm->name, r->job_id, r->job_type);
        if (k >= 0)
                return 0;
        if (k == -ENOMEM && vm->state == VM_RESERVED) /* the next daemon may have it */
                return k;
        log_warning("VM %s: job %u (%s) cannot go on: %s", vm->name, r->job_id,
                    job_type_to_string(job_type(r)), error.message ?: strerror(-k));
        return vm->state == VM_RESERVED ? vm_release(vm, NULL) : 0;
}

/* Its VMM and its handle, as they are now. */
static int reconnect(VM *vm, const Record *r) {
        struct kvm_gtdp_info info;
        bool events;
        int k;

        k = find_vmm(r, &vm->pidfd, &vm->start_time);
        /* Not knowing is no reason to let go of anything. */
        if (k < 0 && k != -ESRCH)
                return log_error_errno(k, "VM %s: it cannot be told if its VMM (pid %u) is still there",
                                       vm->name, r->pid);
        if (k < 0) {
                log_info("VM %s: its VMM (pid %u) has gone meanwhile", vm->name, r->pid);
                return vm_release(vm, NULL);
        }
        events = handle_get_info(vm->manager->options.device, &info) >= 0 &&
                 (info.features & KVM_GTDP_FEAT_EVENTS);
        k = vm_watch(vm, events);
        if (k < 0 || vm->handle < 0)
                return k;
        (void) go_on(vm, r);
        return 0;
}

void vm_restore_catch_up(Manager *m, const AccountLimits *limits) {
        const AccountLimits lifted = m->accounts.limits;
        VM *vm, *tmp;

        HASH_ITER (hh, m->vms, vm, tmp) {
                if (vm->handle < 0 || vm->releasing)
                        continue;
                m->accounts.limits = *limits;
                /* What cannot be read now cannot be read by the loop either, which says so. */
                if (vm->healer)
                        (void) vm_events_read(vm);
                m->accounts.limits = lifted;
                /* What no event has told of is pinned all the same, and counts. */
                vm_slots_update(vm, NULL);
                /* What the daemon before us has read and not yet healed. */
                if (vm->healer && vm->built.n > 0)
                        healer_everything(vm->healer);
                (void) vm_stats(vm);
        }
}

static int make(Manager *m, Record *r, Memory **memory, int *handle) {
        VMOptions options = {
                .has_decision = r->has_decision,
                .decision = r->decision,
                .facts = r->facts,
                .max_level = r->max_level,
                .auto_slots = r->auto_slots,
        };
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        VM *vm;
        int k;

        if (*memory)
                draining_drop(m, r->lease);
        k = vm_new(m, r->name, r->uid, r->state, &options, r->charge_bytes, &error, &vm);
        if (k < 0)
                return k;
        (void) charge_set(&vm->charge,
                          &(Amounts){ .vms = 1, .bytes = r->charge_bytes, .fds = VM_FDS + r->n_parts },
                          NULL);
        copy_record(vm, r);
        vm->kept = (Kept){ .lease = r->lease, .memory = *memory, .handle = *handle >= 0 };
        vm->memory = TAKE_PTR(*memory);
        vm->handle = TAKE_FD(*handle);
        if (r->n_parts > 0 && !vm->memory)
                log_warning("VM %s: the service manager has not kept its memory; its VMM goes on with what it "
                            "has mapped, and nobody else can have it",
                            vm->name);
        if (r->has_handle && vm->handle < 0) {
                log_warning("VM %s: the service manager has not kept its handle, so its pins are gone: release "
                            "it and attach it again",
                            vm->name);
                vm->state = VM_ATTACHED;
                spanset_done(&vm->built);
                spanset_done(&vm->let_go);
        }
        vm_keep_later(vm);
        /* It may be released by that. */
        return vm->state >= VM_ATTACHED ? reconnect(vm, r) : go_on(vm, r);
}

int vm_restore(Manager *m, Record *r) {
        _cleanup_(memory_freep) Memory *memory = NULL;
        _cleanup_close_ int handle = -1;
        bool expects = r->n_parts > 0 || r->has_handle;
        int k;

        m->keeper.last_job = MAX_OF(m->keeper.last_job, r->last_job);
        if (r->state == VM_RELEASED)
                return finish_release(m, r);
        k = r->n_parts > 0 ? take_memory(m, r, &memory) : 0;
        if (k == -ENOMEM)
                return k;
        if (r->has_handle)
                handle = fdstore_take(m->keeper.store, (FdName){ FD_HANDLE, 0, r->lease });
        if ((r->state < VM_ATTACHED && !memory) || (expects && !memory && handle < 0))
                return lose(m, r);
        return make(m, r, &memory, &handle);
}
