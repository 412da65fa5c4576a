/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A VM whose vCPUs write everywhere, and somebody who copies its memory by the dirty
 * log alone, as a migration does: whatever the log misses is old in the copy.
 */
#ifndef SELFTEST_KVM_GTDP_DIRTY_H
#define SELFTEST_KVM_GTDP_DIRTY_H

#include <pthread.h>

#include "gtdp_chaos.h"

#define DIRTY_VCPUS	3
#define DIRTY_GPA	GTDP_TEST_GPA
#define DIRTY_SLOT	GTDP_TEST_SLOT
#define DIRTY_SIZE	SZ_16M
#define DIRTY_PAGES	(DIRTY_SIZE / PAGE_SIZE)

enum dirty_mode {
	DIRTY_BITMAP,
	DIRTY_MANUAL,		/* KVM_CLEAR_DIRTY_LOG */
	DIRTY_INITIALLY_SET,	/* the same, all pages dirty to begin with */
	DIRTY_RING,
};

struct dirty_vcpu {
	struct kvm_vcpu *vcpu;
	struct dirty_vm *vm;
	pthread_t thread;
	int tid;
	u32 fetched;		/* entries of the ring */
	u32 kicked;		/* last kick that it has seen */
};

struct dirty_vm {
	enum dirty_mode mode;
	u32 seed;
	struct kvm_vm *vm;
	struct dirty_vcpu vcpus[DIRTY_VCPUS];
	void *mem;		/* what the guest writes to */
	void *copy;
	unsigned long *log;	/* what KVM says */
	u32 kicks;
	bool stop;
	u64 copied;		/* pages, in all */
	u64 compared;
	struct guest_random_state rng;
};

struct dirty_vm *dirty_vm_create(enum dirty_mode mode, enum vm_mem_backing_src_type src, u32 seed);
void dirty_vm_start(struct dirty_vm *d);
void dirty_vm_free(struct dirty_vm *d);
u64 dirty_writes(struct dirty_vm *d);

/* Everything is copied once; from then on, what the log has. */
void dirty_enable(struct dirty_vm *d);
void dirty_disable(struct dirty_vm *d);
void dirty_harvest(struct dirty_vm *d, bool all);
/* Stop the vCPUs, copy what is left, and compare. */
void dirty_check(struct dirty_vm *d);

#endif /* SELFTEST_KVM_GTDP_DIRTY_H */
