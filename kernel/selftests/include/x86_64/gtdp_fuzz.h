/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A fuzzer for sequences of calls to /dev/kvm-gtdp and KVM: a few VMs with a few
 * slots each, and threads and a second process that do to them what they can.
 *
 * All of it lives in one process, the campaign, which may end at any time.  What
 * it shares with its second process is in one shared mapping; file descriptors
 * have fixed numbers, so that a call meets the file it means or /dev/null, even if
 * another thread closes that file meanwhile.
 */
#ifndef SELFTEST_KVM_GTDP_FUZZ_H
#define SELFTEST_KVM_GTDP_FUZZ_H

#include <pthread.h>

#include "gtdp_chaos.h"

#define FUZZ_VMS	4
#define FUZZ_SLOTS	16
#define FUZZ_VCPUS	2
#define FUZZ_SLOT_MAX	SZ_64M
#define FUZZ_WORKERS	5	/* the last one is the second process */

#define FUZZ_FD_FIRST	64
#define FUZZ_FDS	8	/* per VM: handle, VM, vCPUs, two files of memory */

enum fuzz_backing {
	FUZZ_ANON,
	FUZZ_THP,
	FUZZ_MEMFD,
	FUZZ_MEMFD_PRIVATE,
	FUZZ_HUGETLB,
	FUZZ_HUGETLB_MEMFD,
	FUZZ_NR_BACKINGS,
};

/* What somebody did last to a slot: others may be at it, so only a hint. */
struct fuzz_slot {
	u64 gpa;
	u64 size;		/* 0: none */
	u32 flags;
	u32 backing;
};

struct fuzz_vm {
	pthread_mutex_t handle_lock;
	u32 handle_gen;		/* odd while there may be no handle */
	bool there;
	bool ring;
	bool manual;
	struct fuzz_slot slots[FUZZ_SLOTS];
	pthread_mutex_t life;	/* creation and end of the VM; not of its handle */
	struct kvm_gtdp_stats last[FUZZ_WORKERS];
	u32 last_gen[FUZZ_WORKERS];
};

enum fuzz_op {
	FUZZ_ATTACH, FUZZ_CLOSE, FUZZ_BUILD, FUZZ_RELEASE, FUZZ_SPLIT, FUZZ_COLLAPSE,
	FUZZ_STATS, FUZZ_GET_SLOTS, FUZZ_READ, FUZZ_POLL,
	FUZZ_VM_NEW, FUZZ_VM_END, FUZZ_SLOT_SET, FUZZ_SLOT_DELETE, FUZZ_SLOT_MOVE,
	FUZZ_SLOT_FLAGS, FUZZ_DIRTY_GET, FUZZ_DIRTY_CLEAR, FUZZ_DIRTY_RESET,
	FUZZ_RUN, FUZZ_DISCARD, FUZZ_PUNCH, FUZZ_REMAP, FUZZ_PROTECT, FUZZ_ADVISE,
	FUZZ_FORK, FUZZ_TOUCH, FUZZ_HOST,
	FUZZ_NR_OPS,
};

#define FUZZ_NR_ERRNOS	134	/* 0: success */
#define FUZZ_TRACE	48

struct fuzz_trace {
	u64 msecs;
	s32 ret;
	u8 op;
	u8 vm;
	u64 arg[4];
};

struct fuzz {
	u32 seed;
	bool stop;
	bool failed;
	struct fuzz_vm vms[FUZZ_VMS];
	u64 counts[FUZZ_NR_OPS][FUZZ_NR_ERRNOS];
	u64 large_leaves;	/* seen in STATS: it is not all small */
	u64 splits;
	u64 collapses;
	struct fuzz_trace trace[FUZZ_WORKERS][FUZZ_TRACE];
	u32 traced[FUZZ_WORKERS];
};

extern struct fuzz *fuzz;	/* shared by all processes of a test */

/* One thread's or process's part in it. */
struct fuzz_worker {
	int id;
	bool foreign;		/* with an address space of its own */
	struct guest_random_state rng;
	struct fuzz_trace *now;
};

static inline int fuzz_handle_fd(int vm) { return FUZZ_FD_FIRST + vm * FUZZ_FDS; }
static inline int fuzz_vm_fd(int vm) { return fuzz_handle_fd(vm) + 1; }
static inline int fuzz_vcpu_fd(int vm, int i) { return fuzz_handle_fd(vm) + 2 + i; }
static inline int fuzz_mem_fd(int vm, bool huge) { return fuzz_handle_fd(vm) + 4 + huge; }

static inline bool fuzz_handle_closed(int vm)
{
	return READ_ONCE(fuzz->vms[vm].handle_gen) & 1;
}

static inline bool fuzz_percent(struct fuzz_worker *w, u32 percent)
{
	return gtdp_below(&w->rng, 100) < percent;
}

static inline u64 fuzz_u64(struct fuzz_worker *w)
{
	return guest_random_u64(&w->rng) ^ (u64)guest_random_u32(&w->rng) << 31;
}

/* Rather one that is there. */
static inline int fuzz_pick_slot(struct fuzz_worker *w, int vm)
{
	int i, slot = gtdp_below(&w->rng, FUZZ_SLOTS);

	for (i = 0; i < 5 && !READ_ONCE(fuzz->vms[vm].slots[slot].size); i++)
		slot = gtdp_below(&w->rng, FUZZ_SLOTS);
	return slot;
}

/* gtdp_fuzz_vm.c: VMs, their slots and memory */
extern const char fuzz_guest[], fuzz_guest_end[];

void fuzz_open(void);
void *fuzz_mem(int vm, int slot);
int fuzz_vm_new(struct fuzz_worker *w, int vm);
int fuzz_vm_end(struct fuzz_worker *w, int vm);
int fuzz_slot_set(struct fuzz_worker *w, int vm);
int fuzz_slot_delete(struct fuzz_worker *w, int vm);
int fuzz_slot_move(struct fuzz_worker *w, int vm);
int fuzz_slot_flags(struct fuzz_worker *w, int vm);
int fuzz_dirty_get(struct fuzz_worker *w, int vm);
int fuzz_dirty_clear(struct fuzz_worker *w, int vm);
int fuzz_dirty_reset(struct fuzz_worker *w, int vm);
int fuzz_run(struct fuzz_worker *w, int vm);
void fuzz_set_fd(int fd, int number);

/* gtdp_fuzz_mem.c: what an owner does to its memory */
int fuzz_map(struct fuzz_worker *w, int vm, int slot, u32 backing, u64 size);
int fuzz_discard(struct fuzz_worker *w, int vm);
int fuzz_punch(struct fuzz_worker *w, int vm);
int fuzz_remap(struct fuzz_worker *w, int vm);
int fuzz_protect(struct fuzz_worker *w, int vm);
int fuzz_advise(struct fuzz_worker *w, int vm);
int fuzz_fork(struct fuzz_worker *w, int vm);
int fuzz_touch(struct fuzz_worker *w, int vm);
int fuzz_host(struct fuzz_worker *w, int vm);
void fuzz_restore_host(void);

/* gtdp_fuzz_handle.c: the calls that this is about */
int fuzz_attach(struct fuzz_worker *w, int vm);
int fuzz_close(struct fuzz_worker *w, int vm);
int fuzz_range(struct fuzz_worker *w, int vm, enum fuzz_op op);
int fuzz_stats(struct fuzz_worker *w, int vm);
int fuzz_get_slots(struct fuzz_worker *w, int vm);
int fuzz_read(struct fuzz_worker *w, int vm);
int fuzz_poll(struct fuzz_worker *w, int vm);

/* gtdp_fuzz.c: what to do next, and what may come of it */
void fuzz_work(struct fuzz_worker *w);
void fuzz_fail(struct fuzz_worker *w, const char *fmt, ...) __printf(2, 3);
void fuzz_assert_quiet_state(void);
void fuzz_print_counts(void);

#endif /* SELFTEST_KVM_GTDP_FUZZ_H */
