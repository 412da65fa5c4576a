/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Handoffs that this host takes part in, as the source or the destination. handoff-table.h says what comes
 * next; here it is written down, done and said, in this order.
 */

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

#include "handoff-count.h"
#include "handoff-record.h"
#include "manager.h"

#define HANDOFF_KEY_MAX 48

typedef struct Handoff {
        Manager *manager;
        char id[33];               /* in hex digits */
        char key[HANDOFF_KEY_MAX]; /* "_" and the side besides: both sides can be here */
        char *path;
        HandoffRecord r;

        HandoffSend pending;            /* to be said, and not fetched yet */
        bool told;                      /* the bus knows of it */
        bool looks;                     /* something has happened to its VM */
        uint32_t owed;                  /* events (bits) whose record could not be written */
        char why[HANDOFF_TEXT_MAX + 1]; /* the VM's job failed */
        char error_name[64];            /* of it, or of what was refused */
        uint64_t until_usec;            /* so long the work of the state waits, CLOCK_BOOTTIME */
        bool split, undone, healed;     /* the jobs have been started */
        uint64_t retry_usec;
        sd_event_source *deadline, *retry, *look_again;
        struct Handoff *prev, *next;
} Handoff;

typedef struct Handoffs {
        Handoff *list;
        HandoffId host;                     /* this one */
        struct State *source, *destination; /* folders of records, or NULL: not yet */
        sd_event_source *look;
        HandoffCounts counts;
} Handoffs;

int handoffs_new(Manager *m);
void handoffs_free(Manager *m);

Handoff *handoff_find(Manager *m, const HandoffId *id, HandoffRole side);
/* The one that has not ended, of that VM here and on that side. */
Handoff *handoff_find_by_vm(const VM *vm, HandoffRole side);
/* The highest generation of a VM of that name that was here and is known of, 0: none. */
uint64_t handoff_seen(Manager *m, const char *vm);

/* A record of what is "none" still, that is not written.  LimitExceeded in "error". */
int handoff_new(Manager *m, const HandoffRecord *r, Handoff **ret, sd_bus_error *error);
/* One that there is a record of. */
int handoff_add(Manager *m, const HandoffRecord *r, Handoff **ret);
/* With its record, or without. */
void handoff_drop(Handoff *h);
void handoff_forget(Handoff *h);

/*
 * Lets that happen: "body" has what it brings, like a message of the peer, or the reason of an abort.
 * Refused by the table, or not to be written down: an error, nothing has changed, and "error" is set.
 */
int handoff_event(Handoff *h, HandoffEvent e, const HandoffMessage *body, HandoffStep *ret,
                  sd_bus_error *error);
/* The same for what happens by itself: it is tried again if it cannot be written down. */
void handoff_happens(Handoff *h, HandoffEvent e, const HandoffMessage *body);
/* An abort for this reason, as a body. */
void handoff_set_abort(HandoffMessage *m, HandoffReason reason, const char *format, ...) _printf_(3, 4);

/* What is to be said now, which is nothing if *ret_size is 0 then. */
int handoff_take(Handoff *h, uint8_t **ret, size_t *ret_size);
void handoff_format_key(const HandoffId *id, HandoffRole side, char ret[static HANDOFF_KEY_MAX]);
uint64_t handoff_time_left(const Handoff *h);
VM *handoff_vm(const Handoff *h); /* or NULL */

/* For VMs: something has happened to this one, or it goes; the handoffs of it look, a little later. */
void handoff_vm_changed(VM *vm);
void handoff_vm_memory_taken(VM *vm);
/* Whether this may be done to a VM: Busy, if it would break its handoff. */
int handoff_check_release(const VM *vm, sd_bus_error *error);
int handoff_check_build(const VM *vm, sd_bus_error *error);
