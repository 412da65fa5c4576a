/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What is told about a pool that did not get the size that was asked for. */

#include <systemd/sd-bus.h>

#include "pool-resize.h"

/* "r" is that of pool_resize(). */
int pool_set_error(unsigned node, uint64_t page_size, const PoolRequest *request, const PoolResult *result,
                   int r, sd_bus_error *error);
