/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Descriptors that the service manager keeps for us, and gives to the daemon that comes next: sd_notify(3),
 * "FDSTORE=1".  It takes what it is sent in the order in which it is sent, and also from one that has died
 * since.
 */

#include <systemd/sd-event.h>

#include "fdname.h"

typedef struct FdStore FdStore;

/* Takes what the manager has given us.  To be called once, and before anything else opens files. */
int fdstore_new(FdStore **ret);
FdStore *fdstore_free(FdStore *s); /* what nobody has taken stays with the manager */
DEFINE_CLEANUP(FdStore, fdstore_free);
/* Whether there is a manager at all. */
bool fdstore_is_there(const FdStore *s);
/* Descriptors that it can take as well. */
size_t fdstore_room(const FdStore *s);
size_t fdstore_count(const FdStore *s);

/* After what is late. */
int fdstore_push(FdStore *s, FdName name, int fd);
/* If the manager cannot be told, that is an error, and is kept for fdstore_remove_late(). */
int fdstore_remove(FdStore *s, FdName name);
/* Tells it what it could not be told before.  A push and a barrier do so too. */
int fdstore_remove_late(FdStore *s);
/* Calls back, once, when the manager has done all it was sent before, or after a few seconds.  A negative
 * errno: it will not. */
typedef void (*fdstore_done_t)(void *userdata);
typedef struct FdBarrier FdBarrier;
int fdstore_barrier(FdStore *s, sd_event *event, fdstore_done_t done, void *userdata, FdBarrier **ret);
FdBarrier *fdbarrier_free(FdBarrier *b);

/* What we were given. */
typedef struct StoredFd {
        char *text; /* its name as it came */
        bool known; /* and it is one of ours: */
        FdName name;
        int fd; /* -1: taken */
} StoredFd;
StoredFd *fdstore_received(FdStore *s, size_t *ret_n);
/* NULL if it did not come, or has been taken. */
StoredFd *fdstore_find(FdStore *s, FdName name);
/* -ENOENT likewise. */
int fdstore_take(FdStore *s, FdName name);
