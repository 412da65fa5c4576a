/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What a second-level mapping costs, built ahead or faulted in: a pure function of the model's inputs, which
 * are measured on this host (calibration.h) or are defaults.
 */

#include "macro.h"

#define COST_SIZES 3U

typedef struct CostLeaf {
        uint64_t page_size;
        uint32_t level;
        double fault_ns; /* one fault of one vCPU, exit and entry included */
        double build_ns; /* one leaf of a build, pin included */
        bool fault_is_measured, build_is_measured;
} CostLeaf;

typedef struct CostModel {
        CostLeaf leaves[COST_SIZES];
        uint64_t measured_at; /* CLOCK_REALTIME, seconds; 0: all are defaults */
        uint64_t pin_usec_per_gib;
} CostModel;

typedef struct CostInput {
        uint64_t bytes;
        uint64_t page_size;
        uint32_t max_level;      /* of the request, 0: no limit */
        uint32_t max_leaf_level; /* of the kernel, likewise */
        uint32_t vcpus;          /* 0: unknown */
        uint32_t migrations;
} CostInput;

typedef struct Cost {
        const CostLeaf *leaf; /* of the model, what the memory is mapped with */
        uint64_t leaves;
        uint64_t saved_usec;
        uint64_t build_usec;
        uint64_t pin_usec; /* what it is worth that the host could have overcommitted it */
} Cost;

void cost_model_init(CostModel *m, uint64_t pin_usec_per_gib); /* defaults */
const CostLeaf *cost_model_leaf(const CostModel *m, uint64_t page_size);

void cost_estimate(const CostModel *m, const CostInput *in, Cost *ret);
