/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A built VM on memory of a chosen kind, for tests of what becomes of it when
 * its owner, or the kernel, does something to that memory.
 */
#ifndef SELFTEST_KVM_GTDP_BED_H
#define SELFTEST_KVM_GTDP_BED_H

#include "gtdp.h"

enum gtdp_mem_kind {
	GTDP_MEM_ANON,
	GTDP_MEM_ANON_THP,
	GTDP_MEM_MEMFD,
	GTDP_MEM_MEMFD_THP,
	GTDP_MEM_HUGETLB,
	GTDP_MEM_HUGETLB_MEMFD,
	NR_GTDP_MEM_KINDS,
};

#define GTDP_MEM_ANY_ANON	(BIT(GTDP_MEM_ANON) | BIT(GTDP_MEM_ANON_THP))
#define GTDP_MEM_ANY_MEMFD	(BIT(GTDP_MEM_MEMFD) | BIT(GTDP_MEM_MEMFD_THP))
#define GTDP_MEM_ANY_HUGETLB	(BIT(GTDP_MEM_HUGETLB) |		\
				 BIT(GTDP_MEM_HUGETLB_MEMFD))
#define GTDP_MEM_ANY		(BIT(NR_GTDP_MEM_KINDS) - 1)

/* Leaves of 2M take part in all that is done to a page of them. */
#define GTDP_BED_SIZE		SZ_16M

struct gtdp_bed {
	enum gtdp_mem_kind kind;
	const char *name;
	u64 leaf;		/* what the memory allows: 4K or 2M */
	bool shared;		/* pages belong to the file, not to the mapping */
	int memfd;
	u8 *mem;
	u32 build_flags;

	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	int fd;
	u64 rest;		/* the library's own memory, built and pinned */
	struct kvm_gtdp_stats before;
};

const char *gtdp_bed_open(struct gtdp_bed *bed, enum gtdp_mem_kind kind,
			  u32 build_flags);
void gtdp_bed_close(struct gtdp_bed *bed);
const char *gtdp_bed_each(u32 kinds, u32 build_flags,
			  const char *(*fn)(struct gtdp_bed *bed));

void gtdp_bed_mark(struct gtdp_bed *bed);
void gtdp_bed_coherent(struct gtdp_bed *bed, u64 off, u64 size);
void gtdp_bed_assert_kept(struct gtdp_bed *bed);
u64 gtdp_bed_assert_lost(struct gtdp_bed *bed, u64 off, u64 size);
void gtdp_bed_assert_some_lost(struct gtdp_bed *bed);
void gtdp_bed_assert_healed(struct gtdp_bed *bed);
void gtdp_bed_heal(struct gtdp_bed *bed, u32 flags);

int gtdp_events(int fd, struct kvm_gtdp_event *events, int max);
void gtdp_drain_events(int fd);

u64 gtdp_find_number(const char *path, const char *format);
u64 gtdp_vmstat(const char *name);
u64 gtdp_read_number(const char *path);
int gtdp_write_file(const char *path, const char *text);
u64 gtdp_swap_free(void);

#endif /* SELFTEST_KVM_GTDP_BED_H */
