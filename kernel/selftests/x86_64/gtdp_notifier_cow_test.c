// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test builds of memory that the owner sees, but that is not his to write to as it
 * is: zero pages, private mappings of files, merged pages, write-protected ones.  A
 * guest must never write to what belongs to somebody else, nor past who watches.
 */
#include <linux/memfd.h>
#include <linux/mman.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "gtdp_bed.h"
#include "gtdp_keep.h"

#ifndef __NR_memfd_secret
#define __NR_memfd_secret	447
#endif

#define GPA	((u64)GTDP_TEST_GPA)
#define SIZE	SZ_4M

struct vm {
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	int fd;
	u64 rest;
};

static void vm_open(struct vm *v, void *mem)
{
	v->vm = gtdp_vm_create(&v->vcpu);
	vm_set_user_memory_region(v->vm, GTDP_TEST_SLOT, 0, GPA, SIZE, mem);
	virt_map_level(v->vm, GPA, GPA, SIZE, PG_LEVEL_2M);
	v->rest = gtdp_slot0_size(v->vm);
	v->fd = gtdp_attach(v->vm, 0);
	gtdp_build_ok(v->fd, 0, v->rest, 0, 0);
}

static void vm_close(struct vm *v)
{
	close(v->fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(v->vm);
}

/* Aligned to 2M. */
static u8 *map(int prot, int flags, int fd)
{
	u8 *mem = mmap(NULL, SIZE + SZ_2M, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	TEST_ASSERT(mem != MAP_FAILED, "mmap() failed, errno: %i", errno);
	mem = (u8 *)round_up((uintptr_t)mem, SZ_2M);
	mem = mmap(mem, SIZE, prot, flags | MAP_FIXED, fd, 0);
	TEST_ASSERT(mem != MAP_FAILED, "mmap() failed, errno: %i", errno);
	return mem;
}

static u64 sum_words(const u8 *mem)
{
	u64 i, sum = 0;

	for (i = 0; i < SIZE; i += PAGE_SIZE)
		sum += READ_ONCE(*(u64 *)(mem + i));
	return sum;
}

static void fill(u8 *mem, u64 value)
{
	u64 i;

	for (i = 0; i < SIZE; i += PAGE_SIZE)
		WRITE_ONCE(*(u64 *)(mem + i), value);
}

/* PRESENT maps none of it; a plain build makes it the owner's own. */
static void check_foreign(struct vm *v, u8 *mem, u64 before)
{
	const u64 pages = SIZE / PAGE_SIZE;

	gtdp_build_ok(v->fd, GPA, SIZE, KVM_GTDP_BUILD_PRESENT, 0);
	TEST_ASSERT_EQ(gtdp_stats(v->fd).hole_bytes, SIZE);
	gtdp_assert_pinned(v->fd, v->rest);
	TEST_ASSERT_EQ(sum_words(mem), before * pages);

	gtdp_build_ok(v->fd, GPA, SIZE, 0, 0);
	gtdp_assert_built(v->fd, SIZE + v->rest);
	gtdp_assert_pinned(v->fd, SIZE + v->rest);
	gtdp_assert_free_touch(v->fd, v->vcpu, GPA, SIZE);
	TEST_ASSERT_EQ(sum_words(mem), (before + 1) * pages);
	fill(mem, 70);
	gtdp_assert_free_touch(v->fd, v->vcpu, GPA, SIZE);
	TEST_ASSERT_EQ(sum_words(mem), 71 * pages);
}

/* Memory that was only read is the one page of zeroes that all share. */
static void check_zero(int advice)
{
	u8 *mem = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	u8 *other = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	struct vm v;

	madvise(mem, SIZE, advice);
	madvise(other, SIZE, advice);
	TEST_ASSERT_EQ(sum_words(mem) + sum_words(other), 0);
	vm_open(&v, mem);
	check_foreign(&v, mem, 0);
	TEST_ASSERT_EQ(sum_words(other), 0);
	vm_close(&v);
	munmap(mem, SIZE);
	munmap(other, SIZE);
}

static const char *test_zero(void)
{
	check_zero(MADV_NOHUGEPAGE);
	check_zero(MADV_HUGEPAGE);
	return NULL;
}

/* What the guest writes must not get into the file, if somebody has read it. */
static void check_private_file(int memfd_flags, bool read_first)
{
	const u64 pages = SIZE / PAGE_SIZE;
	u8 *file, *mem;
	struct vm v;
	int memfd;

	memfd = memfd_create("gtdp", MFD_CLOEXEC | memfd_flags);
	TEST_ASSERT(memfd >= 0 && !ftruncate(memfd, SIZE), "memfd failed: %i",
		    errno);
	file = map(PROT_READ | PROT_WRITE, MAP_SHARED, memfd);
	fill(file, 5);
	mem = map(PROT_READ | PROT_WRITE, MAP_PRIVATE, memfd);
	if (read_first)
		TEST_ASSERT_EQ(sum_words(mem), 5 * pages);

	vm_open(&v, mem);
	check_foreign(&v, mem, 5);
	TEST_ASSERT_EQ(sum_words(file), 5 * pages);
	vm_close(&v);
	TEST_ASSERT_EQ(sum_words(file), 5 * pages);
	munmap(mem, SIZE);
	munmap(file, SIZE);
	close(memfd);
}

static const char *test_private_file(void)
{
	int i;

	for (i = 0; i < 2; i++)
		check_private_file(0, i);
	if (gtdp_free_hugepages(SZ_2M) < 2 * SIZE / SZ_2M)
		return "2M part needs 4 free huge pages of 2M";
	for (i = 0; i < 2; i++)
		check_private_file(MFD_HUGETLB | MFD_HUGE_2MB, i);
	return NULL;
}

/* A file that the owner may only read, though its pages are there. */
static const char *test_readonly_file(void)
{
	const u64 pages = SIZE / PAGE_SIZE;
	u8 *file, *mem;
	struct vm v;
	int memfd;

	memfd = memfd_create("gtdp", MFD_CLOEXEC);
	TEST_ASSERT(memfd >= 0 && !ftruncate(memfd, SIZE), "memfd failed: %i",
		    errno);
	file = map(PROT_READ | PROT_WRITE, MAP_SHARED, memfd);
	fill(file, 5);
	mem = map(PROT_READ, MAP_SHARED, memfd);
	vm_open(&v, mem);
	gtdp_build(v.fd, GPA, SIZE, KVM_GTDP_BUILD_PRESENT, 0);
	TEST_ASSERT_EQ(gtdp_stats(v.fd).mapped_bytes, v.rest);
	TEST_ASSERT_EQ(sum_words(mem), 5 * pages);
	gtdp_build(v.fd, GPA, SIZE, KVM_GTDP_BUILD_PRESENT, 0);
	TEST_ASSERT_EQ(gtdp_stats(v.fd).mapped_bytes, v.rest);
	TEST_ASSERT_EQ(gtdp_build(v.fd, GPA, SIZE, 0, 0), -EFAULT);
	gtdp_assert_pinned(v.fd, v.rest);

	gtdp_set_touch(v.vcpu, GPA, PAGE_SIZE);
	TEST_ASSERT(__vcpu_run(v.vcpu) == -1 && errno == EFAULT,
		    "the guest wrote to a file that its owner may only read");
	TEST_ASSERT_EQ(sum_words(file), 5 * pages);
	vm_close(&v);
	munmap(mem, SIZE);
	munmap(file, SIZE);
	close(memfd);
	return NULL;
}

static const char *test_secret(void)
{
	int ret, memfd = syscall(__NR_memfd_secret, O_CLOEXEC);
	struct vm v;
	u8 *mem;

	if (memfd < 0)
		return "no memfd_secret() in this kernel";
	TEST_ASSERT(!ftruncate(memfd, SIZE), "ftruncate() failed: %i", errno);
	mem = map(PROT_READ | PROT_WRITE, MAP_SHARED, memfd);
	fill(mem, 5);
	vm_open(&v, mem);
	ret = gtdp_build(v.fd, GPA, SIZE, 0, 0);
	TEST_ASSERT(ret == -EFAULT || ret == -EOPNOTSUPP,
		    "BUILD of secret memory: %i", ret);
	gtdp_build(v.fd, GPA, SIZE, KVM_GTDP_BUILD_PRESENT, 0);
	gtdp_build(v.fd, GPA, SIZE, KVM_GTDP_BUILD_NOPIN, 0);
	TEST_ASSERT_EQ(gtdp_stats(v.fd).mapped_bytes, v.rest);
	gtdp_assert_pinned(v.fd, v.rest);
	vm_close(&v);
	munmap(mem, SIZE);
	close(memfd);
	return NULL;
}

/* Merged before they are built: they must become the owner's again. */
static const char *test_ksm(void)
{
	u8 *mem = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	const char *why;
	struct vm v;

	madvise(mem, SIZE, MADV_NOHUGEPAGE);
	memset(mem, 0, SIZE);
	fill(mem, 9);
	if (madvise(mem, SIZE, MADV_MERGEABLE))
		return "no KSM in this kernel";
	why = gtdp_run_ksm();
	if (why)
		return why;
	vm_open(&v, mem);
	check_foreign(&v, mem, 9);
	vm_close(&v);
	munmap(mem, SIZE);
	return NULL;
}

struct watch {
	int uffd;
	u8 *mem;
	u64 seen;
	bool stop;
};

static void write_protect(struct watch *w, u64 off, u64 size, bool on)
{
	struct uffdio_writeprotect wp = {
		.range = { (uintptr_t)w->mem + off, size },
		.mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};

	TEST_ASSERT(!ioctl(w->uffd, UFFDIO_WRITEPROTECT, &wp),
		    "UFFDIO_WRITEPROTECT failed, errno: %i", errno);
}

/* As QEMU does for a snapshot: a page is saved before it is written to. */
static void *watch(void *arg)
{
	struct watch *w = arg;
	struct pollfd pfd = { .fd = w->uffd, .events = POLLIN };
	struct uffd_msg msg;
	u64 off;

	while (!READ_ONCE(w->stop)) {
		if (poll(&pfd, 1, 20) <= 0 ||
		    read(w->uffd, &msg, sizeof(msg)) != sizeof(msg))
			continue;
		off = round_down(msg.arg.pagefault.address - (uintptr_t)w->mem,
				 PAGE_SIZE);
		TEST_ASSERT(*(u64 *)(w->mem + off) == 5,
			    "0x%lx was written to before", off);
		w->seen++;
		write_protect(w, off, PAGE_SIZE, false);
	}
	return NULL;
}

static const char *check_watched(bool shared, bool build, bool dontneed)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP |
			    (shared ? UFFD_FEATURE_WP_HUGETLBFS_SHMEM : 0),
	};
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_WP };
	struct watch w = {};
	pthread_t thread;
	struct vm v;

	w.uffd = syscall(__NR_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (w.uffd < 0 || ioctl(w.uffd, UFFDIO_API, &api))
		return "no write protection by userfaultfd";
	w.mem = map(PROT_READ | PROT_WRITE, MAP_ANONYMOUS |
		    (shared ? MAP_SHARED : MAP_PRIVATE), -1);
	madvise(w.mem, SIZE, MADV_NOHUGEPAGE);
	fill(w.mem, 5);
	vm_open(&v, w.mem);
	if (build)
		gtdp_build_ok(v.fd, GPA, SIZE, 0, 0);

	reg.range.start = (uintptr_t)w.mem;
	reg.range.len = SIZE;
	TEST_ASSERT(!ioctl(w.uffd, UFFDIO_REGISTER, &reg),
		    "UFFDIO_REGISTER failed, errno: %i", errno);
	write_protect(&w, 0, SIZE, true);
	if (dontneed)
		madvise(w.mem, SIZE, MADV_DONTNEED);
	if (build)
		TEST_ASSERT_EQ(gtdp_stats(v.fd).hole_bytes, SIZE);
	gtdp_build_ok(v.fd, GPA, SIZE, KVM_GTDP_BUILD_PRESENT, 0);
	TEST_ASSERT_EQ(gtdp_stats(v.fd).hole_bytes, SIZE);

	pthread_create(&thread, NULL, watch, &w);
	gtdp_touch(v.vcpu, GPA, SIZE);
	WRITE_ONCE(w.stop, true);
	pthread_join(thread, NULL);
	TEST_ASSERT_EQ(w.seen, SIZE / PAGE_SIZE);
	TEST_ASSERT_EQ(sum_words(w.mem), 6 * (SIZE / PAGE_SIZE));

	close(w.uffd);
	gtdp_build_ok(v.fd, GPA, SIZE, 0, 0);
	gtdp_assert_built(v.fd, SIZE + v.rest);
	gtdp_assert_free_touch(v.fd, v.vcpu, GPA, SIZE);
	vm_close(&v);
	munmap(w.mem, SIZE);
	return NULL;
}

static const char *test_watched(void)
{
	const char *why = NULL;
	int i;

	for (i = 0; i < 4 && !why; i++)
		why = check_watched(i & 1, i & 2, false);
	return why ?: check_watched(true, true, true);
}

static const struct gtdp_case cases[] = {
	{ "zero_page", test_zero },
	{ "private_file", test_private_file },
	{ "readonly_file", test_readonly_file },
	{ "secret", test_secret },
	{ "merged", test_ksm },
	{ "property 7: write-protected by userfaultfd", test_watched },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
