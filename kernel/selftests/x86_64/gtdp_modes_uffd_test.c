// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test builds of memory that arrives piece by piece, as in a post-copy migration:
 * with userfaultfd's missing and minor faults.  A build of what is PRESENT never
 * waits for a page, and once all has arrived and is built the guest does not
 * fault any more.
 */
#include <linux/memfd.h>
#include <linux/mman.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "gtdp.h"

#define GPA	((u64)GTDP_TEST_GPA)
#define SIZE	SZ_16M
#define CHUNK	SZ_2M

struct source {
	const char *name;
	int mode;		/* UFFDIO_REGISTER_MODE_* */
	u64 features;
	bool file;
	bool hugetlb;
};

static const struct source sources[] = {
	{ "anonymous, missing", UFFDIO_REGISTER_MODE_MISSING },
	{ "memfd, missing", UFFDIO_REGISTER_MODE_MISSING,
	  UFFD_FEATURE_MISSING_SHMEM, true },
	{ "hugetlb, missing", UFFDIO_REGISTER_MODE_MISSING,
	  UFFD_FEATURE_MISSING_HUGETLBFS, true, true },
	{ "memfd, minor", UFFDIO_REGISTER_MODE_MINOR,
	  UFFD_FEATURE_MINOR_SHMEM, true },
	{ "hugetlb, minor", UFFDIO_REGISTER_MODE_MINOR,
	  UFFD_FEATURE_MINOR_HUGETLBFS, true, true },
};

/* The destination's memory: guest's view, and the one that is written to. */
struct dest {
	const struct source *src;
	u8 *mem;
	u8 *other;		/* same file (minor), or a plain buffer */
	int memfd;
	int uffd;
	u64 page_size;
	u64 arrived[SIZE / CHUNK];
	pthread_mutex_t lock;
};

static u64 word(u64 off)
{
	return 0x123450000 + off;
}

static const char *dest_open(struct dest *d, const struct source *src)
{
	struct uffdio_api api = { .api = UFFD_API, .features = src->features };
	struct uffdio_register reg = { .mode = src->mode };
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	u64 i;

	*d = (struct dest) {
		.src = src,
		.memfd = -1,
		.page_size = src->hugetlb ? SZ_2M : PAGE_SIZE,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	if (src->hugetlb && gtdp_free_hugepages(SZ_2M) < SIZE / SZ_2M)
		return "needs 8 free huge pages of 2M";
	d->uffd = syscall(__NR_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (d->uffd < 0)
		return "no userfaultfd";
	if (ioctl(d->uffd, UFFDIO_API, &api))
		return "userfaultfd cannot do this";

	if (src->file) {
		d->memfd = memfd_create("gtdp", MFD_CLOEXEC |
					(src->hugetlb ? MFD_HUGETLB |
							MFD_HUGE_2MB : 0));
		TEST_ASSERT(d->memfd >= 0 && !ftruncate(d->memfd, SIZE),
			    "memfd failed, errno: %i", errno);
		flags = MAP_SHARED;
	}
	d->mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, d->memfd, 0);
	TEST_ASSERT(d->mem != MAP_FAILED, "mmap() failed, errno: %i", errno);
	if (src->mode == UFFDIO_REGISTER_MODE_MINOR)
		d->other = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED,
				d->memfd, 0);
	else
		d->other = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TEST_ASSERT(d->other != MAP_FAILED, "mmap() failed, errno: %i", errno);
	reg.range.start = (uintptr_t)d->mem;
	reg.range.len = SIZE;
	TEST_ASSERT(!ioctl(d->uffd, UFFDIO_REGISTER, &reg),
		    "UFFDIO_REGISTER failed, errno: %i", errno);

	/* Only now: a huge page must not reach into memory next to it. */
	for (i = 0; i < SIZE; i += PAGE_SIZE)
		*(u64 *)(d->other + i) = word(i);
	return NULL;
}

static void dest_close(struct dest *d)
{
	close(d->uffd);
	munmap(d->mem, SIZE);
	munmap(d->other, SIZE);
	if (d->memfd >= 0)
		close(d->memfd);
}

/* A chunk arrives, if it is not there yet. */
static void arrive(struct dest *d, u64 off)
{
	struct uffdio_continue cont = {
		.range = { (uintptr_t)d->mem + off, CHUNK },
	};
	struct uffdio_copy copy = {
		.dst = (uintptr_t)d->mem + off,
		.src = (uintptr_t)d->other + off,
		.len = CHUNK,
	};
	int ret;

	pthread_mutex_lock(&d->lock);
	if (!d->arrived[off / CHUNK]) {
		if (d->src->mode == UFFDIO_REGISTER_MODE_MINOR)
			ret = ioctl(d->uffd, UFFDIO_CONTINUE, &cont);
		else
			ret = ioctl(d->uffd, UFFDIO_COPY, &copy);
		TEST_ASSERT(!ret, "userfaultfd: chunk 0x%lx, errno: %i", off,
			    errno);
		d->arrived[off / CHUNK] = 1;
	}
	pthread_mutex_unlock(&d->lock);
}

static void build_present(int fd, u64 gpa, u64 size)
{
	gtdp_build_ok(fd, gpa, size, KVM_GTDP_BUILD_PRESENT, 0);
}

static struct kvm_vm *create(struct kvm_vcpu **vcpu, struct dest *d)
{
	struct kvm_vm *vm = gtdp_vm_create(vcpu);

	virt_map_level(vm, GPA, GPA, SIZE, PG_LEVEL_2M);
	vm_set_user_memory_region(vm, GTDP_TEST_SLOT, 0, GPA, SIZE, d->mem);
	return vm;
}

static void assert_arrived(struct dest *d, u64 add)
{
	u64 i;

	for (i = 0; i < SIZE; i += PAGE_SIZE)
		TEST_ASSERT(*(u64 *)(d->mem + i) == word(i) + add,
			    "0x%lx: 0x%lx, expected 0x%lx", i,
			    *(u64 *)(d->mem + i), word(i) + add);
}

static void check_ranges(struct dest *d)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 off, done, rest;
	int fd;

	vm = create(&vcpu, d);
	rest = gtdp_slot0_size(vm);
	fd = gtdp_attach(vm, 0);
	gtdp_build_ok(fd, 0, rest, 0, 0);

	/* Nothing is there, and nothing is waited for or made. */
	build_present(fd, GPA, SIZE);
	TEST_ASSERT_EQ(gtdp_stats(fd).mapped_bytes, rest);
	gtdp_assert_pinned(fd, rest);

	/* Not in order: from both ends. */
	for (off = 0, done = 0; done < SIZE; done += CHUNK) {
		arrive(d, off);
		build_present(fd, GPA + off, CHUNK);
		TEST_ASSERT_EQ(gtdp_stats(fd).mapped_bytes, rest + done + CHUNK);
		gtdp_assert_pinned(fd, rest + done + CHUNK);
		gtdp_assert_free_touch(fd, vcpu, GPA + off, CHUNK);
		off = off < SIZE / 2 ? SIZE - off - CHUNK : SIZE - off;
	}
	build_present(fd, GPA, SIZE);
	gtdp_assert_built(fd, SIZE + rest);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), 0);
	assert_arrived(d, 2);

	close(fd);
	kvm_vm_free(vm);
}

static bool stop;

/* Serves the guest's faults, like a post-copy destination. */
static void *serve(void *arg)
{
	struct dest *d = arg;
	struct pollfd pfd = { .fd = d->uffd, .events = POLLIN };
	struct uffd_msg msg;
	u64 served = 0;

	while (!READ_ONCE(stop)) {
		if (poll(&pfd, 1, 20) <= 0 ||
		    read(d->uffd, &msg, sizeof(msg)) != sizeof(msg))
			continue;
		TEST_ASSERT_EQ(msg.event, UFFD_EVENT_PAGEFAULT);
		usleep(2000);
		arrive(d, round_down(msg.arg.pagefault.address -
				     (uintptr_t)d->mem, CHUNK));
		served++;
	}
	return (void *)served;
}

static void *run_guest(void *vcpu)
{
	gtdp_touch(vcpu, GPA, SIZE);
	return NULL;
}

/* The guest runs ahead, while memory arrives and is built behind it. */
static void check_running(struct dest *d)
{
	pthread_t server, runner;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	void *served;
	u64 off, all;
	int fd;

	vm = create(&vcpu, d);
	all = SIZE + gtdp_slot0_size(vm);
	fd = gtdp_attach(vm, 0);
	gtdp_build_ok(fd, 0, gtdp_slot0_size(vm), 0, 0);
	stop = false;
	pthread_create(&server, NULL, serve, d);
	pthread_create(&runner, NULL, run_guest, vcpu);

	for (off = SIZE; off; off -= CHUNK) {
		arrive(d, off - CHUNK);
		build_present(fd, GPA + off - CHUNK, CHUNK);
		build_present(fd, GPA, SIZE);
	}
	pthread_join(runner, NULL);
	WRITE_ONCE(stop, true);
	pthread_join(server, &served);
	ksft_print_msg("%s: %lu faults were served\n", d->src->name,
		       (u64)served);

	build_present(fd, GPA, SIZE);
	gtdp_assert_built(fd, all);
	gtdp_assert_pinned(fd, all);
	assert_arrived(d, 1);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);
	assert_arrived(d, 2);

	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(vm);
}

/* Creating the slot is done by the thread that serves: it must not wait. */
static void check_auto(struct dest *d)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 off, all;
	int fd;

	vm = gtdp_vm_create(&vcpu);
	fd = gtdp_attach(vm, KVM_GTDP_ATTACH_AUTO);
	gtdp_build_ok(fd, 0, gtdp_slot0_size(vm), 0, 0);
	all = SIZE + gtdp_slot0_size(vm);
	arrive(d, CHUNK);
	virt_map_level(vm, GPA, GPA, SIZE, PG_LEVEL_2M);
	vm_set_user_memory_region(vm, GTDP_TEST_SLOT, 0, GPA, SIZE, d->mem);
	TEST_ASSERT_EQ(gtdp_stats(fd).auto_builds, 1);
	TEST_ASSERT_EQ(gtdp_stats(fd).built_bytes, all);
	TEST_ASSERT_EQ(gtdp_stats(fd).hole_bytes, SIZE - CHUNK);

	for (off = 0; off < SIZE; off += CHUNK)
		arrive(d, off);
	build_present(fd, GPA, SIZE);
	gtdp_assert_built(fd, all);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);
	assert_arrived(d, 1);

	close(fd);
	kvm_vm_free(vm);
}

static const char *each(void (*fn)(struct dest *d))
{
	const char *why, *last = NULL;
	struct dest d;
	bool done = false;
	int i;

	for (i = 0; i < ARRAY_SIZE(sources); i++) {
		why = dest_open(&d, &sources[i]);
		if (!why) {
			fn(&d);
			dest_close(&d);
			done = true;
			continue;
		}
		ksft_print_msg("%s: not tried: %s\n", sources[i].name, why);
		last = why;
	}
	return done ? NULL : last;
}

static const char *test_ranges(void)
{
	return each(check_ranges);
}

static const char *test_running(void)
{
	return each(check_running);
}

static const char *test_auto(void)
{
	return each(check_auto);
}

static const struct gtdp_case cases[] = {
	{ "property 7: userfaultfd, range by range", test_ranges },
	{ "property 7: userfaultfd, with the guest running", test_running },
	{ "uffd_auto", test_auto },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
