/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Grows or shrinks one pool, and says what came of it.  It runs in a thread, and touches the world through
 * PoolIo only, so that a test can be the kernel.
 *
 * Pages are counted without surplus ones here: that is what the kernel takes a written number for, although
 * reading gives the sum.
 */

#include "pool.h"

typedef struct PoolIo {
        int (*read)(void *userdata, Pool *ret);
        int (*write)(void *userdata, uint64_t pages);
        int (*compact)(void *userdata);
        int (*drop_caches)(void *userdata);
        /* false: canceled before or meanwhile */
        bool (*wait)(void *userdata, uint64_t usec);
        void (*progress)(void *userdata, uint64_t pages);
        /* What comes now is the way back, which no cancel must stop.  wait() is true from here on. */
        void (*turn_back)(void *userdata);
        void *userdata;
} PoolIo;

typedef enum PoolMode {
        POOL_SET,
        POOL_GROW,
        POOL_SHRINK,
        _POOL_MODE_MAX,
        _POOL_MODE_INVALID = -1,
} PoolMode;

typedef struct PoolRequest {
        PoolMode mode;
        uint64_t pages;
        /* Pages beyond those in use and reserved that must stay, because others were promised them. */
        uint64_t keep;
        bool allow_partial; /* what was reached stays */
        bool drop_caches;
} PoolRequest;

typedef struct PoolResult {
        bool looked; /* false: it did not even come to see what is there, and nothing else counts */
        uint64_t before;
        uint64_t goal;
        uint64_t reached;          /* the closest that it came to the goal */
        uint64_t after;            /* what is there at the end */
        uint64_t in_use, reserved; /* if it could not shrink: why */
        int64_t foreign;           /* what somebody else has added or taken meanwhile */
        bool compacted, dropped_caches;
        bool restored; /* "before" and "foreign" is there again */
} PoolResult;

/*
 * 0, or with *ret set as far as it goes, all 0 if the pool could not be read: -ENOSPC, the kernel gave fewer
 * pages; -EBUSY, fewer could not be taken away; -EAGAIN, somebody else keeps changing the number; -ERANGE,
 * the goal is below 0 or overflows; -ECANCELED; other errors are those of the files.
 */
int pool_resize(const PoolIo *io, const PoolRequest *request, PoolResult *ret);

const char *pool_mode_to_string(PoolMode m);
PoolMode pool_mode_from_string(const char *s);
