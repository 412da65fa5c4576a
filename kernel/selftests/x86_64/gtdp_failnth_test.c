// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test what becomes of each call when an allocation fails: the 1st, the 2nd and
 * so on, until the call gets through without asking for one more.  A call that
 * fails says ENOMEM, leaves statistics and pins that agree with each other, and
 * gets through when it is repeated; nothing stays pinned once the handle goes.
 *
 * Needs CONFIG_FAILSLAB, CONFIG_FAIL_PAGE_ALLOC and debugfs.
 */
#include <sys/mman.h>

#include "gtdp.h"

#define GPA		GTDP_TEST_GPA
#define SLOT		GTDP_TEST_SLOT
#define SIZE		SZ_4M

/* Not the beginning: the first table and the first huge page are partial. */
#define RANGE_GPA	(GPA + SZ_4K)
#define RANGE_SIZE	(SIZE - SZ_4K)

/* More than any call allocates: it would go on for ever. */
#define MAX_NTH		2000

static int nth_fd;

/* One VM, one slot, and a handle for each round. */
struct ctx {
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	char *mem;
	/* Few: each small page that is missing is an allocation. */
	size_t unpopulated;
	int dev_fd;
	int fd;
};

/* The call allocates something, so the sweep must have failed some. */
#define ALLOCATES	BIT(0)
/* Some of the memory is not there, and is faulted in on the way. */
#define UNPOPULATED	BIT(1)
/* Of no interest without leaves of 2M. */
#define LARGE_ONLY	BIT(2)
#define AUTO		BIT(3)

struct sweep {
	const char *name;
	/* Brings about what "op" starts from.  Its allocations do not fail. */
	void (*prepare)(struct ctx *c);
	/* Returns 0 or a negative errno. */
	int (*op)(struct ctx *c);
	/* After the call, whether it failed or not. */
	void (*check)(struct ctx *c, int ret);
	unsigned int how;
};

static void nth_write(unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	TEST_ASSERT(pwrite(nth_fd, text, len, 0) == len,
		    "fail-nth cannot be written, errno: %i", errno);
}

/* Returns whether the allocation that was to fail was asked for. */
static bool nth_disarm(void)
{
	char text[16] = {};

	TEST_ASSERT(pread(nth_fd, text, sizeof(text) - 1, 0) > 0,
		    "fail-nth cannot be read, errno: %i", errno);
	nth_write(0);
	return !atoi(text);
}

static int set_slot(struct ctx *c, u64 size, u32 flags)
{
	struct kvm_userspace_memory_region region = {
		.slot = SLOT,
		.flags = flags,
		.guest_phys_addr = GPA,
		.memory_size = size,
		.userspace_addr = (uintptr_t)c->mem,
	};

	return __vm_ioctl(c->vm, KVM_SET_USER_MEMORY_REGION, &region) ? -errno : 0;
}

static void set_slot_ok(struct ctx *c, u64 size, u32 flags)
{
	int ret = set_slot(c, size, flags);

	TEST_ASSERT(!ret, "the slot cannot be set to 0x%lx bytes: %i", size, ret);
}

static int range_op(struct ctx *c, unsigned long cmd, u64 gpa, u64 size, u32 max_level)
{
	struct kvm_gtdp_range range = {
		.gpa = gpa,
		.size = size,
		.max_level = max_level,
	};

	return ioctl(c->fd, cmd, &range) ? -errno : 0;
}

static void build_all(struct ctx *c)
{
	gtdp_build_ok(c->fd, RANGE_GPA, RANGE_SIZE, 0, 0);
}

static void build_small(struct ctx *c)
{
	gtdp_build_ok(c->fd, RANGE_GPA, RANGE_SIZE, 0, PG_LEVEL_4K);
}

static int op_attach(struct ctx *c)
{
	int fd = __gtdp_attach(c->dev_fd, c->vm->fd, 0);

	if (fd < 0)
		return -errno;
	c->fd = fd;
	return 0;
}

static int op_build(struct ctx *c)
{
	return range_op(c, KVM_GTDP_BUILD, RANGE_GPA, RANGE_SIZE, 0);
}

static int op_release(struct ctx *c)
{
	return range_op(c, KVM_GTDP_RELEASE, GPA + SZ_1M, SZ_2M, 0);
}

static int op_split(struct ctx *c)
{
	return range_op(c, KVM_GTDP_SPLIT, RANGE_GPA, RANGE_SIZE, 0);
}

static int op_collapse(struct ctx *c)
{
	return range_op(c, KVM_GTDP_COLLAPSE, RANGE_GPA, RANGE_SIZE, 0);
}

static int op_stats(struct ctx *c)
{
	struct kvm_gtdp_stats stats;

	return __kvm_ioctl(c->fd, KVM_GTDP_STATS, &stats) ? -errno : 0;
}

static int op_get_slots(struct ctx *c)
{
	struct kvm_gtdp_slot slots[8];
	struct kvm_gtdp_slots req = {
		.count = ARRAY_SIZE(slots),
		.slots = (uintptr_t)slots,
	};

	return __kvm_ioctl(c->fd, KVM_GTDP_GET_SLOTS, &req) ? -errno : 0;
}

static int op_create_slot(struct ctx *c)
{
	return set_slot(c, SIZE, 0);
}

static int op_delete_slot(struct ctx *c)
{
	return set_slot(c, 0, 0);
}

static int op_log_on(struct ctx *c)
{
	return set_slot(c, SIZE, KVM_MEM_LOG_DIRTY_PAGES);
}

static int op_log_off(struct ctx *c)
{
	return set_slot(c, SIZE, 0);
}

static int op_discard(struct ctx *c)
{
	return madvise(c->mem + SZ_2M, SZ_2M, MADV_DONTNEED) ? -errno : 0;
}

static int op_read(struct ctx *c)
{
	struct kvm_gtdp_event events[4];

	return read(c->fd, events, sizeof(events)) < 0 ? -errno : 0;
}

static void build_and_split(struct ctx *c)
{
	build_all(c);
	TEST_ASSERT(!op_split(c), "SPLIT failed, errno: %i", errno);
	TEST_ASSERT_EQ(gtdp_stats(c->fd).leaves[PG_LEVEL_2M], 0);
}

static void build_and_discard(struct ctx *c)
{
	build_all(c);
	TEST_ASSERT(!op_discard(c), "madvise() failed, errno: %i", errno);
	/* An event that is missing must not hang the test. */
	TEST_ASSERT(!fcntl(c->fd, F_SETFL, O_NONBLOCK), "fcntl() failed, errno: %i", errno);
}

static void delete_slot(struct ctx *c)
{
	set_slot_ok(c, 0, 0);
}

static void build_and_log(struct ctx *c)
{
	build_all(c);
	set_slot_ok(c, SIZE, KVM_MEM_LOG_DIRTY_PAGES);
	gtdp_touch(c->vcpu, GPA, SIZE);
}

static void no_handle(struct ctx *c)
{
	close(c->fd);
	c->fd = -1;
}

/* A VM whose handle could not be made has none. */
static void check_attach(struct ctx *c, int ret)
{
	if (ret)
		c->fd = __gtdp_attach(c->dev_fd, c->vm->fd, 0);
	TEST_ASSERT(c->fd >= 0, "no second ATTACH, errno: %i", errno);
}

/* What was left out is built by the next call, and nothing else is missing. */
static void check_build(struct ctx *c, int ret)
{
	struct kvm_gtdp_stats stats;

	build_all(c);
	stats = gtdp_stats(c->fd);
	TEST_ASSERT_EQ(stats.built_bytes, RANGE_SIZE);
	TEST_ASSERT_EQ(stats.hole_bytes, 0);
	TEST_ASSERT(stats.pinned_bytes >= RANGE_SIZE, "0x%llx bytes pinned",
		    stats.pinned_bytes);
	gtdp_assert_free_touch(c->fd, c->vcpu, RANGE_GPA, RANGE_SIZE);
}

static void check_release(struct ctx *c, int ret)
{
	struct kvm_gtdp_stats stats;

	TEST_ASSERT(!gtdp_release(c->fd, GPA + SZ_1M, SZ_2M), "RELEASE fails again");
	stats = gtdp_stats(c->fd);
	TEST_ASSERT_EQ(stats.built_bytes, RANGE_SIZE - SZ_2M);
	TEST_ASSERT(!gtdp_release(c->fd, GPA, SIZE), "RELEASE of all fails");
	TEST_ASSERT_EQ(gtdp_stats(c->fd).built_bytes, 0);
	TEST_ASSERT_EQ(gtdp_stats(c->fd).pinned_bytes, 0);
}

static void check_split(struct ctx *c, int ret)
{
	struct kvm_gtdp_stats stats;

	if (ret)
		TEST_ASSERT(!op_split(c), "SPLIT fails again, errno: %i", errno);
	stats = gtdp_stats(c->fd);
	TEST_ASSERT_EQ(stats.hole_bytes, 0);
	TEST_ASSERT_EQ(stats.leaves[PG_LEVEL_2M], 0);
	gtdp_assert_free_touch(c->fd, c->vcpu, RANGE_GPA, RANGE_SIZE);
}

static void check_collapse(struct ctx *c, int ret)
{
	struct kvm_gtdp_stats stats;

	if (ret)
		TEST_ASSERT(!op_collapse(c), "COLLAPSE fails again, errno: %i", errno);
	stats = gtdp_stats(c->fd);
	TEST_ASSERT_EQ(stats.hole_bytes, 0);
	/* The first 2M do not lie in the range as a whole. */
	TEST_ASSERT_EQ(stats.leaves[PG_LEVEL_2M], 1);
	gtdp_assert_free_touch(c->fd, c->vcpu, RANGE_GPA, RANGE_SIZE);
}

/* What could not be read waits for the next read. */
static void check_read(struct ctx *c, int ret)
{
	if (ret)
		TEST_ASSERT(!op_read(c), "read() fails again, errno: %i", errno);
	check_build(c, 0);
}

/* A slot that is there has been built, or its holes are known. */
static void check_create_slot(struct ctx *c, int ret)
{
	struct kvm_gtdp_stats stats;

	if (ret)
		set_slot_ok(c, SIZE, 0);
	stats = gtdp_stats(c->fd);
	TEST_ASSERT_EQ(stats.auto_builds, 1);
	if (ret || !stats.auto_errors) {
		TEST_ASSERT_EQ(stats.auto_errors, 0);
		TEST_ASSERT_EQ(stats.hole_bytes, 0);
	} else {
		TEST_ASSERT_EQ(stats.auto_last_error, -ENOMEM);
	}
	gtdp_build_ok(c->fd, GPA, SIZE, 0, 0);
	stats = gtdp_stats(c->fd);
	TEST_ASSERT_EQ(stats.built_bytes, SIZE);
	TEST_ASSERT_EQ(stats.hole_bytes, 0);
	gtdp_assert_free_touch(c->fd, c->vcpu, GPA, SIZE);
}

static void check_delete_slot(struct ctx *c, int ret)
{
	if (ret)
		set_slot_ok(c, 0, 0);
	TEST_ASSERT_EQ(gtdp_stats(c->fd).pinned_bytes, 0);
	TEST_ASSERT_EQ(gtdp_stats(c->fd).mapped_bytes, 0);
	set_slot_ok(c, SIZE, 0);
}

/* However much could be split or collapsed: all that is written is logged. */
static void check_log_on(struct ctx *c, int ret)
{
	unsigned long bitmap[SIZE / PAGE_SIZE / BITS_PER_LONG] = {};
	struct kvm_dirty_log log = {
		.slot = SLOT,
		.dirty_bitmap = bitmap,
	};
	int i, nr = 0;

	if (ret)
		set_slot_ok(c, SIZE, KVM_MEM_LOG_DIRTY_PAGES);
	vm_ioctl(c->vm, KVM_GET_DIRTY_LOG, &log);
	gtdp_touch(c->vcpu, GPA, SZ_1M);
	vm_ioctl(c->vm, KVM_GET_DIRTY_LOG, &log);
	for (i = 0; i < ARRAY_SIZE(bitmap); i++)
		nr += __builtin_popcountl(bitmap[i]);
	TEST_ASSERT_EQ(nr, SZ_1M / PAGE_SIZE);
	set_slot_ok(c, SIZE, 0);
	check_build(c, 0);
}

static void check_log_off(struct ctx *c, int ret)
{
	if (ret)
		set_slot_ok(c, SIZE, 0);
	check_build(c, 0);
}

/* An MMU notifier cannot fail: what the owner gave away is not pinned. */
static void check_discard(struct ctx *c, int ret)
{
	struct kvm_gtdp_stats stats = gtdp_stats(c->fd);

	TEST_ASSERT_EQ(ret, 0);
	TEST_ASSERT_EQ(stats.hole_bytes, SZ_2M);
	TEST_ASSERT(stats.pinned_bytes <= SZ_2M, "0x%llx bytes still pinned",
		    stats.pinned_bytes);
	/* Whoever reads learns of the hole, or that something is missing. */
	TEST_ASSERT(!fcntl(c->fd, F_SETFL, O_NONBLOCK), "fcntl() failed, errno: %i", errno);
	TEST_ASSERT(!op_read(c), "no event, errno: %i", errno);
	check_build(c, 0);
}

static void map_memory(struct ctx *c, int kind_flags)
{
	c->mem = mmap(NULL, SIZE + SZ_2M, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	TEST_ASSERT(c->mem != MAP_FAILED, "mmap() failed, errno: %i", errno);
	c->mem = mmap(align_ptr_up(c->mem, SZ_2M), SIZE,
		      PROT_READ | PROT_WRITE,
		      MAP_FIXED | MAP_ANONYMOUS | kind_flags, -1, 0);
	TEST_ASSERT(c->mem != MAP_FAILED, "mmap() failed, errno: %i", errno);
	if (!(kind_flags & MAP_HUGETLB))
		madvise(c->mem, SIZE, MADV_NOHUGEPAGE);
	memset(c->mem, 0, SIZE);
}

/* Returns whether the n-th allocation was asked for, and failed. */
static bool sweep_round(const struct sweep *s, struct ctx *c, unsigned int n)
{
	struct kvm_gtdp_stats stats;
	bool failed;
	int ret;

	/* A round is short, a sweep may be long. */
	alarm(GTDP_CASE_SECONDS);

	/* As if nobody had ever been there: no leaves, no tables. */
	set_slot_ok(c, 0, 0);
	set_slot_ok(c, SIZE, 0);
	if (s->how & UNPOPULATED)
		madvise(c->mem + SZ_2M, c->unpopulated, MADV_DONTNEED);
	c->fd = __gtdp_attach(c->dev_fd, c->vm->fd,
			      s->how & AUTO ? KVM_GTDP_ATTACH_AUTO : 0);
	TEST_ASSERT(c->fd >= 0, "ATTACH failed, errno: %i", errno);
	if (s->prepare)
		s->prepare(c);

	nth_write(n);
	ret = s->op(c);
	failed = nth_disarm();

	TEST_ASSERT(!ret || (failed && ret == -ENOMEM),
		    "%s: %i (%s), with allocation %u%s failing", s->name, ret,
		    strerror(-ret), n, failed ? "" : " not");
	if (s->op == op_attach)
		s->check(c, ret);

	stats = gtdp_stats(c->fd);
	TEST_ASSERT_EQ(stats.pinned_bytes, gtdp_own_pin());
	TEST_ASSERT_EQ(stats.mapped_bytes + stats.hole_bytes, stats.built_bytes);
	if (s->check && s->op != op_attach)
		s->check(c, ret);

	stats = gtdp_stats(c->fd);
	TEST_ASSERT_EQ(stats.pinned_bytes, gtdp_own_pin());
	close(c->fd);
	TEST_ASSERT(!gtdp_own_pin(), "%s: with allocation %u failing, 0x%lx bytes stay pinned",
		    s->name, n, gtdp_own_pin());
	return failed;
}

static void run_sweep(const struct sweep *s, const char *kind, int kind_flags)
{
	struct ctx c = {
		.dev_fd = gtdp_open(),
	};
	unsigned int n = 0;

	c.vm = gtdp_vm_create(&c.vcpu);
	/* With no handle on the VM, a deleted slot would take slot 0 with it. */
	vm_enable_cap(c.vm, KVM_CAP_DISABLE_QUIRKS2, KVM_X86_QUIRK_SLOT_ZAP_ALL);
	map_memory(&c, kind_flags);
	c.unpopulated = kind_flags & MAP_HUGETLB ? SZ_2M : SZ_16K;
	set_slot_ok(&c, SIZE, 0);
	virt_map_level(c.vm, GPA, GPA, SIZE, PG_LEVEL_2M);
	/* The guest's own memory has its leaves, and asks for no more. */
	gtdp_touch(c.vcpu, GPA, SIZE);

	do {
		n++;
		TEST_ASSERT(n < MAX_NTH, "%s: no end after %u allocations", s->name, n);
	} while (sweep_round(s, &c, n));

	ksft_print_msg("%s, %s: %u allocations failed\n", s->name, kind, n - 1);
	TEST_ASSERT(n > 1 || !(s->how & ALLOCATES), "%s: no allocation could be made to fail",
		    s->name);

	set_slot_ok(&c, 0, 0);
	munmap(c.mem, SIZE);
	close(c.dev_fd);
	kvm_vm_free(c.vm);
}

static const char *sweep(const struct sweep *s)
{
	if (!(s->how & LARGE_ONLY)) {
		run_sweep(s, "4K", MAP_SHARED);
		run_sweep(s, "4K private", MAP_PRIVATE);
	}
	if (gtdp_free_hugepages(SZ_2M) < SIZE / SZ_2M)
		return "needs 2 free huge pages of 2M";
	run_sweep(s, "2M", MAP_SHARED | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT));
	return NULL;
}

#define SWEEP(_name, _prepare, _op, _check, _how)			\
static const char *test_##_name(void)					\
{									\
	static const struct sweep s = {					\
		.name = #_name,						\
		.prepare = _prepare,					\
		.op = _op,						\
		.check = _check,					\
		.how = _how,						\
	};								\
									\
	return sweep(&s);						\
}

SWEEP(attach, no_handle, op_attach, check_attach, ALLOCATES)
SWEEP(build, NULL, op_build, check_build, ALLOCATES)
SWEEP(build_faults, NULL, op_build, check_build, ALLOCATES | UNPOPULATED)
SWEEP(build_larger, build_small, op_build, check_build, ALLOCATES)
SWEEP(release, build_all, op_release, check_release, ALLOCATES)
SWEEP(split, build_all, op_split, check_split, ALLOCATES | LARGE_ONLY)
SWEEP(collapse, build_and_split, op_collapse, check_collapse, LARGE_ONLY)
SWEEP(stats, build_all, op_stats, check_build, ALLOCATES)
SWEEP(get_slots, build_all, op_get_slots, check_build, ALLOCATES)
SWEEP(events, build_and_discard, op_read, check_read, 0)
SWEEP(create_slot, delete_slot, op_create_slot, check_create_slot, ALLOCATES | AUTO)
SWEEP(delete_slot, build_all, op_delete_slot, check_delete_slot, ALLOCATES)
SWEEP(log_on, build_all, op_log_on, check_log_on, ALLOCATES)
SWEEP(log_off, build_and_log, op_log_off, check_log_off, ALLOCATES)
SWEEP(discard, build_all, op_discard, check_discard, 0)

static const struct gtdp_case cases[] = {
	{ "attach", test_attach },
	{ "build", test_build },
	{ "build_faults", test_build_faults },
	{ "build_larger", test_build_larger },
	{ "release", test_release },
	{ "split", test_split },
	{ "collapse", test_collapse },
	{ "stats", test_stats },
	{ "get_slots", test_get_slots },
	{ "events", test_events },
	{ "create_slot", test_create_slot },
	{ "delete_slot", test_delete_slot },
	{ "log_on", test_log_on },
	{ "log_off", test_log_off },
	{ "discard", test_discard },
};

static void knob(const char *name, const char *value)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/sys/kernel/debug/%s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	__TEST_REQUIRE(fd >= 0, "%s: %s", path, strerror(errno));
	TEST_ASSERT(write(fd, value, strlen(value)) == strlen(value),
		    "%s cannot be set to %s, errno: %i", path, value, errno);
	close(fd);
}

int main(int argc, char *argv[])
{
	nth_fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	__TEST_REQUIRE(nth_fd >= 0, "/proc/thread-self/fail-nth: %s (no CONFIG_FAULT_INJECTION?)",
		       strerror(errno));

	/* Of any kind, of any size, and without a stack in the log for each. */
	knob("failslab/verbose", "0");
	knob("failslab/ignore-gfp-wait", "N");
	knob("fail_page_alloc/verbose", "0");
	knob("fail_page_alloc/ignore-gfp-wait", "N");
	knob("fail_page_alloc/ignore-gfp-highmem", "N");
	knob("fail_page_alloc/min-order", "0");

	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
