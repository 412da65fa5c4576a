/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "queue.h"

#include <errno.h>
#include <inttypes.h>
#include <utlist.h>

#include "bus-error.h"
#include "bus-job.h"
#include "clock.h"
#include "format.h"
#include "log-message.h"
#include "vm.h"

/* Memory comes free without a word as well: small pages, and pools that nobody has looked at yet. */
#define LOOK_USEC (UINT64_C(1000) * 1000)

typedef struct Ticket {
        VM *vm;
        PlacementRequest request; /* resolved */
        uint64_t since_usec, deadline_usec;
        bool until_stopped; /* the deadline does not count as long as that is to come */
        bool possible;      /* when last tried */
        bool in_queue;
        struct Ticket *prev, *next;
} Ticket;

typedef struct Queue {
        Manager *manager;
        Ticket *tickets; /* the first one came first */
        sd_event_source *timer;
        bool kicked;
} Queue;

static Worker *no_worker(void *work) {
        return NULL;
}

static void leave(Ticket *t) {
        if (!t->in_queue)
                return;
        DL_DELETE(t->vm->manager->queue->tickets, t);
        t->in_queue = false;
}

static void ticket_free(void *work) {
        Ticket *t = work;

        leave(t);
        free(t);
}

static void on_cancel(void *work) {
        (void) vm_release(((Ticket *) work)->vm, NULL);
}

static const JobOps queue_job = { .worker = no_worker, .cancel = on_cancel, .free = ticket_free };

static Ticket *ticket_of(const VM *vm) {
        return vm->job && vm->job->ops == &queue_job && vm->job->work ? vm->job->work : NULL;
}

bool queue_has(const VM *vm) {
        const Ticket *t = ticket_of(vm);

        return t && t->in_queue;
}

static void set_timer(Queue *q, uint64_t usec) {
        (void) sd_event_source_set_time(q->timer, usec);
        (void) sd_event_source_set_enabled(q->timer, SD_EVENT_ONESHOT);
}

bool queue_stops_warm(const Manager *m) {
        const Ticket *t;

        DL_FOREACH (m->queue->tickets, t)
                if (t->until_stopped)
                        return true;
        return false;
}

void queue_kick(Manager *m) {
        Queue *q = m->queue;

        if (!q || !q->tickets)
                return;
        q->kicked = true;
        set_timer(q, 0);
}

void queue_mark(Manager *m, const VM *vm, NodeTable *nodes) {
        const Ticket *t;

        if (!m->queue)
                return;
        DL_FOREACH (m->queue->tickets, t) {
                if (t->vm == vm)
                        break;
                if (t->possible)
                        placement_wait_for(nodes, &t->request);
        }
}

static uint64_t count_before(const Queue *q, const Ticket *until) {
        const Ticket *t;
        uint64_t n = 0;

        DL_FOREACH (q->tickets, t) {
                if (t == until)
                        break;
                n++;
        }
        return n;
}

void queue_leave(VM *vm) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        Ticket *t = ticket_of(vm);

        if (!t || !t->in_queue)
                return;
        leave(t);
        sd_bus_error_setf(&error, TDP_ERROR_CANCELED, "canceled while it waited for pages; it had none yet");
        job_fail(vm->job, &error);
        queue_kick(vm->manager); /* whoever is behind it moves up */
}

static void fail(Ticket *t, const sd_bus_error *why) {
        VM *vm = t->vm;

        leave(t);
        job_fail(vm->job, why);
        (void) vm_release(vm, NULL);
}

static void expire(const Queue *q, Ticket *t, const sd_bus_error *no_pages, uint64_t now) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;

        if (t->deadline_usec > t->since_usec)
                sd_bus_error_setf(&error, TDP_ERROR_NO_PAGES,
                                  "waited %" PRIu64 " ms, behind %" PRIu64 " others at the end: %s",
                                  (now - t->since_usec) / 1000, count_before(q, t),
                                  no_pages->message ?: "there are too few pages");
        fail(t, sd_bus_error_is_set(&error) ? &error : no_pages);
}

/* Whether it still waits. */
static bool try_one(Queue *q, Ticket *t) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        uint64_t now = clock_usec();
        VM *vm = t->vm;
        int r;

        job_set_work(vm->job, NULL, NULL); /* whatever comes of it has its own */
        r = vm_reserve_again(vm, &error);
        if (r >= 0) {
                log_info("VM %s: waited for pages for %" PRIu64 " ms", vm->name,
                         (now - t->since_usec) / 1000);
                ticket_free(t);
                return false;
        }
        if (vm->job->work)
                vm->job->ops->free(vm->job->work);
        job_set_work(vm->job, &queue_job, t);
        t->until_stopped = r == -EALREADY;
        if (!t->until_stopped && !sd_bus_error_has_name(&error, TDP_ERROR_NO_PAGES)) {
                if (!sd_bus_error_is_set(&error))
                        sd_bus_error_setf(&error, TDP_ERROR_FAILED, "no pages after a wait: %s",
                                          strerror(-r));
                fail(t, &error);
                return false;
        }
        if (!t->until_stopped && now >= t->deadline_usec) {
                expire(q, t, &error, now);
                return false;
        }
        if (manager_load_nodes(q->manager, &nodes, NULL) >= 0)
                t->possible = placement_is_possible(nodes, &t->request);
        return true;
}

static void try_all(Queue *q) {
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        uint64_t now = clock_usec();
        Ticket *t, *next;

        (void) manager_load_nodes(q->manager, &nodes, NULL);
        DL_FOREACH_SAFE(q->tickets, t, next) {
                /* Behind others in all of its pools there is nothing to be had, and much to be read. */
                bool has_turn = !nodes || now >= t->deadline_usec || placement_has_turn(nodes, &t->request);

                if (has_turn && !try_one(q, t))
                        continue;
                if (nodes && t->possible)
                        placement_wait_for(nodes, &t->request);
        }
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        uint64_t now = clock_usec(), due = now + LOOK_USEC;
        Queue *q = userdata;
        const Ticket *t;

        q->kicked = false;
        try_all(q);
        if (!q->tickets)
                return 0;
        DL_FOREACH (q->tickets, t)
                if (t->deadline_usec > now)
                        due = MIN_OF(due, t->deadline_usec);
        set_timer(q, q->kicked ? 0 : due);
        return 0;
}

static int check_limits(const Queue *q, uid_t uid, sd_bus_error *error) {
        uint64_t max = q->manager->config.max_waiting, n = 0, of_user = 0;
        const Ticket *t;

        DL_FOREACH (q->tickets, t) {
                n++;
                of_user += t->vm->uid == uid;
        }
        if (n < max && of_user < (max + 1) / 2)
                return 0;
        return sd_bus_error_setf(error, TDP_ERROR_LIMIT,
                                 "there are too few pages now, and %" PRIu64
                                 " requests wait for some already, %" PRIu64
                                 " of them of user %u: of MaxWaiting=%" PRIu64
                                 " in tdpd.conf a user may have half; ask again later",
                                 n, of_user, uid, max);
}

int queue_add(VM *vm, bool until_stopped, sd_bus_error *error) {
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        Queue *q = vm->manager->queue;
        _cleanup_free_ Ticket *t = NULL;
        uint64_t now = clock_usec();
        int r;

        /* Which is short, and of one slab at a time. */
        r = until_stopped ? 0 : check_limits(q, vm->uid, error);
        if (r < 0)
                return r;
        t = calloc(1, sizeof(*t));
        if (!t)
                return -ENOMEM;
        *t = (Ticket){
                .vm = vm,
                .request = manager_placement_request(vm->bytes, &vm->options),
                .since_usec = now,
                .deadline_usec = now + vm->options.wait_usec,
                .until_stopped = until_stopped,
        };
        r = manager_load_nodes(vm->manager, &nodes, error);
        if (r >= 0)
                r = placement_resolve(nodes, &t->request, error);
        if (r < 0)
                return r;
        t->possible = placement_is_possible(nodes, &t->request);

        vm->job->phase = JOB_PHASE_WAIT;
        vm->job->started_usec = now;
        t->in_queue = true;
        DL_APPEND(q->tickets, t);
        log_message(MESSAGE_VM_WAITS,
                    FIELDS(FIELD_VM(vm), FIELD_BYTES(vm->bytes),
                           FIELD_NUMBER("TDP_USEC", vm->options.wait_usec),
                           FIELD_NUMBER("TDP_BEFORE", count_before(q, t))),
                    "VM %s of user %u: %s wait for pages, up to %" PRIu64 " ms, behind %" PRIu64 " others%s",
                    vm->name, vm->uid, format_bytes(vm->bytes), vm->options.wait_usec / 1000,
                    count_before(q, t), t->possible ? "" : "; there are not so many pages at all");
        job_set_work(vm->job, &queue_job, TAKE_PTR(t));
        queue_kick(vm->manager);
        return 0;
}

int queue_new(Manager *m, Queue **ret) {
        Queue *q;
        int r;

        q = calloc(1, sizeof(*q));
        if (!q)
                return -ENOMEM;
        q->manager = m;
        r = sd_event_add_time(m->event, &q->timer, CLOCK_MONOTONIC, UINT64_MAX, 1000, on_timer, q);
        if (r < 0) {
                queue_free(q);
                return r;
        }
        *ret = q;
        return 0;
}

Queue *queue_free(Queue *q) {
        if (!q)
                return NULL;
        sd_event_source_disable_unref(q->timer);
        free(q);
        return NULL;
}
