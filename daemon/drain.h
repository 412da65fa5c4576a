/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Memory has two ends: we let go of it, and it is free.  Between them is whoever else has it open or mapped:
 * its VMM, or a backend like vhost that outlives it.  The kernel tells when the last one has let go.
 */

#include <sys/types.h>

#include "memory.h"

typedef struct Drain Drain;
typedef void (*drain_done_t)(Drain *d, void *userdata);

/* Begins to watch; to be called as long as we have the memory open ourselves. */
int drain_new(const Memory *m, Drain **ret);
Drain *drain_free(Drain *d);
/* Nobody has any of it any more. */
bool drain_is_over(Drain *d);
/* Have it told. */
int drain_watch(Drain *d, sd_event *event, drain_done_t done, void *userdata);
uint64_t drain_bytes(const Drain *d);
uint64_t drain_page_size(const Drain *d);

typedef struct DrainFile {
        dev_t device;
        ino_t inode;
        unsigned node;
        uint64_t bytes;
        int watch; /* -1: gone */
} DrainFile;
/* What is left, to look for its holders. */
const DrainFile *drain_files(const Drain *d, size_t *ret_n);
