/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vm-heal.h"

#include <errno.h>
#include <inttypes.h>

#include "build.h"
#include "clock.h"
#include "format.h"
#include "log-message.h"
#include "vm-events.h"
#include "vm.h"

/* Statistics walk the page tables.  Where that is quick, they are read after each range, and tell which one
 * could be healed; else at the end of the round. */
#define QUICK_USEC UINT64_C(2000)

typedef struct Piece {
        HandleOp op;
        Span span;
        size_t range; /* of those taken */
        bool last;    /* of its range */
} Piece;

struct Healer {
        VM *vm;
        Heal heal;
        HealerCounts counts;
        sd_event_source *timer;
        SpanSet let_go;
        bool told_error;

        /* The round that runs.  What follows is the thread's. */
        Worker *worker;
        Piece *pieces;
        size_t n_pieces;
        uint32_t max_level;
        HealRange taken[HEAL_RANGES_MAX];
        size_t n_taken;
        bool mapped[HEAL_RANGES_MAX];
        size_t n_measured; /* ranges of which "mapped" is known */
        struct kvm_gtdp_stats stats;
        uint64_t mapped_at_start, stats_usec;
        bool measured;
        int error;
};

static uint64_t now_usec(const Healer *h) {
        uint64_t now = 0;

        (void) sd_event_now(h->vm->manager->event, CLOCK_MONOTONIC, &now);
        return now;
}

int healer_new(VM *vm, Healer **ret) {
        Healer *h = calloc(1, sizeof(*h));

        if (!h)
                return -ENOMEM;
        h->vm = vm;
        heal_init(&h->heal, &vm->manager->config.heal, now_usec(h));
        *ret = h;
        return 0;
}

Healer *healer_free(Healer *h) {
        if (!h)
                return NULL;
        worker_free(h->worker);
        sd_event_source_disable_unref(h->timer);
        spanset_done(&h->let_go);
        heal_done(&h->heal);
        free(h->pieces);
        free(h);
        return NULL;
}

HealerCounts healer_counts(const Healer *h) {
        HealerCounts c = h->counts;

        c.put_off = h->heal.n_put_off;
        return c;
}

/* In the thread. */
static void measure(Healer *h, size_t ranges_done) {
        struct kvm_gtdp_stats stats;
        uint64_t start = clock_usec();

        if (handle_get_stats(h->vm->handle, &stats) < 0)
                return;
        h->stats_usec = clock_usec() - start;
        for (; h->n_measured < ranges_done; h->n_measured++)
                h->mapped[h->n_measured] = stats.mapped_bytes > h->stats.mapped_bytes;
        if (!h->measured)
                h->mapped_at_start = stats.mapped_bytes;
        h->measured = true;
        h->stats = stats;
}

static int step(Worker *w, size_t lane, size_t index, void *userdata) {
        Healer *h = userdata;
        Piece *p = &h->pieces[index];
        int r;

        if (!h->measured)
                measure(h, 0);
        r = build_piece(w, h->vm->handle, p->op, &p->span, h->max_level);
        if (r == -EINTR || r == -ESRCH)
                return r;
        /* One range that cannot be healed keeps no other from it. */
        if (r < 0 && h->error == 0)
                h->error = r;
        if (p->op == HANDLE_HEAL && p->last && (index + 1 == h->n_pieces || h->stats_usec <= QUICK_USEC))
                measure(h, p->range + 1);
        return 0;
}

static void tell_error(Healer *h) {
        if (h->error == 0 || h->error == -EAGAIN || h->told_error)
                return;
        h->told_error = true;
        log_message_errno(MESSAGE_HEAL_FAILED, h->error, FIELDS(FIELD_VM(h->vm)),
                          "VM %s: holes cannot be healed now, and this is tried again more and more seldom",
                          h->vm->name);
}

static void schedule(Healer *h);

static void on_healed(Worker *w, int result, void *userdata) {
        Healer *h = userdata;
        VM *vm = h->vm;
        uint64_t now = now_usec(h);

        h->worker = worker_free(h->worker);
        if (vm->releasing) {
                vm_release_continue(vm);
                return;
        }

        for (size_t i = 0; i < h->n_taken; i++)
                if (i < h->n_measured)
                        heal_tried(&h->heal, now, &h->taken[i], h->mapped[i], h->stats.hole_bytes > 0);
                else
                        heal_again(&h->heal, now, &h->taken[i]);
        for (size_t i = 0; i < h->n_pieces && result == -ECANCELED; i++)
                if (h->pieces[i].op == HANDLE_RELEASE)
                        (void) spanset_add(&h->let_go, h->pieces[i].span); /* what is left of it */
        if (h->measured && h->stats.mapped_bytes > h->mapped_at_start)
                h->counts.bytes += h->stats.mapped_bytes - h->mapped_at_start;
        h->counts.rounds += h->n_taken > 0;
        log_debug("VM %s: %zu ranges healed, %s of holes left%s%s", vm->name, h->n_taken,
                  format_bytes(h->stats.hole_bytes), result < 0 ? ": " : "",
                  result < 0 ? strerror(-result) : "");
        tell_error(h);
        if (h->measured)
                vm_set_stats(vm, &h->stats, h->stats_usec);
        vm_events_tell(vm);
        schedule(h);
}

static int add_piece(Healer *h, HandleOp op, Span span, size_t range) {
        Piece *grown = reallocarray(h->pieces, h->n_pieces + 1, sizeof(*grown));

        if (!grown)
                return -ENOMEM;
        h->pieces = grown;
        h->pieces[h->n_pieces++] = (Piece){ .op = op, .span = span, .range = range };
        return 0;
}

/* Nothing is healed that was not built.  If it is not known what to heal, then not what is logged either. */
static int add_range(Healer *h, size_t range) {
        const HealRange *taken = &h->taken[range];
        _cleanup_(spanset_done) SpanSet set = {};
        size_t before = h->n_pieces;
        int r;

        r = spanset_add(&set, taken->span);
        if (r >= 0)
                r = spanset_intersect(&set, &h->vm->built);
        for (size_t i = 0; i < h->heal.logging.n && r >= 0 && heal_is_everything(taken); i++)
                r = spanset_remove(&set, h->heal.logging.spans[i]);
        for (size_t i = 0; i < set.n && r >= 0; i++)
                r = add_piece(h, HANDLE_HEAL, set.spans[i], range);
        if (r >= 0 && h->n_pieces > before)
                h->pieces[h->n_pieces - 1].last = true;
        return r;
}

static int start_round(Healer *h) {
        WorkerLane lane = { .n_threads = 1 };
        HealRange due[HEAL_RANGES_MAX];
        size_t n_due;
        int r = 0;

        h->n_pieces = h->n_taken = h->n_measured = 0;
        h->max_level = h->vm->heal_level;
        h->measured = false;
        h->error = 0;
        for (size_t i = 0; i < h->let_go.n && r >= 0; i++)
                r = add_piece(h, HANDLE_RELEASE, h->let_go.spans[i], 0);
        n_due = heal_take(&h->heal, now_usec(h), due);
        for (size_t i = 0; i < n_due && r >= 0; i++) {
                size_t before = h->n_pieces;

                h->taken[h->n_taken] = due[i];
                r = add_range(h, h->n_taken);
                h->n_taken += h->n_pieces > before; /* else nothing of it is ours any more */
        }
        if (r >= 0 && h->n_pieces == 0)
                return 0;
        lane.n_pieces = h->n_pieces;
        if (r >= 0)
                r = worker_start(h->vm->manager->event, &lane, 1, step, on_healed, h, &h->worker);
        if (r >= 0) {
                spanset_done(&h->let_go);
                return 0;
        }
        for (size_t i = 0; i < n_due; i++)
                heal_again(&h->heal, now_usec(h), &due[i]);
        return r;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        Healer *h = userdata;
        int r = start_round(h);

        if (r < 0)
                log_warning_errno(r, "VM %s: no thread to heal its holes, later again", h->vm->name);
        if (!h->worker)
                schedule(h);
        return 0;
}

static void schedule(Healer *h) {
        sd_event *event = h->vm->manager->event;
        uint64_t next;
        int r;

        if (h->worker || h->vm->job || h->vm->releasing || h->vm->handle < 0) {
                if (h->timer)
                        (void) sd_event_source_set_enabled(h->timer, SD_EVENT_OFF);
                return;
        }
        next = h->let_go.n > 0 ? now_usec(h) : heal_next_usec(&h->heal, now_usec(h));
        if (next == UINT64_MAX)
                return;
        if (!h->timer)
                r = sd_event_add_time(event, &h->timer, CLOCK_MONOTONIC, next, 10000, on_timer, h);
        else {
                r = sd_event_source_set_time(h->timer, next);
                if (r >= 0)
                        r = sd_event_source_set_enabled(h->timer, SD_EVENT_ONESHOT);
        }
        if (r < 0)
                log_message_errno(MESSAGE_NOT_HEALED, r, FIELDS(FIELD_VM(h->vm)),
                                  "VM %s: holes cannot be healed without a timer", h->vm->name);
}

void healer_set_limits(Healer *h, const HealLimits *limits) {
        heal_set_limits(&h->heal, limits);
        schedule(h);
}

void healer_hole(Healer *h, Span span, unsigned reason) {
        /* What was in a deleted slot is no hole: nothing is there that could be mapped. */
        if (reason != KVM_GTDP_HOLE_SLOT)
                heal_hole(&h->heal, now_usec(h), span, reason == KVM_GTDP_HOLE_DIRTY_LOG);
        schedule(h);
}

void healer_everything(Healer *h) {
        heal_everything(&h->heal, now_usec(h));
        schedule(h);
}

void healer_slot_gone(Healer *h, Span slot) {
        heal_slot_gone(&h->heal, slot);
        (void) spanset_remove(&h->let_go, slot);
        schedule(h);
}

void healer_set_logging(Healer *h, SpanSet *logging) {
        heal_set_logging(&h->heal, now_usec(h), logging);
        schedule(h);
}

void healer_let_go(Healer *h, Span span) {
        (void) spanset_add(&h->let_go, span);
        schedule(h);
}

void healer_pause(Healer *h) {
        if (h->worker)
                worker_cancel(h->worker);
        schedule(h);
}

void healer_resume(Healer *h) {
        schedule(h);
}

bool healer_is_stopping(Healer *h) {
        if (h->worker)
                worker_cancel(h->worker);
        return h->worker;
}
