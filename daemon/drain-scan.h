/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Who has files of ours open or mapped: a look at all processes, in a thread, as it takes its time. */

#include <sys/types.h>

#include "drain.h"
#include "worker.h"

#define DRAIN_PIDS_MAX 16U

typedef struct DrainPids {
        pid_t pids[DRAIN_PIDS_MAX]; /* those found first */
        size_t n;
} DrainPids;

typedef struct DrainScan DrainScan;
typedef void (*drain_scan_done_t)(DrainScan *s, void *userdata);

/* "done" comes from the event loop, also if there was no time for all processes; it frees the scan. */
int drain_scan_start(sd_event *event, const char *proc_root, const DrainFile *files, size_t n_files,
                     drain_scan_done_t done, void *userdata, DrainScan **ret);
DrainScan *drain_scan_free(DrainScan *s);
/* There was time for all processes. */
bool drain_scan_is_complete(const DrainScan *s);
uint64_t drain_scan_usec(const DrainScan *s);
/* Adds those that have that file, each once, and returns how many they are.  -ENOENT: it was not looked for.
 */
int drain_scan_find(const DrainScan *s, const DrainFile *file, DrainPids *pids);
