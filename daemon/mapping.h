/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What a VMM has made of memory of ours that it was given. */

#include "memory.h"

typedef struct Mapping {
        uint64_t bytes;     /* mapped of it */
        uint64_t page_size; /* the smallest of its mappings, as the kernel has it, or 0 */
} Mapping;

/* Reads as much of it as there is time for: -ETIME if that was not all. */
int mapping_read(const char *proc_root, pid_t pid, const Memory *m, Mapping *ret);
