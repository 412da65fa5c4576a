/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Asks polkit whether a caller may do what only root may.  Without waiting: the message is put aside, and
 * comes again as if it had just been received once the answer is there.
 *
 * The subject is the sender's unique bus name, which is never given to anybody else.  No answer, no polkit,
 * and an answer that makes no sense mean no.
 */

#include "manager.h"

/*
 * 1: allowed.  0: polkit is being asked, and the message comes again.  < 0: no, with "why" set to a reason
 * that can end a sentence, or LimitExceeded in "error" if the caller asks too much at a time.
 */
int polkit_check(Manager *m, sd_bus_message *message, uid_t uid, const char *action, char **why,
                 sd_bus_error *error);

/* Whether it is a message that has been put aside, and comes again. */
bool polkit_is_asked(Manager *m, sd_bus_message *message);

/* At the manager's end. */
void polkit_done(Manager *m);
