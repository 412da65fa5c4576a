/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Sets of small numbers, written like the kernel writes CPU and node lists: "0-3,8". */

#include "macro.h"

#define IDSET_MAX 8192U /* NR_CPUS of the largest distribution kernels */

typedef struct IdSet {
        uint64_t bits[IDSET_MAX / 64];
} IdSet;

int idset_parse(const char *s, IdSet *ret);
int idset_format(const IdSet *set, char **ret);

static inline void idset_add(IdSet *set, unsigned id) {
        set->bits[id / 64] |= UINT64_C(1) << (id % 64);
}

static inline bool idset_has(const IdSet *set, unsigned id) {
        return id < IDSET_MAX && (set->bits[id / 64] & UINT64_C(1) << (id % 64));
}

static inline unsigned idset_count(const IdSet *set) {
        unsigned n = 0;

        for (size_t i = 0; i < ELEMENTSOF(set->bits); i++)
                n += __builtin_popcountll(set->bits[i]);
        return n;
}

static inline void idset_merge(IdSet *set, const IdSet *other) {
        for (size_t i = 0; i < ELEMENTSOF(set->bits); i++)
                set->bits[i] |= other->bits[i];
}

/* The smallest member that is not below "from", or -1. */
static inline int idset_next(const IdSet *set, unsigned from) {
        for (unsigned i = from; i < IDSET_MAX; i++)
                if (idset_has(set, i))
                        return (int) i;
        return -1;
}

#define IDSET_FOREACH(id, set)                                                                              \
        for (int id = idset_next(set, 0); id >= 0; id = idset_next(set, (unsigned) id + 1))
