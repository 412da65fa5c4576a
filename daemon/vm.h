/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <systemd/sd-bus.h>
#include <uthash.h>

#include "account.h"
#include "drain.h"
#include "handle.h"
#include "job.h"
#include "keep.h"
#include "manager.h"
#include "memory.h"
#include "options.h"
#include "policy.h"
#include "record.h"
#include "span.h"
#include "vm-events.h"
#include "vm-heal.h"
#include "vm-state.h"

/* Descriptors that each VM may take, besides one for each node that its memory is on: of the VMM's process,
 * and of the kernel's handle. */
#define VM_FDS 2U

struct VM {
        Manager *manager;
        char *name;
        char *path;
        char *cgroup; /* whose limits it was held to, or NULL */
        uid_t uid;
        VMState state;
        bool was_built; /* before the build that runs */
        VMOptions options;
        PolicyOutput policy;

        uint64_t bytes;
        uint64_t page_size;
        IdSet nodes;
        Memory *memory; /* NULL for VMs that bring their own */

        Kept kept;                                              /* over a restart of ours */
        char reason_words[POLICY_REASONS_MAX][RECORD_WORD_MAX]; /* of a decision that comes from a record */

        pid_t pid; /* of the VMM, or 0 */
        uint64_t start_time;
        int pidfd;
        sd_event_source *pidfd_source;
        int handle; /* or -1 */
        sd_event_source *handle_source;

        Job *job;
        /* Of a job whose end was told before that of its threads. */
        struct {
                const JobOps *ops;
                void *work;
        } rest;

        /* What was asked for and has been built, what of it its user may not have pinned, and what both have
         * cost when all was built. */
        SpanSet built, let_go;
        uint64_t built_charge, built_slots_bytes;
        uint32_t built_level, heal_level; /* largest leaf of builds, and of what is healed after a split */
        bool auto_slots;
        SpanSet added; /* by the VMM, and it is not known yet if it could be built */
        uint64_t added_usec;
        uint64_t auto_errors; /* of the statistics, as last told */
        Healer *healer;       /* NULL without a handle, and if the kernel has no events */
        Events events;

        /* Whoever asked for the release is answered once pages and pins are back. */
        bool releasing, leaving;
        FdBarrier *barrier;
        Drain *drain;
        sd_event_source *grace;
        Worker *reaper;
        int reap_handle;
        struct VMWaiting *waiting;
        size_t n_waiting;

        uint64_t populate_usec;
        uint64_t generation;

        bool has_stats;
        uint64_t stats_usec; /* when they were read, and how long it took */
        uint64_t stats_cost_usec;
        struct kvm_gtdp_stats stats;

        Charge charge;
        UT_hash_handle hh;
};

/* Registers with the manager.  Refuses the name as vm_check_name() does. */
int vm_new(Manager *m, const char *name, uid_t uid, VMState state, const VMOptions *o, uint64_t bytes,
           sd_bus_error *error, VM **ret);
/* Takes it away without a word, with threads joined and all files closed. */
VM *vm_free(VM *vm);

VM *vm_find(Manager *m, const char *name);
VM *vm_find_by_pid(Manager *m, pid_t pid);
/* A name that VMs can have; and that none has, nor a record that is left alone. */
int vm_check_plain(const char *name, sd_bus_error *error);
int vm_check_name(Manager *m, const char *name, sd_bus_error *error);

void vm_event(VM *vm, VMEvent e);
/* Reads the kernel's statistics, or has them from shortly before.  NULL without a handle. */
const struct kvm_gtdp_stats *vm_stats(VM *vm);
/* They have been read just now, and it took so long. */
void vm_set_stats(VM *vm, const struct kvm_gtdp_stats *stats, uint64_t cost_usec);
/* Whether they show a mapping, and all of it. */
bool vm_stats_are_whole(const struct kvm_gtdp_stats *stats);

/* reserve.c: the VM's job populates; or it waits for pages, and the VM has no memory yet. */
int vm_reserve(Manager *m, uid_t uid, const char *name, uint64_t bytes, const VMOptions *o, VM **ret,
               sd_bus_error *error);

/* For one that waits.  NoPages, or -EALREADY without an error: it goes on waiting.  0: its job has what it
 * waited for, or is about to fail. */
int vm_reserve_again(VM *vm, sd_bus_error *error);

/* Its job was canceled, and its threads take long to notice: the job ends all the same, and the VM goes when
 * they have. */
void vm_reserve_tell_canceled(VM *vm);

/* For a VM that was being populated by the daemon before: a job that is not told of yet. */
int vm_go_on_populating(VM *vm, sd_bus_error *error);

/* attach.c: takes vm_fd and pidfd, whatever comes of it. */
int vm_attach(Manager *m, VM *joined, uid_t uid, const char *name, int vm_fd, pid_t pid, int pidfd,
              const VMOptions *o, VM **ret, sd_bus_error *error);
/* Has the end of its VMM told, and what happens on the handle if the kernel has events. */
int vm_watch(VM *vm, bool events);
/* vm-build.c: makes a job that builds, heals, splits or collapses, within a span or ("within" NULL) all
 * slots. State and bus are the caller's to tell. */
int vm_start_build(VM *vm, uid_t uid, JobType type, uint32_t max_level, const SpanSet *within, Job **ret,
                   sd_bus_error *error);
/* The VM can have such a job: it has a handle, and the kernel knows how. */
int vm_check_build(VM *vm, JobType type, sd_bus_error *error);

/* vm-slots.c: slots came ("added", or NULL), went, or changed their flags. */
void vm_slots_update(VM *vm, const SpanSet *added);
/* Heals what the kernel could not build of what was added.  false: the statistics are too old to tell. */
bool vm_slots_check_auto_builds(VM *vm);

/* release.c: "message" is replied to when all is back; that is charged to "uid". */
typedef struct VMRelease {
        sd_bus_message *message;
        uid_t uid;
        sd_bus_error *error; /* LimitExceeded */
} VMRelease;

int vm_release(VM *vm, const VMRelease *call);
void vm_waiting_done(VM *vm);
/* For jobs: their VM was to be released meanwhile, or because of them. */
void vm_release_continue(VM *vm);
