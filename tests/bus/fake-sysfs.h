/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A sysfs of a machine that this one is not: a tree of plain files, and on request a kernel behind it. */

#include <stdint.h>

const char *fake_sysfs_root(void);
/* For cmocka. */
int fake_sysfs_setup(void **state);
int fake_sysfs_teardown(void **state);

void put(const char *text, const char *path, ...) __attribute__((format(printf, 2, 3)));
void put_node(unsigned id, const char *cpus, const char *mem_kib);
void put_pool(unsigned id, const char *kib, const char *pages);
/* The first line of a file, as a number. */
uint64_t get(const char *path, ...) __attribute__((format(printf, 1, 2)));

/*
 * From here on a pool has "room" pages at most, "compacted" after its node was compacted; what is written
 * beyond that reads back as less, and what it gains or loses are free pages.  Nobody sees a number that has
 * not been looked at: whoever opens a file waits for this kernel (fanotify).  Skips the test without the
 * right to do that.
 */
void fake_kernel_start(void);
void fake_kernel_limit(unsigned node, const char *kib, uint64_t room, uint64_t compacted);
/* Writes to files that belong to no node. */
unsigned fake_kernel_global_writes(void);
