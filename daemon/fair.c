/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fair.h"

#include <errno.h>
#include <utlist.h>

int fair_push(FairQueue *q, uid_t uid, FairItem *item) {
        FairUser *u;

        HASH_FIND(hh, q->by_uid, &uid, sizeof(uid), u);
        if (!u) {
                u = calloc(1, sizeof(*u));
                if (!u)
                        return -ENOMEM;
                u->uid = uid;
                HASH_ADD(hh, q->by_uid, uid, sizeof(u->uid), u);
                if (!u->hh.tbl) {
                        free(u);
                        return -ENOMEM;
                }
                DL_APPEND(q->turns, u);
        }
        item->user = u;
        DL_APPEND(u->items, item);
        q->n++;
        return 0;
}

void fair_remove(FairQueue *q, FairItem *item) {
        FairUser *u = item->user;

        if (!u)
                return;
        DL_DELETE(u->items, item);
        item->user = NULL;
        q->n--;
        if (u->items)
                return;
        DL_DELETE(q->turns, u);
        HASH_DEL(q->by_uid, u);
        free(u);
}

FairItem *fair_pop(FairQueue *q) {
        FairUser *u = q->turns;
        FairItem *item;

        if (!u)
                return NULL;
        DL_DELETE(q->turns, u);
        DL_APPEND(q->turns, u);
        item = u->items;
        fair_remove(q, item);
        return item;
}
