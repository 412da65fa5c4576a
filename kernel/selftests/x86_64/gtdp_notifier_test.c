// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test that what the owner takes away is gone for the guest at once, pinned or
 * not: counted, told as an event, without its pins, and healed by a build as
 * soon as there is memory again.
 */
#include <linux/falloc.h>
#include <linux/mman.h>
#include <signal.h>

#include "gtdp_bed.h"

#define GPA	((u64)GTDP_TEST_GPA)
#define SIZE	GTDP_BED_SIZE

/* What the cases take away: whole large leaves, with others around them. */
#define OFF	SZ_4M
#define LEN	SZ_4M

static void assert_words(struct gtdp_bed *bed, u64 off, u64 size, u64 want)
{
	u64 i;

	for (i = off; i < off + size; i += PAGE_SIZE)
		TEST_ASSERT(*(u64 *)(bed->mem + i) == want,
			    "0x%lx: %lu, expected %lu", i,
			    *(u64 *)(bed->mem + i), want);
}

static void fill(struct gtdp_bed *bed, u64 off, u64 size, u64 value)
{
	u64 i;

	for (i = off; i < off + size; i += PAGE_SIZE)
		*(u64 *)(bed->mem + i) = value;
}

/* The guest writes to memory that it must not have: KVM gives up on it. */
static void assert_no_access(struct gtdp_bed *bed, u64 off)
{
	int ret;

	gtdp_set_touch(bed->vcpu, GPA + off, PAGE_SIZE);
	ret = __vcpu_run(bed->vcpu);
	TEST_ASSERT(ret == -1 && errno == EFAULT,
		    "guest wrote to what its owner may not: %i, errno: %i, %s",
		    ret, errno, exit_reason_str(bed->vcpu->run->exit_reason));
}

/* It starts where it was stopped, so it has to be let through once. */
static void resume_access(struct gtdp_bed *bed)
{
	vcpu_run(bed->vcpu);
	TEST_ASSERT_KVM_EXIT_REASON(bed->vcpu, KVM_EXIT_IO);
}

static const char *dontneed(struct gtdp_bed *bed)
{
	fill(bed, 0, SIZE, 100);
	TEST_ASSERT(!madvise(bed->mem + OFF, LEN, MADV_DONTNEED),
		    "madvise() failed, errno: %i", errno);
	gtdp_bed_assert_lost(bed, OFF, LEN);

	/* The rest of the guest has not noticed. */
	gtdp_assert_free_touch(bed->fd, bed->vcpu, GPA, OFF);
	gtdp_assert_free_touch(bed->fd, bed->vcpu, GPA + OFF + LEN,
			       SIZE - OFF - LEN);

	/* The file still has its pages; nobody makes others. */
	gtdp_build_ok(bed->fd, GPA, SIZE,
		      bed->build_flags | KVM_GTDP_BUILD_PRESENT, 0);
	if (bed->shared) {
		gtdp_bed_assert_healed(bed);
		fill(bed, 0, SIZE, 101);
		TEST_ASSERT(!madvise(bed->mem + OFF, LEN, MADV_DONTNEED),
			    "madvise() failed, errno: %i", errno);
	} else {
		TEST_ASSERT_EQ(gtdp_stats(bed->fd).hole_bytes, LEN);
	}

	/* The guest sees what the owner would see: zeroes, or the file's page. */
	gtdp_touch(bed->vcpu, GPA + OFF, LEN);
	TEST_ASSERT(gtdp_stats(bed->fd).faults > bed->before.faults,
		    "the guest's faults are not counted");
	assert_words(bed, OFF, LEN, bed->shared ? 102 : 1);
	assert_words(bed, 0, OFF, 101);
	assert_words(bed, OFF + LEN, SIZE - OFF - LEN, 101);
	TEST_ASSERT_EQ(gtdp_stats(bed->fd).hole_bytes, 0);
	gtdp_bed_heal(bed, KVM_GTDP_BUILD_PRESENT);
	return NULL;
}

/* Less than a huge page, in the midst of one. */
static const char *dontneed_part(struct gtdp_bed *bed)
{
	const u64 off = SZ_4M + SZ_64K, len = SZ_64K;
	u64 i;

	fill(bed, 0, SIZE, 100);
	TEST_ASSERT(!madvise(bed->mem + off, len, MADV_DONTNEED),
		    "madvise() failed, errno: %i", errno);
	gtdp_bed_assert_lost(bed, off, len);
	gtdp_touch(bed->vcpu, GPA, SIZE);
	for (i = 0; i < SIZE; i += SZ_64K)
		assert_words(bed, i, SZ_64K,
			     i == off && !bed->shared ? 1 : 101);
	gtdp_bed_heal(bed, KVM_GTDP_BUILD_PRESENT);
	return NULL;
}

static const char *punch(struct gtdp_bed *bed)
{
	struct kvm_gtdp_stats stats;

	fill(bed, 0, SIZE, 100);
	TEST_ASSERT(!fallocate(bed->memfd,
			       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       OFF, LEN), "fallocate() failed: %i", errno);
	gtdp_bed_assert_lost(bed, OFF, LEN);

	/* There is nothing that PRESENT could map, and it makes nothing. */
	gtdp_build_ok(bed->fd, GPA, SIZE,
		      bed->build_flags | KVM_GTDP_BUILD_PRESENT, 0);
	stats = gtdp_stats(bed->fd);
	TEST_ASSERT_EQ(stats.hole_bytes, LEN);
	TEST_ASSERT_EQ(stats.pinned_bytes, gtdp_own_pin());

	gtdp_touch(bed->vcpu, GPA, OFF + LEN);
	assert_words(bed, 0, OFF, 101);
	assert_words(bed, OFF, LEN, 1);
	gtdp_bed_heal(bed, KVM_GTDP_BUILD_PRESENT);

	/* Again, and a plain build makes the memory, too. */
	gtdp_bed_mark(bed);
	fallocate(bed->memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, OFF,
		  LEN);
	gtdp_bed_assert_lost(bed, OFF, LEN);
	gtdp_bed_heal(bed, 0);
	return NULL;
}

/* A file that shrinks takes from everybody who has mapped it. */
static const char *truncated(struct gtdp_bed *bed)
{
	TEST_ASSERT(!ftruncate(bed->memfd, SIZE - LEN), "ftruncate() failed");
	gtdp_bed_assert_lost(bed, SIZE - LEN, LEN);
	TEST_ASSERT_EQ(gtdp_build(bed->fd, GPA, SIZE, bed->build_flags, 0),
		       -EFAULT);
	gtdp_assert_free_touch(bed->fd, bed->vcpu, GPA, SIZE - LEN);
	TEST_ASSERT(!ftruncate(bed->memfd, SIZE), "ftruncate() failed");
	gtdp_bed_heal(bed, 0);
	return NULL;
}

static const char *unmap(struct gtdp_bed *bed)
{
	int flags = MAP_FIXED | (bed->shared ? MAP_SHARED :
					       MAP_PRIVATE | MAP_ANONYMOUS);

	fill(bed, 0, SIZE, 100);
	TEST_ASSERT(!munmap(bed->mem + OFF, LEN), "munmap() failed: %i", errno);
	gtdp_bed_assert_lost(bed, OFF, LEN);
	TEST_ASSERT_EQ(gtdp_build(bed->fd, GPA, SIZE, bed->build_flags, 0),
		       -EFAULT);
	TEST_ASSERT_EQ(gtdp_stats(bed->fd).hole_bytes, LEN);
	assert_no_access(bed, OFF);

	/* Other memory in its place is the guest's from now on. */
	if (bed->kind == GTDP_MEM_HUGETLB)
		flags |= MAP_HUGETLB | MAP_HUGE_2MB;
	TEST_ASSERT(mmap(bed->mem + OFF, LEN, PROT_READ | PROT_WRITE, flags,
			 bed->memfd, OFF) != MAP_FAILED,
		    "mmap() failed, errno: %i", errno);
	resume_access(bed);
	fill(bed, OFF, LEN, 7);
	gtdp_touch(bed->vcpu, GPA, SIZE);
	assert_words(bed, OFF, LEN, 8);
	assert_words(bed, 0, OFF, 101);
	gtdp_bed_heal(bed, KVM_GTDP_BUILD_PRESENT);
	return NULL;
}

/* The owner moves its memory away: the guest must not keep it. */
static const char *moved(struct gtdp_bed *bed)
{
	u8 *other;

	fill(bed, 0, SIZE, 100);
	other = mremap(bed->mem + OFF, LEN, LEN, MREMAP_MAYMOVE |
		       MREMAP_DONTUNMAP, NULL);
	if (other == MAP_FAILED)
		return "no MREMAP_DONTUNMAP of this";
	gtdp_bed_assert_lost(bed, OFF, LEN);
	gtdp_touch(bed->vcpu, GPA, SIZE);
	assert_words(bed, OFF, LEN, bed->shared ? 101 : 1);
	TEST_ASSERT_EQ(*(u64 *)other, bed->shared ? 101 : 100);
	munmap(other, LEN);
	gtdp_bed_heal(bed, KVM_GTDP_BUILD_PRESENT);
	return NULL;
}

static void check_protect(struct gtdp_bed *bed, int prot)
{
	fill(bed, 0, SIZE, 100);
	TEST_ASSERT(!mprotect(bed->mem + OFF, LEN, prot),
		    "mprotect() failed: %i", errno);
	gtdp_bed_assert_lost(bed, OFF, LEN);
	TEST_ASSERT_EQ(gtdp_build(bed->fd, GPA + OFF, LEN, bed->build_flags, 0),
		       -EFAULT);
	assert_no_access(bed, OFF);

	TEST_ASSERT(!mprotect(bed->mem + OFF, LEN, PROT_READ | PROT_WRITE),
		    "mprotect() failed: %i", errno);
	resume_access(bed);
	assert_words(bed, OFF, PAGE_SIZE, 101);
	assert_words(bed, OFF + PAGE_SIZE, LEN - PAGE_SIZE, 100);
	/* Private hugetlb pages become writable with a fault only. */
	gtdp_bed_heal(bed, bed->kind == GTDP_MEM_HUGETLB ? 0 :
					KVM_GTDP_BUILD_PRESENT);
	gtdp_bed_mark(bed);
}

static const char *protect(struct gtdp_bed *bed)
{
	check_protect(bed, PROT_READ);
	check_protect(bed, PROT_NONE);
	return NULL;
}

static int sigbus_seen;

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	sigbus_seen++;
}

static const char *poison(struct gtdp_bed *bed)
{
	struct sigaction act = {
		.sa_sigaction = on_sigbus,
		.sa_flags = SA_SIGINFO,
	};
	int flags = MAP_FIXED | (bed->shared ? MAP_SHARED :
					       MAP_PRIVATE | MAP_ANONYMOUS);
	u64 len = bed->kind == GTDP_MEM_HUGETLB ||
		  bed->kind == GTDP_MEM_HUGETLB_MEMFD ? SZ_2M : PAGE_SIZE;
	bool huge = bed->leaf == SZ_2M && len == PAGE_SIZE;
	u64 lost;
	int ret;

	sigaction(SIGBUS, &act, NULL);
	fill(bed, 0, SIZE, 100);
	ret = madvise(bed->mem + OFF, PAGE_SIZE, MADV_HWPOISON);
	if (ret && errno == EINVAL)
		return "no memory failure in this kernel";
	/* A THP that is pinned cannot be split: it stays, and the owner is told. */
	if (ret && huge && !(bed->build_flags & KVM_GTDP_BUILD_NOPIN)) {
		TEST_ASSERT(sigbus_seen, "no SIGBUS");
		len = 0;
	} else {
		TEST_ASSERT(!ret, "madvise() failed, errno: %i", errno);
		lost = gtdp_bed_assert_lost(bed, OFF, len);
		TEST_ASSERT(lost, "the guest still has the page");
	}
	gtdp_assert_free_touch(bed->fd, bed->vcpu, GPA, OFF);
	gtdp_assert_free_touch(bed->fd, bed->vcpu, GPA + OFF + SZ_2M,
			       SIZE - OFF - SZ_2M);
	signal(SIGBUS, SIG_DFL);
	if (!len)
		return NULL;

	/* What a VMM does: other memory in the place of the bad one. */
	if (bed->kind == GTDP_MEM_HUGETLB)
		flags |= MAP_HUGETLB | MAP_HUGE_2MB;
	if (bed->shared)
		TEST_ASSERT(!fallocate(bed->memfd, FALLOC_FL_PUNCH_HOLE |
				       FALLOC_FL_KEEP_SIZE, OFF, len),
			    "fallocate() failed, errno: %i", errno);
	TEST_ASSERT(mmap(bed->mem + OFF, len, PROT_READ | PROT_WRITE, flags,
			 bed->memfd, OFF) != MAP_FAILED,
		    "mmap() failed, errno: %i", errno);
	/* Of a THP, the owner may have lost sight of all: let it look. */
	fill(bed, 0, SIZE, 7);
	gtdp_touch(bed->vcpu, GPA + OFF, len);
	assert_words(bed, OFF, len, 8);
	gtdp_bed_heal(bed, KVM_GTDP_BUILD_PRESENT);
	return NULL;
}

static const char *both(u32 kinds, const char *(*fn)(struct gtdp_bed *bed))
{
	const char *why = gtdp_bed_each(kinds, 0, fn);

	return why ?: gtdp_bed_each(kinds, KVM_GTDP_BUILD_NOPIN, fn);
}

static const char *test_dontneed(void)
{
	return both(GTDP_MEM_ANY, dontneed);
}

static const char *test_dontneed_part(void)
{
	return both(GTDP_MEM_ANY & ~GTDP_MEM_ANY_HUGETLB, dontneed_part);
}

static const char *test_punch(void)
{
	return both(GTDP_MEM_ANY_MEMFD | BIT(GTDP_MEM_HUGETLB_MEMFD), punch);
}

static const char *test_truncate(void)
{
	return both(GTDP_MEM_ANY_MEMFD | BIT(GTDP_MEM_HUGETLB_MEMFD),
		    truncated);
}

static const char *test_munmap(void)
{
	return both(GTDP_MEM_ANY, unmap);
}

static const char *test_mremap(void)
{
	return both(GTDP_MEM_ANY, moved);
}

static const char *test_mprotect(void)
{
	return both(GTDP_MEM_ANY, protect);
}

static const char *test_hwpoison(void)
{
	return both(GTDP_MEM_ANY, poison);
}

static const struct gtdp_case cases[] = {
	{ "dontneed", test_dontneed },
	{ "dontneed_part", test_dontneed_part },
	{ "punch", test_punch },
	{ "truncate", test_truncate },
	{ "munmap", test_munmap },
	{ "mremap", test_mremap },
	{ "mprotect", test_mprotect },
	{ "hwpoison", test_hwpoison },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
