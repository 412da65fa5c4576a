/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A queue for each user, and one after the other has a turn: whoever has much waiting waits for themselves.
 * Within a user's queue the order stays. */

#include <sys/types.h>
#include <uthash.h>

#include "macro.h"

typedef struct FairUser FairUser;

/* To be embedded in what waits. */
typedef struct FairItem {
        FairUser *user;
        struct FairItem *prev, *next;
} FairItem;

struct FairUser {
        uid_t uid;
        FairItem *items;
        FairUser *prev, *next; /* in the order of turns */
        UT_hash_handle hh;
};

typedef struct FairQueue {
        FairUser *by_uid; /* those who have something in it */
        FairUser *turns;
        size_t n;
} FairQueue;

int fair_push(FairQueue *q, uid_t uid, FairItem *item);
/* NULL if there is none. */
FairItem *fair_pop(FairQueue *q);
/* Before its turn, or not in it at all. */
void fair_remove(FairQueue *q, FairItem *item);
