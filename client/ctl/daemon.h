/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "args.h"
#include "tdp/tdp.h"

/* Exit codes, as tdpctl(1) documents them. "run" has its own. */
#define EXIT_OK        0
#define EXIT_FAILED    1
#define EXIT_USAGE     2
#define EXIT_NO_DAEMON 3
#define EXIT_IN_DOUBT  4 /* of a migration: the guest is not, or may not be, this host's any more */

/*
 * Connects. Within two seconds it is known that the daemon answers, or said in which state its unit is and
 * what to do. 0, or a negative errno after having said why.
 */
int daemon_connect(const struct args *args, struct tdp_ctx **ret);

/* Prints what failed last on this context; returns the exit code that goes with r. */
int daemon_failed(struct tdp_ctx *ctx, int r);
