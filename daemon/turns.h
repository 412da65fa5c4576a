/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Calls take turns, user by user.  The bus gives us one stream of messages, so that whoever sends 10,000
 * calls would have everybody wait for the last of them.  Here messages are taken from the stream much faster
 * than they are handled, and wait in a queue for each user; what is more than MaxCalls= is refused at once.
 *
 * That needs to know who has sent a message before it is handled.  The bus driver is asked, without waiting,
 * when a connection sends its first call; its unique name is never given to another one.
 */

#include "manager.h"

typedef struct Turns Turns;

int turns_new(Manager *m, Turns **ret);
Turns *turns_free(Turns *t);

/* Who a connection belongs to, if that is known: it is while one of its calls is handled.  NULL: ask. */
const struct Caller *turns_find(Turns *t, const char *sender);
/* Credentials are to be asked for again: the group in them is another one. */
void turns_forget(Turns *t);
