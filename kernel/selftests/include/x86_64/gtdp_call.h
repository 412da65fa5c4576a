/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The calls of /dev/kvm-gtdp and its handles as a table, for tests that do the same
 * with each of them, and a VM to try them on.
 */
#ifndef SELFTEST_KVM_GTDP_CALL_H
#define SELFTEST_KVM_GTDP_CALL_H

#include "gtdp.h"

#define GTDP_CALL_SIZE	SZ_4M

union gtdp_arg {
	struct kvm_gtdp_info info;
	struct kvm_gtdp_attach attach;
	struct kvm_gtdp_slots slots;
	struct kvm_gtdp_range range;
	struct kvm_gtdp_stats stats;
	u8 bytes[1024];
};

enum gtdp_call {
	GTDP_ATTACH, GTDP_GET_INFO,
	/* On a handle. */
	GTDP_GET_SLOTS, GTDP_STATS, GTDP_BUILD, GTDP_RELEASE, GTDP_SPLIT, GTDP_COLLAPSE,
	GTDP_NR_CALLS,
};

struct gtdp_call_info {
	const char *name;
	unsigned int cmd;
	bool on_device;
	bool writes;		/* to its argument */
};

extern const struct gtdp_call_info gtdp_calls[GTDP_NR_CALLS];

/* A VM with one slot beside the library's, and a handle unless ATTACH is tried. */
struct gtdp_call_vm {
	struct kvm_vm *vm;
	int dev_fd;
	int fd;
	struct kvm_gtdp_slot slots[8];
};

void gtdp_call_open(struct gtdp_call_vm *t, bool handle);
void gtdp_call_close(struct gtdp_call_vm *t);

/* An argument with which the call succeeds. */
union gtdp_arg gtdp_good_arg(struct gtdp_call_vm *t, enum gtdp_call call);
int gtdp_do_call(struct gtdp_call_vm *t, enum gtdp_call call, void *arg);
void gtdp_assert_nothing_built(struct gtdp_call_vm *t, const char *what);

static inline bool gtdp_is_range_call(enum gtdp_call call)
{
	return call >= GTDP_BUILD;
}

#endif /* SELFTEST_KVM_GTDP_CALL_H */
