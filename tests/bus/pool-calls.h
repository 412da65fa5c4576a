/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What tests of pools ask of tdpd, and wait for. */

#include "fixture.h"

#define NODE0 "/org/tdpd1/node/0"

/* A configuration that looks once a second, and these lines of [Pools]. */
const char *pools_config(const char *lines);
/* On the tree of fake-sysfs.h; NULL: without a configuration. */
Fixture *start_on_fake(const char *lines);

/* The path of the job, good for the next few; NULL: refused. */
const char *set_pool_raw(Fixture *f, const char *node, uint64_t size, uint64_t pages, const char *mode,
                         bool partial, sd_bus_error *error);
const char *set_pool(Fixture *f, const char *node, uint64_t size, uint64_t pages, const char *mode,
                     bool partial);
void assert_set_fails(Fixture *f, const char *node, uint64_t size, uint64_t pages, const char *mode,
                      const char *name, const char *part);
void assert_end(Fixture *f, const char *job, const char *result, const char *error, const char *part);

typedef struct Target {
        uint64_t pages, got;
        char state[16];
} Target;

Target read_target(Fixture *f, const char *node, uint64_t size);
void wait_target(Fixture *f, const char *node, uint64_t size, const char *state, uint64_t got);
void assert_manager_state(Fixture *f, const char *state);

/* Changes of a node's pools, and PoolLow, since watch_pools(). */
extern unsigned pools_changed, pool_lows;
void watch_pools(Fixture *f, const char *path);
void process_until(Fixture *f, unsigned *counter, unsigned at_least);
