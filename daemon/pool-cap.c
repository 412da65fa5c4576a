/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool-cap.h"

/* The kernel and tdpd itself live on the first nodes, whatever a percentage of a small one is. */
#define KEPT_MIN MIB(512)

uint64_t pool_cap_kept(const Node *n, uint64_t max_percent) {
        uint64_t kept;

        if (max_percent >= 100)
                return 0;
        kept = n->mem_total / 100 * (100 - max_percent);
        kept = (kept + MIB(1) - 1) / MIB(1) * MIB(1);
        return MIN_OF(MAX_OF(kept, KEPT_MIN), n->mem_total);
}

uint64_t pool_cap_pages(const Node *n, const Pool *p, uint64_t max_percent) {
        uint64_t others = 0, room = n->mem_total - pool_cap_kept(n, max_percent);

        for (size_t i = 0; i < n->n_pools; i++)
                if (n->pools[i].page_size != p->page_size)
                        others += n->pools[i].total * n->pools[i].page_size;
        room -= MIN_OF(room, others);
        return MAX_OF(room / p->page_size, pool_persistent(p));
}
