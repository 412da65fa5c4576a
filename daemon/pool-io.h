/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The files behind a pool's size: those of its node, and no other.  Writing them needs the user root, no
 * capability, and that the unit's sandbox leaves SYSFS/devices/system/node writable.
 */

#include "pool-resize.h"
#include "worker.h"

typedef struct PoolFiles {
        const char *sysfs_root;
        unsigned node;
        uint64_t page_size;
        Worker *worker; /* whose cancel counts, and whose progress it is */
        bool turned_back;
} PoolFiles;

PoolIo pool_files_io(PoolFiles *files);

/* Free memory of a node in pieces of 2 MiB or more, from /proc/buddyinfo: what 1G pages can be made of at
 * best. */
int pool_contiguous_bytes(unsigned node, uint64_t *ret);
