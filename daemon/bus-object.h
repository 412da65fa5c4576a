/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the objects on the bus have in common. */

#include <stddef.h>

/* Signals are the only thing that can fail without anybody to tell, so it is logged. */
void bus_check_signal(int r, const char *what);

/* The n-th of the paths that an enumerator gives.  "paths" has room for it and a NULL behind it; if this
 * fails all of them are freed. */
int bus_set_path(char **paths, size_t n, const char *path);
