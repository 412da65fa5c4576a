/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <signal.h>

/*
 * SIGINT, SIGTERM and SIGHUP while there is something to be undone: blocked, and fetched where it suits. No
 * call is interrupted, so nothing is left half done.
 */
void signals_block(void);
void signals_unblock(void); /* also for a child before it executes another program */

/* The next pending one, or 0. ret_info may be NULL. */
int signals_next(siginfo_t *ret_info);

/* A descriptor that is readable when there is one, or a negative errno. */
int signals_fd(void);
