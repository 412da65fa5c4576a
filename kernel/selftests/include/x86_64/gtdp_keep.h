/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ways to have the kernel go after the memory of a process, and to know that it
 * did.  Each returns NULL, or why this host cannot do it.
 */
#ifndef SELFTEST_KVM_GTDP_KEEP_H
#define SELFTEST_KVM_GTDP_KEEP_H

#include <linux/mman.h>
#include <sys/mman.h>

#include "gtdp.h"

/* Newer than the C library's headers may be. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE		25
#endif
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE	101
#endif

const char *gtdp_run_ksm(void);
const char *gtdp_run_khugepaged(void);
const char *gtdp_run_compaction(void);

const char *gtdp_cgroup_enter(void);
void gtdp_cgroup_reclaim(u64 size);
void gtdp_cgroup_leave(void);

#endif /* SELFTEST_KVM_GTDP_KEEP_H */
