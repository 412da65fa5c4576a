/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What the daemon tells by node and page size, beside the nodes' own pools. */

#include "pool-list.h"

uint64_t pool_list_get(const struct tdp_value *list, uint64_t node, uint64_t page_size) {
        const struct tdp_value *v;

        tdp_value_foreach (list, v)
                if (tdp_value_get_uint(tdp_value_at(v, 0)) == node &&
                    tdp_value_get_uint(tdp_value_at(v, 1)) == page_size)
                        return tdp_value_get_uint(tdp_value_at(v, 2));
        return 0;
}

bool nodes_have_pool(const struct tdp_node *nodes, uint64_t node, uint64_t page_size) {
        const struct tdp_value *pool;
        const struct tdp_node *n;

        tdp_node_foreach (nodes, n)
                tdp_value_foreach (tdp_value_find(tdp_node_get_properties(n), "Pools"), pool)
                        if (tdp_node_get_id(n) == node &&
                            tdp_value_get_uint(tdp_value_at(pool, 0)) == page_size)
                                return true;
        return false;
}
