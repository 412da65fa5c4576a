/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>

#include "tdp/tdp.h"

/* The bytes for that pool in a property that lists (node, page size, bytes), 0 if it is not in it. */
uint64_t pool_list_get(const struct tdp_value *list, uint64_t node, uint64_t page_size);
/* Whether a node has a pool of such pages: small ones have none. */
bool nodes_have_pool(const struct tdp_node *nodes, uint64_t node, uint64_t page_size);
