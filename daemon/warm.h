/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Keeps the slabs of the configuration ready: fills them one after the other while the host has nothing
 * better to do. */

#include "slab.h"

typedef enum WarmHold {
        WARM_HOLD_NONE,
        WARM_HOLD_RESERVATION, /* a VM's memory is being populated */
        WARM_HOLD_PRESSURE,    /* tasks wait for memory */
        WARM_HOLD_LOAD,        /* tasks wait for CPUs */
        WARM_HOLD_NO_PAGES,
        WARM_HOLD_FAILED,
        _WARM_HOLD_MAX,
} WarmHold;

const char *warm_hold_to_string(WarmHold h);

/* What there is of one flavour. */
typedef struct WarmStatus {
        uint32_t ready;
        uint64_t filling; /* bytes of the slab that is being filled */
        WarmHold hold;    /* why nothing is done, or NONE */
        const char *text; /* the same for people */
} WarmStatus;

int warm_new(Manager *m, Warm **ret);
Warm *warm_free(Warm *w);
/* There is another configuration. */
void warm_reconfigure(Warm *w);
/* Something has changed that it may have waited for. */
void warm_kick(Warm *w);

void warm_status(const Warm *w, size_t spec, WarmStatus *ret);
const Slab *warm_first(const Warm *w);
size_t warm_count(const Warm *w);

/* The slab that serves a request, taken out: the caller's to free.  NULL if there is none. */
Slab *warm_take(Warm *w, const PlacementRequest *req, uint64_t min_page_size);
/*
 * Gives slabs up so that a request finds room that did not, and says where.  0: it would not either way, and
 * nothing is done.  -EALREADY: one of them is being filled, which ends now; queue_kick() follows.  Huge
 * pages are free at once.  The memory of small ones takes its time and is in "ret_leaving", a list, for the
 * caller to free before that of the request is allocated.  "vm" is whose request it is, for whoever waits
 * before it.
 */
int warm_give_up(Warm *w, const VM *vm, const PlacementRequest *req, Placement *ret, Slab **ret_leaving);
/* The request cannot have it after all. */
void warm_put_back(Warm *w, Slab *s);
/* Frees a slab that was taken out, in the background. */
void warm_close(Warm *w, Slab *s);
