/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The log of what was asked for and not granted. */

#include "manager.h"

/* For the end of methods: tells why "what" was refused, if r or the error says so, and returns r.  Who asks
 * all the time does not fill the log. */
int refusal_log(const char *what, const char *vm, uid_t uid, int r, const sd_bus_error *error);
/* The same for a call that its sender had no right to: nothing if the error is another one than
 * NotPermitted. */
int refusal_log_denied(sd_bus_message *message, uid_t uid, pid_t pid, int r, const sd_bus_error *error);
