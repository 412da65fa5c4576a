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

/* Makes the files and claims their pages from the kernel.  NoPages if that fails; nothing is left then.  Not
 * "sealed": their size can be changed, so they must not be given to anybody. */
int memory_new(const char *name, const Placement *p, bool sealed, Memory **ret, sd_bus_error *error);
Memory *memory_free(Memory *m);
DEFINE_CLEANUP(Memory, memory_free);

uint64_t memory_part_unallocated(const MemoryPart *part);

/* From now on nobody can change the part's size. */
int memory_part_seal(MemoryPart *part);

/* Where threads populate: all of a part, with its pages to come from its node.  "ret_call" says what failed.
 */
int memory_part_map(const MemoryPart *part, uint8_t **ret, const char **ret_call);
/* Allocates and zeroes a range of such a mapping.  Slow, for threads. */
int memory_part_populate(MemoryPart *part, uint8_t *map, uint64_t page_size, uint64_t offset, uint64_t size,
                         bool (*go_on)(void *userdata, uint64_t done), void *userdata);
/* Whether pages of a range that was populated just now are on the part's node: all huge ones, and a sample
 * of small ones.  -EXDEV, with the first one that is not. */
int memory_part_verify(const MemoryPart *part, uint8_t *map, uint64_t page_size, uint64_t offset,
                       uint64_t size, uint64_t *ret_offset, int *ret_node);
