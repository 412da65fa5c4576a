/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * When is which hole to be healed?  Decides only, and knows neither VM nor clock: the caller says what
 * happened and what time it is, and does what is due.
 *
 * A hole waits a little, so that those which come together are healed together.  Three things bound how
 * often: a bucket of tokens for each VM, of which each round of healing takes one; a delay that doubles for
 * memory which is torn again soon after it was tried; and another one that doubles while a hole cannot be
 * filled because its memory is gone, which nobody tells when it is back.
 */

#include "span.h"

#define HEAL_TORN_MAX_USEC (UINT64_C(300) * 1000000)
#define HEAL_GONE_MAX_USEC (UINT64_C(3600) * 1000000)
#define HEAL_CALM_USEC     (UINT64_C(60) * 1000000) /* so long at least a range counts as just tried */
#define HEAL_RANGES_MAX    256U

typedef struct HealLimits {
        uint64_t delay_msec;   /* of each hole */
        uint64_t interval_sec; /* until a token comes back */
        uint64_t burst;        /* tokens at most; 0: nothing is healed */
} HealLimits;

typedef struct HealRange {
        Span span;
        uint64_t due_usec;
        uint64_t torn_usec; /* what the next delay comes from, if it is torn again */
        uint64_t gone_usec; /* and if its memory is not there */
        bool dirty_log;     /* lost to dirty logging: waits for its end */
        bool filled;        /* something was mapped in it; it waits for what may be left */
} HealRange;

typedef struct HealTried {
        Span span;
        uint64_t when_usec, torn_usec;
} HealTried;

typedef struct Heal {
        HealLimits limits;
        uint64_t tokens, refilled_usec;

        HealRange waiting[HEAL_RANGES_MAX]; /* none touches another one of the same kind */
        size_t n_waiting;
        HealTried tried[HEAL_RANGES_MAX]; /* a ring: the oldest is forgotten */
        size_t next_tried;
        SpanSet logging; /* slots with dirty logging on */

        bool out_of_tokens;
        uint64_t n_put_off; /* times that a hole had to wait longer than the usual delay */
} Heal;

void heal_init(Heal *h, const HealLimits *limits, uint64_t now);
void heal_done(Heal *h);

/* A hole, "dirty_log" if that is its reason.  Deleted slots are no holes that can be filled: do not ask. */
void heal_hole(Heal *h, uint64_t now, Span span, bool dirty_log);
/* Holes are not known in detail: all that was built is to be looked at. */
void heal_everything(Heal *h, uint64_t now);
bool heal_is_everything(const HealRange *r);

void heal_slot_gone(Heal *h, Span slot);
/* The slots that have dirty logging on now; takes what is in "logging". */
void heal_set_logging(Heal *h, uint64_t now, SpanSet *logging);

/* The configuration has changed: what has been put off with the old ones stays so. */
void heal_set_limits(Heal *h, const HealLimits *limits);

/* When heal_take() will have something, or UINT64_MAX. */
uint64_t heal_next_usec(Heal *h, uint64_t now);
/* What is to be healed now, for one token; 0 if nothing is due or no token left. */
size_t heal_take(Heal *h, uint64_t now, HealRange ret[static HEAL_RANGES_MAX]);
/* What came of a range that was taken: was something mapped, and may holes be left in it? */
void heal_tried(Heal *h, uint64_t now, const HealRange *r, bool mapped, bool holes_left);
/* It was not tried for another reason: once more, later. */
void heal_again(Heal *h, uint64_t now, const HealRange *r);
