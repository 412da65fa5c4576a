// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test that no dirty page is ever missed: several vCPUs write to random pages while
 * their mapping is built, split, collapsed and let go, other slots come and go, and
 * logging is switched on and off.  Somebody copies what the log says; when the vCPUs
 * stop, copy and memory must be the same.
 *
 * GTDP_SECONDS says how long (default 24, on one CPU 8, shared by all cases), GTDP_SEED with what
 * seed.
 */
#include "gtdp_dirty.h"

#define OTHER_GPA	(DIRTY_GPA + SZ_1G)
#define OTHER_SLOT	(DIRTY_SLOT + 1)
#define OTHER_SLOTS	2
#define OTHER_SIZE	SZ_4M

static u32 seed;
static int nr_cases;

/* What goes on meanwhile. */
struct trouble {
	struct dirty_vm *d;
	int fd;
	bool stop;
	u64 changes;
	u64 splits;
	u64 collapses;
	struct guest_random_state rng;
	pthread_t thread;
};

static void change_range(struct trouble *t)
{
	static const unsigned long cmds[] = {
		KVM_GTDP_BUILD, KVM_GTDP_BUILD, KVM_GTDP_SPLIT, KVM_GTDP_COLLAPSE, KVM_GTDP_RELEASE,
	};
	unsigned long cmd = cmds[gtdp_below(&t->rng, ARRAY_SIZE(cmds))];
	u64 unit = gtdp_below(&t->rng, 4) ? SZ_2M : PAGE_SIZE;
	u64 first = gtdp_below(&t->rng, DIRTY_SIZE / unit);
	struct kvm_gtdp_range range = {
		.gpa = DIRTY_GPA + first * unit,
		.size = (1 + gtdp_below(&t->rng, DIRTY_SIZE / unit - first)) * unit,
	};

	if (cmd == KVM_GTDP_BUILD) {
		range.flags = gtdp_below(&t->rng, 4);
		range.max_level = gtdp_below(&t->rng, 3);
	}
	/* EFAULT: the owner has just write-protected it. */
	if (ioctl(t->fd, cmd, &range))
		TEST_ASSERT(errno == EAGAIN || errno == EFAULT, "0x%lx failed, errno: %i (%s)", cmd,
			    errno, strerror(errno));
}

/* Slots that are none of the log's business, with a log of their own now and then. */
static void change_other_slot(struct trouble *t, void *mem)
{
	int i = gtdp_below(&t->rng, OTHER_SLOTS);
	u64 gpa = OTHER_GPA + i * SZ_64M + gtdp_below(&t->rng, 2) * SZ_1G;
	struct kvm_userspace_memory_region region = {
		.slot = OTHER_SLOT + i,
		.flags = gtdp_below(&t->rng, 2) ? KVM_MEM_LOG_DIRTY_PAGES : 0,
		.guest_phys_addr = gpa,
		.memory_size = gtdp_below(&t->rng, 3) ? OTHER_SIZE : 0,
		.userspace_addr = (uintptr_t)mem + i * OTHER_SIZE,
	};
	u64 size = OTHER_SIZE;
	int ret;

	/* EINVAL: there is none that could be deleted. */
	ret = ioctl(t->d->vm->fd, KVM_SET_USER_MEMORY_REGION, &region);
	TEST_ASSERT(!ret || errno == EINVAL || errno == ENOENT, "a slot failed, errno: %i", errno);
	ret = __gtdp_build(t->fd, &gpa, &size, 0, 0);
	TEST_ASSERT(!ret || ret == -ENOENT || ret == -EAGAIN, "BUILD failed: %i", ret);
}

/* The same memory, at another place or write-protected for a moment. */
static void change_mapping(struct trouble *t)
{
	u64 first = gtdp_below(&t->rng, DIRTY_PAGES);
	u64 size = (1 + gtdp_below(&t->rng, min_t(u64, 64, DIRTY_PAGES - first))) * PAGE_SIZE;
	void *mem = t->d->mem + first * PAGE_SIZE;

	if (mprotect(mem, size, PROT_READ))
		return;		/* a part of a huge page */
	usleep(gtdp_below(&t->rng, 500));
	TEST_ASSERT(!mprotect(mem, size, PROT_READ | PROT_WRITE), "mprotect() failed, errno: %i",
		    errno);
}

static void close_handle(struct trouble *t)
{
	struct kvm_gtdp_stats stats = gtdp_stats(t->fd);

	t->splits += stats.split_leaves;
	t->collapses += stats.collapsed_leaves;
	close(t->fd);
}

static void *make_trouble(void *arg)
{
	struct trouble *t = arg;
	void *other;
	int i;

	other = mmap(NULL, OTHER_SLOTS * OTHER_SIZE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TEST_ASSERT(other != MAP_FAILED, "mmap() failed, errno: %i", errno);

	while (!READ_ONCE(t->stop)) {
		i = gtdp_below(&t->rng, 100);
		if (i < 60) {
			change_range(t);
		} else if (i < 85) {
			change_other_slot(t, other);
		} else if (i < 97) {
			change_mapping(t);
		} else {
			close_handle(t);
			t->fd = gtdp_attach(t->d->vm, i & 1);
		}
		t->changes++;
		usleep(gtdp_below(&t->rng, 2000));
	}
	munmap(other, OTHER_SLOTS * OTHER_SIZE);
	return NULL;
}

/* Switch on, copy by the log in some rounds, switch off. */
static void run_epoch(struct dirty_vm *d)
{
	int i, rounds = 2 + gtdp_below(&d->rng, 12);

	dirty_enable(d);
	for (i = 0; i < rounds; i++) {
		alarm(GTDP_CASE_SECONDS);
		usleep(gtdp_below(&d->rng, 15000));
		if (gtdp_below(&d->rng, 3))
			dirty_harvest(d, false);
		else
			dirty_check(d);
	}
	dirty_check(d);
	dirty_disable(d);
	usleep(gtdp_below(&d->rng, 5000));
}

static void check_mode(enum dirty_mode mode, enum vm_mem_backing_src_type src)
{
	u64 end = gtdp_msecs() + gtdp_seconds(24) * 1000ull / nr_cases;
	struct trouble t = { .rng = gtdp_rng(seed, 1) };
	int epochs = 0;

	t.d = dirty_vm_create(mode, src, seed);
	t.fd = gtdp_attach(t.d->vm, 0);
	gtdp_build_ok(t.fd, DIRTY_GPA, DIRTY_SIZE, 0, 0);
	dirty_vm_start(t.d);
	pthread_create(&t.thread, NULL, make_trouble, &t);

	do {
		run_epoch(t.d);
		epochs++;
	} while (gtdp_msecs() < end);

	WRITE_ONCE(t.stop, true);
	pthread_join(t.thread, NULL);
	close_handle(&t);
	ksft_print_msg("%d times on and off, %lu writes, %lu pages copied, %lu times compared\n",
		       epochs, dirty_writes(t.d), t.d->copied, t.d->compared);
	ksft_print_msg("%lu changes, %lu leaves split, %lu collapsed\n", t.changes, t.splits,
		       t.collapses);
	TEST_ASSERT(dirty_writes(t.d) > 1000 && t.d->copied > 100 && t.changes > 10,
		    "too little has happened");
	dirty_vm_free(t.d);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
}

static const char *check_huge(enum dirty_mode mode)
{
	if (gtdp_free_hugepages(SZ_2M) < DIRTY_SIZE / SZ_2M)
		return "needs 8 free huge pages of 2M";
	check_mode(mode, VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB);
	return NULL;
}

static const char *test_bitmap(void)
{
	return check_huge(DIRTY_BITMAP);
}

static const char *test_manual(void)
{
	return check_huge(DIRTY_MANUAL);
}

static const char *test_initially_set(void)
{
	return check_huge(DIRTY_INITIALLY_SET);
}

static const char *test_ring(void)
{
	if (!kvm_has_cap(KVM_CAP_DIRTY_LOG_RING) && !kvm_has_cap(KVM_CAP_DIRTY_LOG_RING_ACQ_REL))
		return "this host has no dirty ring";
	return check_huge(DIRTY_RING);
}

static const char *test_bitmap_4k(void)
{
	check_mode(DIRTY_BITMAP, VM_MEM_SRC_SHMEM);
	return NULL;
}

static const char *test_manual_thp(void)
{
	check_mode(DIRTY_INITIALLY_SET, VM_MEM_SRC_ANONYMOUS_THP);
	return NULL;
}

static const char *test_ring_thp(void)
{
	if (!kvm_has_cap(KVM_CAP_DIRTY_LOG_RING) && !kvm_has_cap(KVM_CAP_DIRTY_LOG_RING_ACQ_REL))
		return "this host has no dirty ring";
	check_mode(DIRTY_RING, VM_MEM_SRC_ANONYMOUS_THP);
	return NULL;
}

static const struct gtdp_case cases[] = {
	{ "bitmap", test_bitmap },
	{ "manual", test_manual },
	{ "initially_set", test_initially_set },
	{ "ring", test_ring },
	{ "bitmap_4k", test_bitmap_4k },
	{ "initially_set_thp", test_manual_thp },
	{ "ring_thp", test_ring_thp },
};

int main(int argc, char *argv[])
{
	nr_cases = ARRAY_SIZE(cases);
	seed = gtdp_seed();
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
