/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Numbers of pages for pools, as people write them.  Two notations, which blanks separate:
 *
 *   1G:16@0,2M:4096@1            SIZE:PAGES@NODE, size in K, M, G or T
 *   node:0,size:2048,count:64    Nova's; size in KiB, or with KB, MB, GB or TB (the B may be left out)
 */

#include "macro.h"

#define POOL_SPEC_WHY_MAX 200

typedef struct PoolSpec {
        unsigned node;
        uint64_t page_size;
        uint64_t pages;
} PoolSpec;

typedef struct PoolSpecs {
        PoolSpec *specs;
        size_t n;
} PoolSpecs;

/* [Pools] of the configuration. */
typedef struct PoolsConfig {
        PoolSpecs targets;
        PoolSpecs reserved;
        uint64_t watch_sec;
        uint64_t retry_sec;
        uint64_t low_percent;
        uint64_t max_percent; /* of a node's memory, for all its pools together */
} PoolsConfig;

void pool_specs_done(PoolSpecs *p);
/* Adds what "s" says, all of it or nothing: -EINVAL, and "why" says what is wrong with which part. */
int pool_specs_parse(PoolSpecs *p, const char *s, char why[static POOL_SPEC_WHY_MAX]);
const PoolSpec *pool_specs_find(const PoolSpecs *p, unsigned node, uint64_t page_size);
/* Changes the number of a pool, or adds it. */
int pool_specs_set(PoolSpecs *p, unsigned node, uint64_t page_size, uint64_t pages);
int pool_specs_copy(const PoolSpecs *p, PoolSpecs *ret);
