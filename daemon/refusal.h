/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The log of what was asked for and not granted. */

#include "manager.h"

/* For the end of methods: tells why "what" was refused, if r or the error says so, and returns r.  Who asks
 * all the time does not fill the log. */
int refusal_log(const char *what, const char *vm, uid_t uid, int r, const sd_bus_error *error);
