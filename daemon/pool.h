/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The huge page pools of one node, as sysfs shows them. */

#include "macro.h"

typedef struct Pool {
        uint64_t page_size;
        uint64_t total; /* pages, as the following ones */
        uint64_t free;
        uint64_t reserved; /* system-wide: the kernel does not count it by node */
        uint64_t surplus;
        uint64_t for_others; /* of the total, by our configuration, whether they have taken them or not */
        bool waited_for;     /* what comes free is for requests that came before */
} Pool;

/* What a written number is about: the kernel counts pages without surplus ones there. */
static inline uint64_t pool_persistent(const Pool *p) {
        return p->total - MIN_OF(p->total, p->surplus);
}

int pool_load(const char *sysfs_root, unsigned node, uint64_t page_size, Pool *ret);
/* Sorted by page size, ascending.  A node without pools has none, which is no error. */
int pools_load(const char *sysfs_root, unsigned node, Pool **ret, size_t *ret_n);
