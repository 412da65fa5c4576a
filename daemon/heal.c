/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "heal.h"

#define EVERYTHING ((Span){ .gpa = 0, .size = UINT64_MAX })

/* A range that was tried counts as "just now" for a while that grows with its delay. */
#define CALM_FACTOR 8U

static uint64_t later(uint64_t usec, uint64_t delay) {
        return delay > UINT64_MAX - usec ? UINT64_MAX : usec + delay;
}

static uint64_t doubled(uint64_t usec, uint64_t max) {
        return MIN_OF(2 * usec, max);
}

static uint64_t usual_delay(const Heal *h) {
        return h->limits.delay_msec * 1000;
}

void heal_init(Heal *h, const HealLimits *limits, uint64_t now) {
        *h = (Heal){ .limits = *limits, .tokens = limits->burst, .refilled_usec = now };
}

void heal_done(Heal *h) {
        spanset_done(&h->logging);
}

bool heal_is_everything(const HealRange *r) {
        return r->span.gpa == 0 && r->span.size == UINT64_MAX;
}

static void forget(Heal *h, size_t i) {
        h->waiting[i] = h->waiting[--h->n_waiting];
}

static void add(Heal *h, HealRange r) {
        if (r.span.size == 0)
                return;
        /* Merging can make it touch one that it did not touch before. */
        for (size_t i = 0; i < h->n_waiting;) {
                const HealRange *w = &h->waiting[i];

                if (w->dirty_log != r.dirty_log || !span_touches(w->span, r.span)) {
                        i++;
                        continue;
                }
                r.span = span_merge(w->span, r.span);
                r.due_usec = MIN_OF(w->due_usec, r.due_usec);
                r.torn_usec = MAX_OF(w->torn_usec, r.torn_usec);
                r.gone_usec = MIN_OF(w->gone_usec, r.gone_usec);
                r.filled = w->filled && r.filled;
                forget(h, i);
                i = 0;
        }

        /* More than can be told apart: whatever waits goes into one. */
        if (h->n_waiting == HEAL_RANGES_MAX) {
                for (size_t i = 0; i < h->n_waiting; i++) {
                        r.due_usec = MIN_OF(h->waiting[i].due_usec, r.due_usec);
                        r.torn_usec = MAX_OF(h->waiting[i].torn_usec, r.torn_usec);
                }
                r.span = EVERYTHING;
                r.dirty_log = false;
                h->n_waiting = 0;
        }
        h->waiting[h->n_waiting++] = r;
}

/* Twice the delay of before, if this was tried not long ago. */
static uint64_t torn_delay(const Heal *h, uint64_t now, Span span) {
        uint64_t delay = usual_delay(h);

        for (size_t i = 0; i < HEAL_RANGES_MAX; i++) {
                const HealTried *t = &h->tried[i];
                uint64_t calm = MAX_OF(CALM_FACTOR * t->torn_usec, HEAL_CALM_USEC);

                if (t->torn_usec > 0 && span_overlaps(t->span, span) && now < later(t->when_usec, calm))
                        delay = MAX_OF(delay, doubled(t->torn_usec, HEAL_TORN_MAX_USEC));
        }
        return delay;
}

void heal_hole(Heal *h, uint64_t now, Span span, bool dirty_log) {
        uint64_t delay = torn_delay(h, now, span);

        if (delay > usual_delay(h))
                h->n_put_off++;
        add(h, (HealRange){
                               .span = span,
                               .due_usec = later(now, delay),
                               .torn_usec = delay,
                               .gone_usec = delay,
                               .dirty_log = dirty_log,
               });
}

void heal_everything(Heal *h, uint64_t now) {
        h->n_waiting = 0;
        heal_hole(h, now, EVERYTHING, false);
}

void heal_slot_gone(Heal *h, Span slot) {
        for (size_t i = 0; i < h->n_waiting;) {
                HealRange r = h->waiting[i], rest = r;

                if (heal_is_everything(&r) || !span_overlaps(r.span, slot)) {
                        i++;
                        continue;
                }
                forget(h, i);
                rest.span = span_between(r.span.gpa, slot.gpa);
                add(h, rest);
                rest.span = span_between(span_end(slot), span_end(r.span));
                add(h, rest);
                i = 0;
        }
}

void heal_set_logging(Heal *h, uint64_t now, SpanSet *logging) {
        /* Of "everything" a part was left out, which is due now. */
        for (size_t i = 0; i < h->n_waiting && spanset_bytes(logging) < spanset_bytes(&h->logging); i++)
                if (heal_is_everything(&h->waiting[i]))
                        h->waiting[i].due_usec = MIN_OF(h->waiting[i].due_usec, later(now, usual_delay(h)));
        spanset_done(&h->logging);
        h->logging = *logging;
        *logging = (SpanSet){};
}

static bool is_held(const Heal *h, const HealRange *r) {
        for (size_t i = 0; i < h->logging.n && r->dirty_log; i++)
                if (span_overlaps(h->logging.spans[i], r->span))
                        return true;
        return false;
}

static void refill(Heal *h, uint64_t now) {
        uint64_t interval = MAX_OF(h->limits.interval_sec, UINT64_C(1)) * 1000000;
        uint64_t n = now > h->refilled_usec ? (now - h->refilled_usec) / interval : 0;

        h->refilled_usec += n * interval;
        h->tokens = MIN_OF(h->limits.burst, h->tokens + MIN_OF(n, h->limits.burst));
        /* A full bucket collects nothing. */
        if (h->tokens == h->limits.burst)
                h->refilled_usec = now;
}

static uint64_t next_token_usec(const Heal *h) {
        return later(h->refilled_usec, MAX_OF(h->limits.interval_sec, UINT64_C(1)) * 1000000);
}

/* Once for each time that we run out. */
static void note_no_token(Heal *h) {
        h->n_put_off += !h->out_of_tokens;
        h->out_of_tokens = true;
}

void heal_set_limits(Heal *h, const HealLimits *limits) {
        h->limits = *limits;
        h->tokens = MIN_OF(h->tokens, limits->burst);
}

uint64_t heal_next_usec(Heal *h, uint64_t now) {
        uint64_t next = UINT64_MAX;

        if (h->limits.burst == 0)
                return UINT64_MAX;
        refill(h, now);
        for (size_t i = 0; i < h->n_waiting; i++)
                if (!is_held(h, &h->waiting[i]))
                        next = MIN_OF(next, h->waiting[i].due_usec);
        if (next == UINT64_MAX || h->tokens > 0)
                return next;
        if (next < next_token_usec(h))
                note_no_token(h);
        return MAX_OF(next, next_token_usec(h));
}

size_t heal_take(Heal *h, uint64_t now, HealRange ret[static HEAL_RANGES_MAX]) {
        size_t n = 0;

        refill(h, now);
        for (size_t i = 0; i < h->n_waiting;) {
                if (h->waiting[i].due_usec > now || is_held(h, &h->waiting[i])) {
                        i++;
                        continue;
                }
                if (h->tokens == 0) {
                        note_no_token(h);
                        return 0;
                }
                ret[n++] = h->waiting[i];
                forget(h, i);
        }
        if (n > 0) {
                h->tokens--;
                h->out_of_tokens = false;
        }
        return n;
}

static void remember(Heal *h, uint64_t now, Span span, uint64_t torn_usec) {
        size_t i;

        /* In the place of what it says anew, or of the oldest. */
        for (i = 0; i < HEAL_RANGES_MAX; i++)
                if (h->tried[i].span.gpa == span.gpa && h->tried[i].span.size == span.size)
                        break;
        if (i == HEAL_RANGES_MAX) {
                i = h->next_tried;
                h->next_tried = (h->next_tried + 1) % HEAL_RANGES_MAX;
        }
        h->tried[i] = (HealTried){ .span = span, .when_usec = now, .torn_usec = torn_usec };
}

void heal_tried(Heal *h, uint64_t now, const HealRange *r, bool mapped, bool holes_left) {
        HealRange again = *r;

        /* What is gone, and is touched and taken again, as by a balloon, is torn as well. */
        if (mapped)
                remember(h, now, r->span, r->torn_usec);
        else if (!r->filled)
                remember(h, now, r->span, MIN_OF(MAX_OF(r->torn_usec, r->gone_usec), HEAL_TORN_MAX_USEC));
        if (!holes_left)
                return;
        again.filled = r->filled || mapped;
        again.gone_usec = doubled(r->gone_usec, HEAL_GONE_MAX_USEC);
        again.due_usec = later(now, again.gone_usec);
        add(h, again);
}

void heal_again(Heal *h, uint64_t now, const HealRange *r) {
        HealRange again = *r;

        again.due_usec = later(now, usual_delay(h));
        add(h, again);
}
