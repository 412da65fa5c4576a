/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>

#include "admit.h"
#include "bus-error.h"
#include "bus-job.h"
#include "bus-vm.h"
#include "cut.h"
#include "decide.h"
#include "format.h"
#include "log-message.h"
#include "populate.h"
#include "queue.h"
#include "room.h"
#include "vm.h"
#include "warm.h"

static void set_canceled(const VM *vm, uint64_t progress, const char *rest, sd_bus_error *error) {
        sd_bus_error_setf(error, TDP_ERROR_CANCELED, "canceled after %" PRIu64 " of %" PRIu64 " bytes; %s",
                          progress, vm->bytes, rest);
}

/* What a job that has come to its end means to its VM. */
static void end(VM *vm, int result, uint64_t progress, const sd_bus_error *why) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        Job *j = vm->job;
        uint64_t now = 0;

        if (!j) { /* it was told already */
                vm->rest.ops->free(TAKE_PTR(vm->rest.work));
                vm_release_continue(vm);
                return;
        }
        (void) sd_event_now(vm->manager->event, CLOCK_MONOTONIC, &now);
        vm->populate_usec = now - j->started_usec;

        if (result >= 0 && !vm->releasing) {
                vm_event(vm, VM_EVENT_POPULATE_DONE);
                job_end(j);
                pools_look_soon(vm->manager);
                return;
        }

        if (sd_bus_error_is_set(&j->error)) { /* it is undone because of that */
                (void) sd_bus_error_move(&error, &j->error);
                why = &error;
        } else if (result == -ECANCELED || result >= 0) {
                set_canceled(vm, progress, "all is given back", &error);
                why = &error;
        }
        job_fail(j, why);
        /* The job ends when the pages are back. */
        if (vm->releasing)
                vm_release_continue(vm);
        else
                (void) vm_release(vm, NULL);
}

void vm_reserve_tell_canceled(VM *vm) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        Job *j = vm->job;
        uint64_t progress = job_progress(j);

        /* Else its threads have ended, and what is left is to be given back. */
        if (!j->failed) {
                vm->rest.ops = j->ops;
                vm->rest.work = TAKE_PTR(j->work);
                if (sd_bus_error_is_set(&j->error))
                        (void) sd_bus_error_move(&error, &j->error);
                else
                        set_canceled(vm, progress,
                                     "all is given back once the page is done that a thread is at", &error);
                job_fail(j, &error);
                (void) vm_release(vm, NULL);
        }
        job_end(j);
}

static void on_populated(Worker *w, int result, void *userdata) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        VM *vm = userdata;

        if (vm->job && result < 0 && result != -ECANCELED)
                populate_set_error(vm->job->work, result, &error);
        end(vm, result, worker_progress(w), &error);
}

static int start_populate(VM *vm, sd_bus_error *error) {
        PopulateRequest request = { .max_threads = (unsigned) vm->manager->config.threads };
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        Populate *populate;
        int r;

        r = manager_load_nodes(vm->manager, &nodes, error);
        if (r < 0)
                return r;
        r = populate_start(vm->manager->event, vm->memory, nodes, &request, on_populated, vm, &populate,
                           error);
        if (r < 0)
                return r;
        job_set_work(vm->job, &populate_job, populate);
        return job_watch(vm->job, JOB_PHASE_POPULATE, vm->bytes);
}

static void fail_with(VM *vm, int r, const char *what) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;

        sd_bus_error_setf(&error, TDP_ERROR_FAILED, "%s failed: %s; all is given back", what, strerror(-r));
        end(vm, r, 0, &error);
}

static void on_tail_cut(Worker *w, int result, void *userdata) {
        VM *vm = userdata;

        if (result >= 0)
                result = memory_part_seal(&vm->memory->parts[0]);
        if (result < 0 && result != -ECANCELED)
                fail_with(vm, result, "giving back the rest of a warm slab");
        else
                end(vm, result, 0, NULL);
}

static int start_cut(VM *vm) {
        Cut *cut;
        int r;

        r = cut_start(vm->manager->event, vm->memory, vm->bytes, on_tail_cut, vm, &cut);
        if (r < 0)
                return r;
        job_set_work(vm->job, &cut_job, cut);
        return job_watch(vm->job, JOB_PHASE_POPULATE, vm->bytes);
}

int vm_go_on_populating(VM *vm, sd_bus_error *error) {
        Job *j;
        int r;

        r = job_new(vm, vm->uid, JOB_RESERVE, &j, error);
        if (r < 0)
                return r;
        /* A part of a slab, which was not given to anybody yet. */
        if (vm->memory->n_parts == 1 && vm->memory->parts[0].bytes > vm->bytes)
                return start_cut(vm);
        if (vm->memory->n_parts == 1)
                (void) memory_part_seal(&vm->memory->parts[0]); /* EPERM if it is */
        return start_populate(vm, error);
}

/* > 0: the VM has its memory, and there is nothing left to do.  0: its job sees to it. */
static int take_slab(VM *vm, Slab *slab, sd_bus_error *error) {
        int r;

        vm->memory = TAKE_PTR(slab->memory);
        slab_free(slab);
        vm->page_size = vm->memory->page_size;
        if (vm->memory->bytes == vm->bytes) {
                r = memory_part_seal(&vm->memory->parts[0]);
                return r < 0 ? r : 1;
        }

        return start_cut(vm);
}

static void on_room_made(VM *vm, int r) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;

        if (r >= 0)
                r = start_populate(vm, &error);
        if (r < 0 && (r == -ECANCELED || sd_bus_error_is_set(&error)))
                end(vm, r, 0, &error);
        else if (r < 0)
                fail_with(vm, r, "giving up warm slabs");
}

/* Whoever did not ask for it should know where it comes from. */
static int blame_rule(const Rule *rule, const VMOptions *asked, const VMOptions *o, int r,
                      sd_bus_error *error) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error why = SD_BUS_ERROR_NULL;
        bool page_size = asked->page_size != o->page_size, nodes = asked->has_nodes != o->has_nodes;

        if (!sd_bus_error_is_set(error) || (!page_size && !nodes))
                return r;
        r = sd_bus_error_move(&why, error);
        if (r == 0)
                return r;
        return sd_bus_error_setf(error, why.name, "%s (%s%s%s from rule \"%s\" of the configuration)",
                                 why.message, page_size ? "the page size" : "",
                                 page_size && nodes ? " and " : "", nodes ? "the nodes are" : " is",
                                 rule->name);
}

static int charge_memory(VM *vm, size_t n_parts, sd_bus_error *error) {
        Amounts a = { .vms = 1, .bytes = vm->bytes, .fds = VM_FDS + MAX_OF(n_parts, 1U) };

        return charge_set(&vm->charge, &a, error);
}

/* Those who wait for the pages of a slab's pool have it given up for them. */
static bool has_turn(VM *vm, NodeTable *nodes, const Slab *slab) {
        PlacementRequest request = manager_placement_request(vm->bytes, &vm->options);

        queue_mark(vm->manager, vm, nodes);
        request.page_size = slab->memory->page_size;
        request.nodes = (IdSet){};
        request.n_parts = 0;
        request.has_nodes = true;
        request.numa_mode = NUMA_AUTO;
        idset_add(&request.nodes, slab->memory->parts[0].node);
        return placement_has_turn(nodes, &request);
}

/* The same results as take_slab(), and -EALREADY without an error: there will be room once warm memory is
 * not worked on any more.  "placement" is where the memory would go without slabs, if that is possible; if
 * it is not, "why" says so. */
static int get_memory(VM *vm, Placement *placement, const sd_bus_error *why, sd_bus_error *error) {
        PlacementRequest request = manager_placement_request(vm->bytes, &vm->options);
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        Manager *m = vm->manager;
        Slab *slab = NULL, *leaving = NULL;
        int r;

        r = manager_load_nodes(m, &nodes, error);
        if (r >= 0)
                r = placement_resolve(nodes, &request, error);
        if (r < 0)
                return r;

        if (vm->options.warm)
                slab = warm_take(m->warm, &request, placement->page_size);
        if (slab && placement->n_parts == 0 && !has_turn(vm, nodes, slab)) {
                warm_put_back(m->warm, slab);
                slab = NULL;
        }
        if (slab) {
                r = admit_vmm(m, vm->cgroup, slab->memory->page_size, vm->bytes, error);
                if (r >= 0)
                        return take_slab(vm, slab, error);
                warm_put_back(m->warm, slab);
                return r;
        }
        if (placement->n_parts > 0)
                r = admit_huge_pages(m, vm->cgroup, placement->page_size, vm->bytes, error);
        else {
                r = warm_give_up(m->warm, vm, &request, placement, &leaving);
                if (r <= 0)
                        return r < 0 ? r : sd_bus_error_copy(error, why);
                /* What slabs give up is charged to us already. */
                r = admit_vmm(m, vm->cgroup, placement->page_size, vm->bytes, error);
        }
        if (r >= 0)
                r = charge_memory(vm, placement->n_parts, error);
        if (r >= 0)
                r = memory_new(vm->name, placement, true, &vm->memory, error);
        if (r < 0) {
                room_close(m, leaving);
                return r;
        }
        vm->page_size = placement->page_size;
        return leaving ? room_make(vm, leaving, on_room_made) : start_populate(vm, error);
}

/* It has its memory, or its job is about to see to that. */
static int settle(VM *vm, const DecideRequest *request, const Rule *rule, bool is_there,
                  sd_bus_error *error) {
        DecideRequest q = *request;
        int r;

        for (size_t i = 0; i < vm->memory->n_parts; i++)
                idset_add(&vm->nodes, vm->memory->parts[i].node);
        q.page_size = vm->page_size;
        decide(vm->manager, &q, &vm->options, rule, &vm->policy);
        r = vm_keep(vm, is_there ? VM_POPULATED : VM_RESERVED, error);
        if (r < 0)
                return r;
        return is_there ? job_end_soon(vm->job) : 0;
}

static void tell(VM *vm, bool is_there) {
        _cleanup_free_ char *why = decide_describe(&vm->policy);

        log_message(MESSAGE_VM_RESERVED,
                    FIELDS(FIELD_VM(vm), FIELD_BYTES(vm->bytes),
                           FIELD_NUMBER("TDP_PAGE_SIZE", vm->page_size),
                           FIELD_TEXT("TDP_DECISION", vm->policy.build ? "build" : "skip"),
                           FIELD_TEXT("TDP_REASON", vm->policy.reasons[0].word),
                           FIELD_TEXT("TDP_RULE", vm->policy.rule)),
                    "VM %s of user %u: %s in pages of %s, %s, decision %s", vm->name, vm->uid,
                    format_bytes(vm->bytes), format_bytes(vm->page_size),
                    is_there ? "from a warm slab" : "populating", why ?: "unknown");
        if (is_there)
                vm_event(vm, VM_EVENT_POPULATE_DONE);
}

static DecideRequest decide_request(const char *name, uid_t uid, uint64_t bytes, pid_t pid) {
        return (DecideRequest){
                .name = name, .has_uid = true, .uid = uid, .pid = pid, .bytes = bytes, .backed = true
        };
}

int vm_reserve_again(VM *vm, sd_bus_error *error) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error no_pages = SD_BUS_ERROR_NULL;
        DecideRequest request = decide_request(vm->name, vm->uid, vm->bytes, 0);
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        _cleanup_(placement_done) Placement placement = {};
        Manager *m = vm->manager;
        bool is_there;
        Job *j = vm->job;
        int r;

        r = manager_place(m, vm, vm->bytes, &vm->options, &nodes, &placement, &no_pages);
        if (r < 0 && (!sd_bus_error_has_name(&no_pages, TDP_ERROR_NO_PAGES) || warm_count(m->warm) == 0))
                return sd_bus_error_is_set(&no_pages) ? sd_bus_error_move(error, &no_pages) : r;
        r = get_memory(vm, &placement, &no_pages, error);
        if (r < 0)
                return r;
        is_there = r > 0;
        r = settle(vm, &request, rules_find(&m->config.rules, vm->policy.rule), is_there, error);
        if (r < 0) {
                if (is_there)
                        job_fail(j, error);
                else /* its threads end first */
                        (void) sd_bus_error_copy(&j->error, error);
                (void) vm_release(vm, NULL);
                return 0;
        }
        j->phase = JOB_PHASE_POPULATE;
        bus_job_changed(j, "Phase");
        bus_job_changed(j, "Total");
        bus_vm_changed(vm, "Nodes");
        tell(vm, is_there);
        return 0;
}

int vm_reserve(Manager *m, uid_t uid, const char *name, uint64_t bytes, const VMOptions *asked, VM **ret,
               sd_bus_error *error) {
        DecideRequest request = decide_request(name, uid, bytes, asked->pid);
        VMOptions o = *asked;
        const Rule *rule;
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error no_pages = SD_BUS_ERROR_NULL;
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        _cleanup_(placement_done) Placement placement = {};
        bool is_there, waits = false;
        VM *vm = NULL;
        Job *j;
        int r;

        r = vm_check_name(m, name, error);
        if (r < 0)
                return r;
        r = decide_prepare(m, &request, &o, &rule);
        if (r < 0)
                return r;
        /* Slabs can still help if there are too few pages, or time, and nothing can if the request makes no
         * sense. */
        r = manager_place(m, NULL, bytes, &o, &nodes, &placement, &no_pages);
        if (r < 0)
                r = blame_rule(rule, asked, &o, r, &no_pages);
        if (r < 0 && (!sd_bus_error_has_name(&no_pages, TDP_ERROR_NO_PAGES) ||
                      (warm_count(m->warm) == 0 && o.wait_usec == 0)))
                return sd_bus_error_is_set(&no_pages) ? sd_bus_error_move(error, &no_pages) : r;

        /* From here on vm_free() is the undo of everything. */
        r = vm_new(m, name, uid, VM_RESERVED, &o, bytes, error, &vm);
        if (r < 0)
                return r;
        if (o.cgroup) {
                vm->cgroup = strdup(o.cgroup);
                if (!vm->cgroup) {
                        r = -ENOMEM;
                        goto fail;
                }
        }
        if ((r = charge_memory(vm, placement.n_parts, error)) < 0 ||
            (r = job_new(vm, uid, JOB_RESERVE, &j, error)) < 0)
                goto fail;
        r = get_memory(vm, &placement, &no_pages, error);
        if (r == -EALREADY ||
            (r < 0 && o.wait_usec > 0 && sd_bus_error_has_name(error, TDP_ERROR_NO_PAGES))) {
                sd_bus_error_free(error);
                request.has_no_pages = waits = true;
                request.page_size = o.page_size ?: base_page_size();
                decide(m, &request, &o, rule, &vm->policy);
                r = queue_add(vm, r == -EALREADY, error);
        }
        if (r < 0)
                goto fail;
        is_there = r > 0;
        r = waits ? 0 : settle(vm, &request, rule, is_there, error);
        if (r < 0)
                goto fail;

        bus_vm_added(vm);
        bus_job_added(j);
        if (!waits)
                tell(vm, is_there);
        *ret = vm;
        return 0;

fail:
        vm_forget(vm);
        vm_free(vm);
        return r;
}
