/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Memory has two ends: we let go of it, and it is free.  Between them is whoever else has it open or mapped:
 * its VMM, or a backend like vhost that outlives it.  The kernel tells when the last one has let go.
 *
 * It tells so by one inotify instance for all memory, which holds none of it.  That instance outlives the
 * daemon (draining.h), with all that it has been told meanwhile.
 */

#include <sys/types.h>

#include "memory.h"

typedef struct DrainWatch DrainWatch;

/* Takes "fd": the instance of the daemon before, or -1. */
int drain_watch_new(sd_event *event, int fd, DrainWatch **ret);
DrainWatch *drain_watch_free(DrainWatch *w);
/* -1: the kernel had none for us, and nothing can be watched. */
int drain_watch_fd(const DrainWatch *w);
/* Whether a descriptor is such an instance. */
bool drain_watch_is_one(int fd);

typedef struct DrainFile {
        dev_t device;
        ino_t inode;
        unsigned node;
        uint64_t bytes;
        bool gone;
        bool missed; /* nobody was found who has it, once */
        int watch;   /* -1: there is none, and it has to be looked for in processes */
} DrainFile;

typedef struct Drain Drain;
typedef void (*drain_done_t)(Drain *d, void *userdata);

/* Begins to watch; to be called as long as we have the memory open ourselves.  Of a file that the kernel
 * will not watch, drain_note_looked_for() tells the end. */
int drain_new(DrainWatch *w, const Memory *m, Drain **ret);
/* Goes on with what the daemon before has watched. */
int drain_new_from(DrainWatch *w, uint64_t page_size, const DrainFile *files, size_t n, Drain **ret);
Drain *drain_free(Drain *d);
/* Nobody has any of it any more. */
bool drain_is_over(Drain *d);
/* Have it told, once, from the event loop.  May free it. */
void drain_notify(Drain *d, drain_done_t done, void *userdata);
uint64_t drain_bytes(const Drain *d);
uint64_t drain_page_size(const Drain *d);
/* What it began with, to look for its holders. */
const DrainFile *drain_files(const Drain *d, size_t *ret_n);
/* One without a watch was looked for in all processes.  It is gone if nobody was found twice: one look may
 * miss whoever is just being given it. */
void drain_note_looked_for(Drain *d, size_t i, bool found);
