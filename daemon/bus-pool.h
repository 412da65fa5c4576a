/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the interfaces Node and Manager have about pools. */

#include "manager.h"

/* Members of a node; "id" is its own. */
int bus_pool_method_set(Manager *m, unsigned id, sd_bus_message *message, sd_bus_error *error);
int bus_pool_append_available(Manager *m, const Node *n, sd_bus_message *reply);
int bus_pool_append_targets(Manager *m, const Node *n, sd_bus_message *reply);

/* Signals. */
void bus_pools_changed(Manager *m, unsigned node);
void bus_pool_low(Manager *m, unsigned node, uint64_t page_size, uint64_t available, uint64_t total);
