/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A VM's memory: one memfd for each node that it has a part on. */

#include <stdatomic.h>
#include <systemd/sd-bus.h>

#include "placement.h"

typedef struct MemoryPart {
        char name[24]; /* "node0" */
        int fd;
        unsigned node;
        uint64_t bytes;
        /* Handed to a thread to be allocated.  Runs ahead of what is allocated, so that our claims on a pool
         * are never counted for pages that have left it already. */
        _Atomic uint64_t started;
} MemoryPart;

typedef struct Memory {
        uint64_t page_size;
        uint64_t bytes;
        size_t n_parts;
        MemoryPart parts[];
} Memory;

/* Makes the files and claims their pages from the kernel.  NoPages if that fails; nothing is left then. */
int memory_new(const char *vm, const Placement *p, Memory **ret, sd_bus_error *error);
Memory *memory_free(Memory *m);
DEFINE_CLEANUP(Memory, memory_free);

uint64_t memory_part_unallocated(const MemoryPart *part);

/* Allocates and zeroes a range on the part's node.  Slow, for threads. */
int memory_part_populate(MemoryPart *part, uint64_t page_size, uint64_t offset, uint64_t size,
                         bool (*go_on)(void *userdata, uint64_t done), void *userdata);
