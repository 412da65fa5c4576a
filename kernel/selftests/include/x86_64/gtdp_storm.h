/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All that can happen to a VM with a global mapping, at once, from many threads: the
 * threads.  The guest, and what it checks, is that of gtdp_storm_test.
 */
#ifndef SELFTEST_KVM_GTDP_STORM_H
#define SELFTEST_KVM_GTDP_STORM_H

#include <pthread.h>

#include "gtdp_chaos.h"

#define STORM_AREAS	4
#define STORM_SIZE	SZ_8M
#define STORM_PAGES	(STORM_SIZE / PAGE_SIZE)
#define STORM_SLOT	GTDP_TEST_SLOT

/* A slot, with memory of one kind. */
struct storm_area {
	u64 gpa;
	void *mem;
	int memfd;		/* or -1 */
	bool discard;		/* its content may be thrown away */
	pthread_mutex_t lock;	/* whoever changes the slot or its memory's protection */
};

enum storm_job {
	STORM_BUILD, STORM_HEAL, STORM_SPLIT, STORM_SLOTS, STORM_DIRTY_LOG, STORM_MEMORY,
	STORM_ATTACH, STORM_STATS, STORM_NR_JOBS,
};

struct storm {
	u32 seed;
	struct kvm_vm *vm;
	struct storm_area areas[STORM_AREAS];
	int fd;			/* one number for all handles, one after the other */
	bool stop;
	u64 done[STORM_NR_JOBS];
	u64 holes;		/* events that told of one */
};

static inline u64 storm_area_gpa(int area)
{
	return GTDP_TEST_GPA + area * (u64)SZ_1G;
}

void storm_open(struct storm *s);
void storm_start(struct storm *s);
void storm_stop(struct storm *s);
void storm_close(struct storm *s);

#endif /* SELFTEST_KVM_GTDP_STORM_H */
