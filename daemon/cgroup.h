/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Limits of cgroups on huge pages.  The kernel charges whoever sets pages aside (hugetlb.SIZE.rsvd.max) or
 * touches them first (hugetlb.SIZE.max), in all levels of the tree; for our VMs that is tdpd, and their VMMs
 * get pages that are paid for.  A limit of a VMM's cgroup is somebody's will all the same.
 */

#include <sys/types.h>

#include "macro.h"

typedef struct CgroupRoom {
        char *cgroup; /* the level with the least room */
        char file[48];
        uint64_t limit, used, room; /* bytes; UINT64_MAX: no limit */
} CgroupRoom;

void cgroup_room_done(CgroupRoom *r);

/* Of the unified tree, or of hugetlb's own.  -ESRCH: no such process. */
int cgroup_of_process(pid_t pid, char **ret);
/* An absolute path below the tree's root, without "." and "..". */
bool cgroup_path_is_valid(const char *cgroup);
/*
 * The least room of this cgroup and all above it.  "extra" bytes are going to be charged besides what is,
 * and only where pages are touched.  Levels without the controller have no limit.
 */
int cgroup_get_room(const char *sysfs_root, const char *cgroup, uint64_t page_size, uint64_t extra,
                    CgroupRoom *ret);
/* Whose it is; if it is not there yet, whose the nearest one above it is. */
int cgroup_get_owner(const char *sysfs_root, const char *cgroup, uid_t *ret);
/* "a" is "b" or below it. */
bool cgroup_is_below(const char *a, const char *b);
