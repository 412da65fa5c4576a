/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cost.h"

/*
 * Defaults, until they are measured: from the instructions that "make bench-kernel" counts for each leaf
 * (2820 and 3022 for a fault of 4K on AMD and Intel, 3890 and 3822 of 2M, 137504 and 108199 of 1G; 175, some
 * 445 and some 30000 for a built one), at three instructions a nanosecond, and 1 us for each fault's VM exit
 * and entry. Zeroing is in neither: the memory is populated before.
 */
static const CostLeaf defaults[COST_SIZES] = {
        { .page_size = KIB(4), .level = 1, .fault_ns = 2000, .build_ns = 60 },
        { .page_size = MIB(2), .level = 2, .fault_ns = 2300, .build_ns = 150 },
        { .page_size = GIB(1), .level = 3, .fault_ns = 42000, .build_ns = 10000 },
};

/* vCPUs that fault at the same time wait for each other: about a sixteenth more for each.  A guess. */
#define CONTENTION_VCPUS 16

void cost_model_init(CostModel *m, uint64_t pin_usec_per_gib) {
        *m = (CostModel){ .pin_usec_per_gib = pin_usec_per_gib };
        memcpy(m->leaves, defaults, sizeof(defaults));
}

const CostLeaf *cost_model_leaf(const CostModel *m, uint64_t page_size) {
        for (size_t i = 0; i < COST_SIZES; i++)
                if (m->leaves[i].page_size == page_size)
                        return &m->leaves[i];
        return NULL;
}

static const CostLeaf *choose_leaf(const CostModel *m, const CostInput *in) {
        const CostLeaf *best = &m->leaves[0];

        for (size_t i = 0; i < COST_SIZES; i++) {
                const CostLeaf *l = &m->leaves[i];

                if (l->page_size <= in->page_size && (in->max_level == 0 || l->level <= in->max_level) &&
                    (in->max_leaf_level == 0 || l->level <= in->max_leaf_level))
                        best = l;
        }
        return best;
}

/* Sizes and numbers of vCPUs may be any: what is too large for the result's type is undefined in C. */
static uint64_t to_usec(double ns) {
        double usec = ns / 1000;

        return usec >= 0x1p64 ? UINT64_MAX : (uint64_t) usec;
}

void cost_estimate(const CostModel *m, const CostInput *in, Cost *ret) {
        const CostLeaf *l = choose_leaf(m, in);
        uint64_t leaves = in->bytes / l->page_size;
        /* The first touch, and again wherever the guest arrives. */
        double times = (double) leaves * (1.0 + in->migrations);
        double contention = in->vcpus > 1 ? 1 + (in->vcpus - 1.0) / CONTENTION_VCPUS : 1;
        Cost c = {
                .leaf = l,
                .leaves = leaves,
                .saved_usec = to_usec(times * l->fault_ns * contention),
                .build_usec = to_usec(times * l->build_ns),
        };

        /* Huge pages of a pool cannot be overcommitted anyway. */
        if (in->page_size <= KIB(4))
                c.pin_usec = to_usec((double) in->bytes / (double) GIB(1) * (double) m->pin_usec_per_gib *
                                     1000);
        *ret = c;
}
