/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Reservations that wait for pages.  They are served in the order in which they came: whoever may use the
 * same pools comes after them, waiting or not.  One that would not find room if its pools were empty keeps
 * nobody waiting.  A restart of ours is their end: nothing was granted yet.
 */

#include "manager.h"

/* At most. */
#define QUEUE_WAIT_USEC_MAX (UINT64_C(86400) * 1000000)

int queue_new(Manager *m, struct Queue **ret);
/* The VMs in it are to be freed before. */
struct Queue *queue_free(struct Queue *q);

/*
 * The VM's job waits from now on, for as long as its options say.  "until_stopped": also for the memory that
 * is to come of a warm slab that is given up, however short that is.  LimitExceeded, in "error".
 */
int queue_add(VM *vm, bool until_stopped, sd_bus_error *error);
bool queue_has(const VM *vm);
/* The VM is to be released, and waits no longer: its job ends as canceled.  Nothing if it does not wait. */
void queue_leave(VM *vm);

/* One of them waits for the end of what is done to warm memory. */
bool queue_stops_warm(const Manager *m);
/* Something has changed that they may wait for. */
void queue_kick(Manager *m);
/* Marks the pools that others wait for, and who came before "vm", or before anybody who comes now (NULL). */
void queue_mark(Manager *m, const VM *vm, NodeTable *nodes);
