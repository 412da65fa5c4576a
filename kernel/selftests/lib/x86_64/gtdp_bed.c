// SPDX-License-Identifier: GPL-2.0-only
/*
 * A built VM on memory of a chosen kind, for tests of what becomes of it when
 * its owner, or the kernel, does something to that memory.
 */
#include <linux/memfd.h>
#include <linux/mman.h>
#include <sys/syscall.h>

#include "gtdp_bed.h"

#define GPA	((u64)GTDP_TEST_GPA)
#define SIZE	GTDP_BED_SIZE

#define BALANCING	"/proc/sys/kernel/numa_balancing"
#define SHMEM_THP	"/sys/kernel/mm/transparent_hugepage/shmem_enabled"

static const struct {
	const char *name;
	u64 leaf;
	bool file;
	bool hugetlb;
} kinds[NR_GTDP_MEM_KINDS] = {
	[GTDP_MEM_ANON]		 = { "anonymous", SZ_4K },
	[GTDP_MEM_ANON_THP]	 = { "anonymous THP", SZ_2M },
	[GTDP_MEM_MEMFD]	 = { "memfd", SZ_4K, true },
	[GTDP_MEM_MEMFD_THP]	 = { "memfd THP", SZ_2M, true },
	[GTDP_MEM_HUGETLB]	 = { "hugetlb", SZ_2M, false, true },
	[GTDP_MEM_HUGETLB_MEMFD] = { "hugetlb memfd", SZ_2M, true, true },
};

static void alloc_memory(struct gtdp_bed *bed)
{
	bool hugetlb = kinds[bed->kind].hugetlb;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	u8 *start;

	bed->memfd = -1;
	bed->shared = kinds[bed->kind].file;
	if (bed->shared) {
		bed->memfd = memfd_create("gtdp", MFD_CLOEXEC |
					  (hugetlb ? MFD_HUGETLB | MFD_HUGE_2MB :
						     0));
		TEST_ASSERT(bed->memfd >= 0 && !ftruncate(bed->memfd, SIZE),
			    "memfd failed, errno: %i", errno);
		flags = MAP_SHARED;
	} else if (hugetlb) {
		flags |= MAP_HUGETLB | MAP_HUGE_2MB;
	}

	/* Aligned to 2M, and alone: nothing merges with it or lies around it. */
	start = mmap(NULL, SIZE + 2 * SZ_2M, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	TEST_ASSERT(start != MAP_FAILED, "mmap() failed, errno: %i", errno);
	start = (u8 *)round_up((uintptr_t)start + PAGE_SIZE, SZ_2M);
	bed->mem = mmap(start, SIZE, PROT_READ | PROT_WRITE,
			flags | MAP_FIXED, bed->memfd, 0);
	TEST_ASSERT(bed->mem == start, "mmap() failed, errno: %i", errno);

	if (!hugetlb)
		madvise(bed->mem, SIZE, bed->leaf == SZ_2M ? MADV_HUGEPAGE :
							     MADV_NOHUGEPAGE);
	memset(bed->mem, 0x5a, SIZE);
}

static bool has_huge_leaves(struct gtdp_bed *bed)
{
	return gtdp_stats(bed->fd).leaves[PG_LEVEL_2M] >= SIZE / SZ_2M;
}

/* Opens a VM whose memory is all there, built, and written to by its guest. */
const char *gtdp_bed_open(struct gtdp_bed *bed, enum gtdp_mem_kind kind,
			  u32 build_flags)
{
	*bed = (struct gtdp_bed) {
		.kind = kind,
		.name = kinds[kind].name,
		.leaf = kinds[kind].leaf,
		.build_flags = build_flags,
	};

	if (kinds[kind].hugetlb && gtdp_free_hugepages(SZ_2M) < SIZE / SZ_2M)
		return "needs 8 free huge pages of 2M";
	if (kind == GTDP_MEM_MEMFD_THP && gtdp_write_file(SHMEM_THP, "advise"))
		return "no THP for memfds";

	alloc_memory(bed);
	bed->vm = gtdp_vm_create(&bed->vcpu);
	vm_set_user_memory_region(bed->vm, GTDP_TEST_SLOT, 0, GPA, SIZE,
				  bed->mem);
	virt_map_level(bed->vm, GPA, GPA, SIZE, PG_LEVEL_2M);
	bed->rest = gtdp_slot0_size(bed->vm);
	bed->fd = gtdp_attach(bed->vm, 0);
	gtdp_build_ok(bed->fd, 0, bed->rest, 0, 0);
	gtdp_build_ok(bed->fd, GPA, SIZE, build_flags, 0);

	if (bed->leaf == SZ_2M && !has_huge_leaves(bed)) {
		gtdp_bed_close(bed);
		return "memory is too fragmented for THP";
	}
	gtdp_bed_coherent(bed, 0, SIZE);
	gtdp_bed_mark(bed);
	return NULL;
}

void gtdp_bed_close(struct gtdp_bed *bed)
{
	close(bed->fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(bed->vm);
	munmap(bed->mem - PAGE_SIZE, SIZE + 2 * PAGE_SIZE);
	if (bed->memfd >= 0)
		close(bed->memfd);
}

/* Runs fn on a bed of each kind; NULL if at least one of them could be tried. */
const char *gtdp_bed_each(u32 mask, u32 build_flags,
			  const char *(*fn)(struct gtdp_bed *bed))
{
	const char *why, *last = "no kind of memory";
	u64 balancing = gtdp_read_number(BALANCING);
	struct gtdp_bed bed;
	bool done = false;
	int kind;

	/* It takes what is not pinned whenever it likes. */
	if (balancing == 1)
		gtdp_write_file(BALANCING, "0");

	for (kind = 0; kind < NR_GTDP_MEM_KINDS; kind++) {
		if (!(mask & BIT(kind)))
			continue;
		ksft_print_msg("%s, %s\n", kinds[kind].name,
			       build_flags & KVM_GTDP_BUILD_NOPIN ? "not pinned" :
								    "pinned");
		why = gtdp_bed_open(&bed, kind, build_flags);
		if (!why) {
			why = fn(&bed);
			gtdp_bed_close(&bed);
		}
		if (why) {
			ksft_print_msg("not tried: %s\n", why);
			last = why;
		} else {
			done = true;
		}
	}

	if (balancing == 1)
		gtdp_write_file(BALANCING, "1");
	return done ? NULL : last;
}

static u64 pinned(struct gtdp_bed *bed)
{
	return bed->rest +
	       (bed->build_flags & KVM_GTDP_BUILD_NOPIN ? 0 : SIZE);
}

/* What comes after this is compared with what is now. */
void gtdp_bed_mark(struct gtdp_bed *bed)
{
	gtdp_drain_events(bed->fd);
	bed->before = gtdp_stats(bed->fd);
	TEST_ASSERT_EQ(bed->before.hole_bytes, 0);
	/* What is not pinned may go in more pieces than there is room for. */
	if (!(bed->build_flags & KVM_GTDP_BUILD_NOPIN))
		TEST_ASSERT_EQ(bed->before.dropped_events, 0);
	gtdp_assert_pinned(bed->fd, pinned(bed));
}

/* Owner and guest see what the other writes. */
void gtdp_bed_coherent(struct gtdp_bed *bed, u64 off, u64 size)
{
	static u64 seed;
	u64 i;

	seed += SZ_1G;
	for (i = off; i < off + size; i += PAGE_SIZE)
		WRITE_ONCE(*(u64 *)(bed->mem + i), seed + i);
	gtdp_touch(bed->vcpu, GPA + off, size);
	for (i = off; i < off + size; i += PAGE_SIZE)
		TEST_ASSERT(READ_ONCE(*(u64 *)(bed->mem + i)) == seed + i + 1,
			    "0x%lx: owner wrote %lu, guest added 1, owner reads %lu",
			    i, seed + i, *(u64 *)(bed->mem + i));
}

static void assert_same_lost(const struct kvm_gtdp_stats *a,
			     const struct kvm_gtdp_stats *b, u32 but)
{
	int i;

	for (i = 0; i < KVM_GTDP_HOLE_REASONS; i++)
		TEST_ASSERT(i == but || a->lost_bytes[i] == b->lost_bytes[i],
			    "lost for reason %d: %llu, before: %llu", i,
			    b->lost_bytes[i], a->lost_bytes[i]);
}

/* Nothing was lost, nothing is told, and the guest notices nothing. */
void gtdp_bed_assert_kept(struct gtdp_bed *bed)
{
	struct kvm_gtdp_stats now = gtdp_stats(bed->fd);
	struct kvm_gtdp_event event;
	int i;

	TEST_ASSERT_EQ(now.built_bytes, SIZE + bed->rest);
	TEST_ASSERT_EQ(now.hole_bytes, 0);
	assert_same_lost(&bed->before, &now, -1);
	for (i = 0; i < ARRAY_SIZE(now.leaves); i++)
		TEST_ASSERT_EQ(now.leaves[i], bed->before.leaves[i]);
	gtdp_assert_pinned(bed->fd, pinned(bed));
	TEST_ASSERT_EQ(gtdp_events(bed->fd, &event, 1), 0);
	gtdp_assert_free_touch(bed->fd, bed->vcpu, GPA, SIZE);
	gtdp_bed_coherent(bed, 0, SIZE);
	TEST_ASSERT_EQ(gtdp_stats(bed->fd).hole_bytes, 0);
}

/*
 * [off, off + size) was lost to a notifier: at once, with its pins, and told as
 * one event.  Of a huge leaf all may go.  Returns how much that was.
 */
u64 gtdp_bed_assert_lost(struct gtdp_bed *bed, u64 off, u64 size)
{
	u64 lo = round_down(off, bed->leaf), hi = round_up(off + size, bed->leaf);
	struct kvm_gtdp_stats now = gtdp_stats(bed->fd);
	struct kvm_gtdp_event event[4];
	u64 lost;
	int nr;

	lost = now.lost_bytes[KVM_GTDP_HOLE_NOTIFIER] -
	       bed->before.lost_bytes[KVM_GTDP_HOLE_NOTIFIER];
	TEST_ASSERT(lost >= size && lost <= hi - lo,
		    "lost 0x%lx bytes, expected 0x%lx to 0x%lx", lost, size,
		    hi - lo);
	assert_same_lost(&bed->before, &now, KVM_GTDP_HOLE_NOTIFIER);
	TEST_ASSERT_EQ(now.built_bytes, SIZE + bed->rest);
	TEST_ASSERT_EQ(now.hole_bytes, lost);
	TEST_ASSERT_EQ(now.mapped_bytes, SIZE + bed->rest - lost);
	if (bed->build_flags & KVM_GTDP_BUILD_NOPIN) {
		gtdp_assert_pinned(bed->fd, bed->rest);
	} else {
		TEST_ASSERT_EQ(now.pinned_bytes, gtdp_own_pin());
		TEST_ASSERT(now.pinned_bytes >= SIZE + bed->rest - (hi - lo) &&
			    now.pinned_bytes <= SIZE + bed->rest - size,
			    "pinned 0x%llx of 0x%lx", now.pinned_bytes,
			    SIZE + bed->rest);
	}

	nr = gtdp_events(bed->fd, event, ARRAY_SIZE(event));
	TEST_ASSERT(nr == 1, "%d events", nr);
	TEST_ASSERT_EQ(event[0].type, KVM_GTDP_EVENT_HOLE);
	TEST_ASSERT_EQ(event[0].reason, KVM_GTDP_HOLE_NOTIFIER);
	TEST_ASSERT_EQ(event[0].bytes, lost);
	TEST_ASSERT(event[0].gpa >= GPA + lo && event[0].gpa <= GPA + off &&
		    event[0].gpa + event[0].size >= GPA + off + size &&
		    event[0].gpa + event[0].size <= GPA + hi,
		    "event of [0x%llx, +0x%llx), expected [0x%lx, +0x%lx)",
		    event[0].gpa, event[0].size, GPA + off, size);
	return lost;
}

/* Something was lost to notifiers, and all of it was told. */
void gtdp_bed_assert_some_lost(struct gtdp_bed *bed)
{
	struct kvm_gtdp_stats now = gtdp_stats(bed->fd);
	struct kvm_gtdp_event event[KVM_GTDP_MAX_EVENTS];
	u64 lost, told = 0;
	int i, nr;

	nr = gtdp_events(bed->fd, event, ARRAY_SIZE(event));
	now = gtdp_stats(bed->fd);
	lost = now.lost_bytes[KVM_GTDP_HOLE_NOTIFIER] -
	       bed->before.lost_bytes[KVM_GTDP_HOLE_NOTIFIER];
	TEST_ASSERT(lost, "nothing was lost");
	assert_same_lost(&bed->before, &now, KVM_GTDP_HOLE_NOTIFIER);
	for (i = 0; i < nr; i++) {
		if (event[i].type == KVM_GTDP_EVENT_DROPPED)
			return;
		TEST_ASSERT_EQ(event[i].type, KVM_GTDP_EVENT_HOLE);
		TEST_ASSERT_EQ(event[i].reason, KVM_GTDP_HOLE_NOTIFIER);
		TEST_ASSERT(event[i].bytes && event[i].gpa >= GPA &&
			    event[i].gpa + event[i].size <= GPA + SIZE,
			    "event of [0x%llx, +0x%llx)", event[i].gpa,
			    event[i].size);
		told += event[i].bytes;
	}
	TEST_ASSERT_EQ(told, lost);
}

/* As after the first build; large leaves may have become small ones. */
void gtdp_bed_assert_healed(struct gtdp_bed *bed)
{
	gtdp_assert_built(bed->fd, SIZE + bed->rest);
	gtdp_assert_pinned(bed->fd, pinned(bed));
	gtdp_assert_free_touch(bed->fd, bed->vcpu, GPA, SIZE);
	gtdp_bed_coherent(bed, 0, SIZE);
	TEST_ASSERT_EQ(gtdp_stats(bed->fd).hole_bytes, 0);
}

void gtdp_bed_heal(struct gtdp_bed *bed, u32 flags)
{
	gtdp_build_ok(bed->fd, GPA, SIZE, bed->build_flags | flags, 0);
	gtdp_bed_assert_healed(bed);
}
