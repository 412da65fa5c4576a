/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "manager.h"

/* Looks at all processes in a thread, and answers whoever has asked meanwhile. */
int bus_method_holders(sd_bus_message *message, void *userdata, sd_bus_error *error);
/*
 * For a request that found too few pages: it is answered with this error and the names of those who have
 * them, as soon as that is known.  0: it cannot be done, and the caller answers; 1: "error" is taken.
 */
int bus_holders_refuse(Manager *m, sd_bus_message *message, uint64_t page_size, const sd_bus_error *error);
void holders_query_done(Manager *m);
