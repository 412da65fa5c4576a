// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test what a pin prevents: migration, merging, copy-on-write, reclaim and the
 * like announce a change to the owner's page tables, and the built mapping keeps
 * what is not changed in the end, without a hole or a fault.  Without pins the
 * same takes memory away, as it always did, and never at the price of guest and
 * owner seeing different memory.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "gtdp_bed.h"
#include "gtdp_keep.h"

#define SIZE	GTDP_BED_SIZE

static bool is_pinned(struct gtdp_bed *bed)
{
	return !(bed->build_flags & KVM_GTDP_BUILD_NOPIN);
}

/* Of the same content everywhere, as KSM likes it. */
static void fill_pages(struct gtdp_bed *bed)
{
	memset(bed->mem, 0x33, SIZE);
}

static void assert_filled(struct gtdp_bed *bed)
{
	u64 i, want;

	memset(&want, 0x33, sizeof(want));
	gtdp_touch(bed->vcpu, GTDP_TEST_GPA, SIZE);
	for (i = 0; i < SIZE; i += PAGE_SIZE)
		TEST_ASSERT(*(u64 *)(bed->mem + i) == want + 1,
			    "0x%lx: 0x%lx", i, *(u64 *)(bed->mem + i));
}

/*
 * After something that a pin prevents: kept if pinned, and otherwise lost or not,
 * but the right memory in any case.
 */
static void check_kept(struct gtdp_bed *bed, bool announced, bool must_lose)
{
	struct kvm_gtdp_stats now = gtdp_stats(bed->fd);

	if (is_pinned(bed)) {
		if (announced)
			TEST_ASSERT(now.kept_bytes > bed->before.kept_bytes,
				    "nothing was announced: is this a test?");
		assert_filled(bed);
		gtdp_bed_assert_kept(bed);
	} else {
		if (must_lose)
			gtdp_bed_assert_some_lost(bed);
		assert_filled(bed);
		gtdp_bed_coherent(bed, 0, SIZE);
		gtdp_bed_heal(bed, 0);
	}
	gtdp_bed_mark(bed);
}

/*
 * A child is a copy of the owner: it gets copies of pinned pages at once, and
 * shares the others until somebody writes to them.
 */
static const char *check_fork(struct gtdp_bed *bed)
{
	int status, go[2];
	u64 i, want;
	pid_t pid;
	char c;

	fill_pages(bed);
	memset(&want, 0x33, sizeof(want));
	TEST_ASSERT(!pipe(go), "pipe() failed, errno: %i", errno);
	pid = fork();
	TEST_ASSERT(pid >= 0, "fork() failed, errno: %i", errno);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (read(go[0], &c, 1) != 1)
			_exit(2);
		/* What the parent and its guest did since is not for us. */
		for (i = 0; i < SIZE && !bed->shared; i += PAGE_SIZE)
			if (*(u64 *)(bed->mem + i) != want)
				_exit(3);
		for (i = 0; i < SIZE && !bed->shared; i += PAGE_SIZE)
			*(u64 *)(bed->mem + i) = 0;
		_exit(0);
	}

	check_kept(bed, !bed->shared, !bed->shared);
	gtdp_bed_coherent(bed, 0, SIZE);
	TEST_ASSERT(write(go[1], "", 1) == 1, "the child has gone");
	TEST_ASSERT(waitpid(pid, &status, 0) == pid && !status,
		    "the child sees the parent's writes, status 0x%x", status);
	gtdp_bed_assert_healed(bed);

	/* Now that nobody shares anything: as it was. */
	gtdp_bed_mark(bed);
	gtdp_bed_assert_kept(bed);
	close(go[0]);
	close(go[1]);
	return NULL;
}

static const char *check_ksm(struct gtdp_bed *bed)
{
	const char *why;

	fill_pages(bed);
	TEST_ASSERT(!madvise(bed->mem, SIZE, MADV_MERGEABLE),
		    "madvise() failed, errno: %i", errno);
	why = gtdp_run_ksm();
	if (!why)
		check_kept(bed, bed->kind == GTDP_MEM_ANON, true);
	madvise(bed->mem, SIZE, MADV_UNMERGEABLE);
	return why;
}

static const char *check_collapse(struct gtdp_bed *bed)
{
	int ret;

	fill_pages(bed);
	/* The case is about pages of 4K that could be one of 2M. */
	madvise(bed->mem, SIZE, MADV_HUGEPAGE);
	ret = madvise(bed->mem, SIZE, MADV_COLLAPSE);
	if (is_pinned(bed)) {
		TEST_ASSERT(ret, "pinned pages were collapsed");
		check_kept(bed, false, false);
		return NULL;
	}
	if (ret)
		return "no MADV_COLLAPSE here";
	check_kept(bed, false, true);
	TEST_ASSERT_EQ(gtdp_stats(bed->fd).leaves[PG_LEVEL_2M],
		       bed->before.leaves[PG_LEVEL_2M]);
	return NULL;
}

static const char *check_khugepaged(struct gtdp_bed *bed)
{
	const char *why;

	fill_pages(bed);
	madvise(bed->mem, SIZE, MADV_HUGEPAGE);
	why = gtdp_run_khugepaged();
	if (!why)
		check_kept(bed, false, false);
	return why;
}

static const char *check_soft_offline(struct gtdp_bed *bed)
{
	int ret;

	fill_pages(bed);
	ret = madvise(bed->mem + SZ_4M, PAGE_SIZE, MADV_SOFT_OFFLINE);
	if (ret && errno == EINVAL)
		return "no memory failure in this kernel";
	if (is_pinned(bed)) {
		TEST_ASSERT(ret, "a pinned page was taken offline");
		check_kept(bed, false, false);
	} else {
		TEST_ASSERT(!ret, "madvise() failed, errno: %i", errno);
		check_kept(bed, false, true);
	}
	return NULL;
}

static const char *check_pageout(struct gtdp_bed *bed)
{
	if (gtdp_swap_free() < 4 * SIZE)
		return "needs 64M of swap";

	fill_pages(bed);
	TEST_ASSERT(!madvise(bed->mem, SIZE, MADV_PAGEOUT),
		    "madvise() failed, errno: %i", errno);
	check_kept(bed, bed->shared, true);
	return NULL;
}

static const char *check_reclaim(struct gtdp_bed *bed)
{
	if (gtdp_swap_free() < 4 * SIZE)
		return "needs 64M of swap";

	fill_pages(bed);
	gtdp_cgroup_reclaim(SIZE);
	check_kept(bed, false, false);
	return NULL;
}

static const char *check_compaction(struct gtdp_bed *bed)
{
	const char *why;

	fill_pages(bed);
	why = gtdp_run_compaction();
	if (!why)
		check_kept(bed, false, false);
	return why;
}

static const char *both(u32 kinds, const char *(*fn)(struct gtdp_bed *bed))
{
	const char *why = gtdp_bed_each(kinds, 0, fn);

	return why ?: gtdp_bed_each(kinds, KVM_GTDP_BUILD_NOPIN, fn);
}

static const char *test_fork(void)
{
	return both(GTDP_MEM_ANY, check_fork);
}

static const char *test_ksm(void)
{
	return both(GTDP_MEM_ANY_ANON, check_ksm);
}

static const char *test_collapse(void)
{
	return both(BIT(GTDP_MEM_ANON), check_collapse);
}

static const char *test_khugepaged(void)
{
	return both(BIT(GTDP_MEM_ANON) | BIT(GTDP_MEM_MEMFD),
		    check_khugepaged);
}

static const char *test_soft_offline(void)
{
	return both(BIT(GTDP_MEM_ANON) | BIT(GTDP_MEM_MEMFD) |
		    BIT(GTDP_MEM_HUGETLB_MEMFD), check_soft_offline);
}

static const char *test_pageout(void)
{
	return both(GTDP_MEM_ANY_ANON | GTDP_MEM_ANY_MEMFD, check_pageout);
}

static const char *test_reclaim(void)
{
	const char *why = gtdp_cgroup_enter();

	if (why)
		return why;
	why = both(GTDP_MEM_ANY_ANON | GTDP_MEM_ANY_MEMFD, check_reclaim);
	gtdp_cgroup_leave();
	return why;
}

static const char *test_compaction(void)
{
	return both(BIT(GTDP_MEM_ANON) | BIT(GTDP_MEM_MEMFD) |
		    BIT(GTDP_MEM_HUGETLB_MEMFD), check_compaction);
}

static const struct gtdp_case cases[] = {
	{ "fork", test_fork },
	{ "ksm", test_ksm },
	{ "collapse", test_collapse },
	{ "khugepaged", test_khugepaged },
	{ "soft_offline", test_soft_offline },
	{ "pageout", test_pageout },
	{ "reclaim", test_reclaim },
	{ "compaction", test_compaction },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
