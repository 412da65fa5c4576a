/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * KVM global TDP mappings: build, pin and keep a VM's whole second-level
 * mapping (EPT or NPT) from outside its vCPUs.
 *
 * All addresses and sizes are in bytes.  Fields named "reserved" must be zero
 * on input (EINVAL otherwise) and are zero on output.  Unknown flags are
 * refused with EINVAL.
 */
#ifndef _UAPI_LINUX_KVM_GTDP_H
#define _UAPI_LINUX_KVM_GTDP_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Bumped for incompatible changes only; additions come with a feature bit. */
#define KVM_GTDP_ABI_VERSION	1

#define KVM_GTDP_IOC	0xB9

/* kvm_gtdp_info.mode */
#define KVM_GTDP_MODE_SHADOW	0	/* ATTACH works, BUILD is EOPNOTSUPP */
#define KVM_GTDP_MODE_EPT	1
#define KVM_GTDP_MODE_NPT	2

/* kvm_gtdp_info.features */
#define KVM_GTDP_FEAT_AD_BITS	(1ULL << 0)	/* accessed and dirty bits */
#define KVM_GTDP_FEAT_PML	(1ULL << 1)	/* page modification logging */
#define KVM_GTDP_FEAT_NESTED	(1ULL << 2)	/* guests may run guests */
#define KVM_GTDP_FEAT_APICV	(1ULL << 3)	/* APICv or AVIC in use */
#define KVM_GTDP_FEAT_NX_HUGE	(1ULL << 4)	/* NX huge page mitigation on */
#define KVM_GTDP_FEAT_FORCE	(1ULL << 5)	/* kvm.gtdp=force */
#define KVM_GTDP_FEAT_NESTED_APICV (1ULL << 6)	/* nested guests get it too */
#define KVM_GTDP_FEAT_EVENTS	(1ULL << 7)	/* read() and poll() on a handle */
#define KVM_GTDP_FEAT_SPLIT	(1ULL << 8)	/* KVM_GTDP_SPLIT and _COLLAPSE */

/* KVM_GTDP_GET_INFO, on the device.  Facts of this host. */
struct kvm_gtdp_info {
	__u32 abi_version;	/* KVM_GTDP_ABI_VERSION */
	__u32 mode;		/* KVM_GTDP_MODE_* */
	__u64 features;		/* KVM_GTDP_FEAT_* */
	__u32 root_level;	/* levels of the largest TDP table, 0 if shadow */
	__u32 max_leaf_level;	/* 1: 4K, 2: 2M, 3: 1G */
	__u64 reserved[4];
};

/* kvm_gtdp_attach.flags */
#define KVM_GTDP_ATTACH_AUTO	(1U << 0)	/* build slots when committed */

/*
 * KVM_GTDP_ATTACH, on the device.  Returns a new handle (a file descriptor,
 * close-on-exec) for the VM behind vm_fd.  The handle holds no reference to
 * the VM: keeping it open keeps neither the VM nor its memory.
 *
 * EBADF	vm_fd is not open
 * EINVAL	vm_fd is not a VM, unknown flag, reserved field not zero
 * EBUSY	the VM has a handle already
 * EOPNOTSUPP	a VM whose memory KVM must not map by itself (confidential
 *		or with private memory)
 * ESRCH	the VM's owner has gone
 * ENOMEM, EMFILE, ENFILE	no memory, or no descriptor
 */
struct kvm_gtdp_attach {
	__s32 vm_fd;
	__u32 flags;
	__u64 reserved[3];
};

/* kvm_gtdp_slot.flags */
#define KVM_GTDP_SLOT_READONLY	(1U << 0)
#define KVM_GTDP_SLOT_DIRTY_LOG	(1U << 1)

struct kvm_gtdp_slot {
	__u64 gpa;
	__u64 size;
	__u64 hva;		/* in the owner's address space */
	__u32 flags;		/* KVM_GTDP_SLOT_* */
	__u32 id;		/* as given to KVM_SET_USER_MEMORY_REGION */
	__u64 page_size;	/* of the VMA that backs its first byte */
	__u64 reserved;
};

/*
 * KVM_GTDP_GET_SLOTS, on a handle.  The VM's memory slots (address space 0),
 * by ascending gpa.  "count" is the room in the array on input and the number
 * of slots on output; E2BIG, with "count" updated, if the room is too small.
 */
struct kvm_gtdp_slots {
	__u32 count;
	__u32 reserved32;
	__u64 slots;		/* user pointer to struct kvm_gtdp_slot[] */
	__u64 reserved[2];
};

/* kvm_gtdp_range.flags */
#define KVM_GTDP_BUILD_NOPIN	(1U << 0)	/* map, but do not pin */
#define KVM_GTDP_BUILD_PRESENT	(1U << 1)	/* never fault memory in */

/*
 * KVM_GTDP_BUILD, _RELEASE, _SPLIT and _COLLAPSE, on a handle.
 *
 * gpa and size are multiples of 4 KiB.  They advance past what has been done,
 * on success and on error, so that the same call can be repeated to go on.
 * Disjoint ranges can be worked on by several callers in parallel.
 *
 * BUILD maps [gpa, gpa + size) writable at the largest leaf that the backing,
 * the slot's alignment and max_level (0: no limit) allow, and pins the memory.
 * With dirty logging of the slot leaves are 4K, and their first write is logged.
 * The range must be covered by memory slots; read-only slots are skipped.
 * Memory is faulted in as if its owner had written to it, unless PRESENT: then only
 * what is there is mapped, which is what the owner has mapped writable, and what
 * the file of a shared mapping has (if no userfaultfd watches it).  A leaf that is
 * there already and larger than max_level stays: see SPLIT.
 *
 * RELEASE lets the pins of [gpa, gpa + size) go.  Leaves stay until somebody
 * else takes them away, but for memory that its owner does not have mapped at
 * that moment (it is being migrated or reclaimed); the range is no longer counted
 * as built.  A huge page is pinned, and let go, as a whole.  Flags and max_level
 * must be zero.
 *
 * SPLIT replaces every leaf that overlaps the range and is larger than max_level
 * (0: 4K) by a table of smaller ones, so that dirty logging can be switched on
 * later with nothing left to split.  Nothing is unmapped and no pin changes.
 * Flags must be zero, max_level at most 2M.
 *
 * COLLAPSE is the reverse: tables that lie in the range as a whole, are mapped
 * without a gap and writable, and whose memory is contiguous there and in the
 * owner's page tables, become one leaf of up to max_level (0: no limit).  What
 * cannot be collapsed (dirty logging, write tracking, NX huge pages, a change of
 * the owner's mapping that lasts) stays as it is, and is no error.  Leaves get
 * write access back that dirty logging has taken.  Nothing is unmapped.  Flags
 * must be zero.
 *
 * EINVAL	gpa or size unaligned or size zero, gpa + size overflows or
 *		exceeds the guest-physical address space, bad flag or level
 * ENOENT	gpa is in no memory slot (BUILD)
 * EAGAIN	a slot or the owner's mapping changed meanwhile: call again
 * EINTR	a signal arrived: call again to go on
 * EFAULT	the owner has no accessible memory at gpa
 * ERANGE	beyond what the VM's page tables can map: attach or build after its
 *		vCPUs have got their CPUID, which may make 5 levels of 4 (BUILD)
 * EOPNOTSUPP	shadow paging, or memory that cannot be pinned for long
 * ENOMEM	no memory for page tables, or the owner's VmPin would exceed the
 *		RLIMIT_MEMLOCK of whoever attached (not with CAP_IPC_LOCK)
 * EIO		KVM has given the VM up
 * ESRCH	the VM or its owner has gone
 */
struct kvm_gtdp_range {
	__u64 gpa;
	__u64 size;
	__u32 flags;
	__u32 max_level;	/* 0: no limit, 1: 4K, 2: 2M, 3: 1G */
	__u64 reserved[2];
};

/* Why a built range lost a leaf: index of kvm_gtdp_stats.lost_bytes. */
#define KVM_GTDP_HOLE_NOTIFIER	0	/* owner's mapping changed */
#define KVM_GTDP_HOLE_SLOT	1	/* memory slot deleted or moved */
#define KVM_GTDP_HOLE_DIRTY_LOG	2	/* dirty logging switched on or off */
#define KVM_GTDP_HOLE_NX_HUGE	3	/* NX huge page mitigation */
#define KVM_GTDP_HOLE_REQUEST	4	/* unmapped along with what was released */
#define KVM_GTDP_HOLE_OTHER	5	/* all roots dropped, memory type changed */
#define KVM_GTDP_HOLE_REASONS	8

#define KVM_GTDP_MAX_NODES	64

/*
 * KVM_GTDP_STATS, on a handle.  "mapped" and "hole" values are read from the
 * page table at the time of the call; the others count since the attach.
 */
struct kvm_gtdp_stats {
	__u64 built_bytes;		/* asked for, and not released */
	__u64 leaves[4];		/* present in built ranges; [1] 4K, [2] 2M, [3] 1G */
	__u64 mapped_bytes;		/* of built_bytes */
	__u64 hole_bytes;		/* of built_bytes, not mapped */
	__u64 pinned_bytes;
	__u64 lost_bytes[KVM_GTDP_HOLE_REASONS]; /* taken from built ranges, in all */
	__u64 faults;			/* TDP faults in built ranges */
	__u64 faults_other;		/* TDP faults elsewhere: MMIO, ROM, not built */
	__u64 build_ns;			/* time spent in builds, all callers added */
	__u64 auto_builds;		/* slots built when committed */
	__u64 auto_errors;		/* of these, how many fell short */
	__s64 auto_last_error;		/* negative errno of the last such, or 0 */
	__u64 table_pages[KVM_GTDP_MAX_NODES]; /* of the built mapping, by node */
	__u64 split_leaves;		/* large leaves split, by SPLIT and for dirty logging */
	__u64 collapsed_leaves;		/* tables made into one leaf, likewise */
	__u64 kept_bytes;		/* spared by a pin when the owner's mapping was touched */
	__u64 dropped_events;		/* nobody read them in time */
	__u64 reserved[4];
};

/* kvm_gtdp_event.type */
#define KVM_GTDP_EVENT_HOLE		1	/* a built range lost leaves */
#define KVM_GTDP_EVENT_SLOT_ADDED	2	/* created, or where a moved one is now */
#define KVM_GTDP_EVENT_SLOT_REMOVED	3	/* deleted, or where a moved one was */
#define KVM_GTDP_EVENT_SLOT_FLAGS	4	/* read-only or dirty logging changed */
#define KVM_GTDP_EVENT_DROPPED		5	/* events are missing here: see STATS, GET_SLOTS */

/*
 * What read() on a handle returns: as many whole events as fit, oldest first.
 * Holes of one reason that touch are merged for as long as nobody has read them.
 * At most KVM_GTDP_MAX_EVENTS wait; what comes then is replaced by one DROPPED.
 *
 * read() waits for the first event; with O_NONBLOCK it is EAGAIN.  EINVAL if the
 * buffer has no room for one event.  Once the VM or its owner has gone and all
 * events have been read it returns 0.
 */
#define KVM_GTDP_MAX_EVENTS	256

struct kvm_gtdp_event {
	__u32 type;		/* KVM_GTDP_EVENT_* */
	__u32 reason;		/* HOLE: KVM_GTDP_HOLE_*; slots: KVM_GTDP_SLOT_* flags now */
	__u64 gpa;
	__u64 size;		/* HOLE: what was unmapped lies in [gpa, gpa + size) */
	__u64 bytes;		/* HOLE: how many bytes of built memory were unmapped */
};

/* On /dev/kvm-gtdp. */
#define KVM_GTDP_GET_INFO	_IOR(KVM_GTDP_IOC, 0x00, struct kvm_gtdp_info)
#define KVM_GTDP_ATTACH		_IOW(KVM_GTDP_IOC, 0x01, struct kvm_gtdp_attach)

/*
 * On a handle.  poll() reports EPOLLIN while there are events to read, and
 * EPOLLHUP | EPOLLERR once the VM or its owner has gone; all calls are ESRCH from
 * then on.
 * Closing the handle lets all pins go; the guest goes on with what is mapped, and
 * on demand.
 */
#define KVM_GTDP_GET_SLOTS	_IOWR(KVM_GTDP_IOC, 0x10, struct kvm_gtdp_slots)
#define KVM_GTDP_BUILD		_IOWR(KVM_GTDP_IOC, 0x11, struct kvm_gtdp_range)
#define KVM_GTDP_RELEASE	_IOWR(KVM_GTDP_IOC, 0x12, struct kvm_gtdp_range)
#define KVM_GTDP_STATS		_IOR(KVM_GTDP_IOC, 0x13, struct kvm_gtdp_stats)
#define KVM_GTDP_SPLIT		_IOWR(KVM_GTDP_IOC, 0x14, struct kvm_gtdp_range)
#define KVM_GTDP_COLLAPSE	_IOWR(KVM_GTDP_IOC, 0x15, struct kvm_gtdp_range)

#endif /* _UAPI_LINUX_KVM_GTDP_H */
