// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test what KVM_GTDP_BUILD maps, pins and counts: guests write to all of their
 * memory, and the faults that KVM took for it are compared with what was built.
 */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "gtdp.h"

#define GPA	GTDP_TEST_GPA
#define SLOT	GTDP_TEST_SLOT
#define SIZE	SZ_16M

static void check_level(enum vm_mem_backing_src_type src, u64 size,
			int level, int max_level)
{
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 rest, sum = 0;
	int i, fd;

	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, src, GPA, SLOT, size);
	rest = gtdp_slot0_size(vm);
	fd = gtdp_attach(vm, 0);
	gtdp_assert_built(fd, 0);
	gtdp_assert_pinned(fd, 0);

	gtdp_build_ok(fd, GPA, size, 0, max_level);
	stats = gtdp_stats(fd);
	TEST_ASSERT_EQ(stats.leaves[level], size / PG_LEVEL_SIZE(level));
	TEST_ASSERT(stats.build_ns, "building took no time");
	for (i = 0; i < KVM_GTDP_MAX_NODES; i++)
		sum += stats.table_pages[i];
	TEST_ASSERT(sum, "no table pages");
	gtdp_assert_built(fd, size);
	gtdp_assert_pinned(fd, size);

	gtdp_build_ok(fd, 0, rest, 0, 0);
	gtdp_assert_built(fd, size + rest);
	gtdp_assert_pinned(fd, size + rest);

	/* Building again what is there changes nothing. */
	gtdp_build_ok(fd, GPA, size, 0, max_level);
	gtdp_assert_built(fd, size + rest);
	gtdp_assert_pinned(fd, size + rest);

	gtdp_assert_free_touch(fd, vcpu, GPA, size);
	gtdp_assert_free_touch(fd, vcpu, GPA, size);
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), 0);
	gtdp_assert_content(vm, GPA, size, 2);

	/* The guest goes on with what is mapped, pinned or not. */
	TEST_ASSERT(!gtdp_release(fd, GPA, size), "RELEASE failed");
	gtdp_assert_pinned(fd, rest);
	TEST_ASSERT_EQ(gtdp_stats(fd).built_bytes, rest);
	gtdp_touch(vcpu, GPA, size);
	gtdp_build_ok(fd, GPA, size, 0, max_level);
	gtdp_assert_pinned(fd, size + rest);

	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	gtdp_touch(vcpu, GPA, size);
	gtdp_assert_content(vm, GPA, size, 4);

	kvm_vm_free(vm);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
}

static const char *test_4k(void)
{
	check_level(VM_MEM_SRC_SHMEM, SIZE, PG_LEVEL_4K, PG_LEVEL_4K);
	return NULL;
}

static const char *test_4k_anonymous(void)
{
	check_level(VM_MEM_SRC_ANONYMOUS, SIZE, PG_LEVEL_4K, 0);
	return NULL;
}

static const char *test_2m(void)
{
	if (gtdp_free_hugepages(SZ_2M) < SIZE / SZ_2M)
		return "needs 8 free huge pages of 2M";

	check_level(VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, SIZE, PG_LEVEL_2M, 0);
	check_level(VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, SIZE, PG_LEVEL_2M,
		    PG_LEVEL_1G);
	check_level(VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, SIZE, PG_LEVEL_4K,
		    PG_LEVEL_4K);
	if (get_def_hugetlb_pagesz() == SZ_2M)
		check_level(VM_MEM_SRC_SHARED_HUGETLB, SIZE, PG_LEVEL_2M, 0);
	return NULL;
}

static const char *test_1g(void)
{
	struct kvm_gtdp_info info;

	gtdp_get_info(&info);
	if (info.max_leaf_level < PG_LEVEL_1G)
		return "this host has no leaves of 1G";
	if (gtdp_free_hugepages(SZ_1G) < 1)
		return "needs a free huge page of 1G";

	check_level(VM_MEM_SRC_ANONYMOUS_HUGETLB_1GB, SZ_1G, PG_LEVEL_1G, 0);
	check_level(VM_MEM_SRC_ANONYMOUS_HUGETLB_1GB, SZ_1G, PG_LEVEL_2M,
		    PG_LEVEL_2M);
	return NULL;
}

/* Huge pages that the slot's alignment does not allow to map as such. */
static const char *test_misaligned(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	void *mem;
	int fd;

	if (gtdp_free_hugepages(SZ_2M) < 2)
		return "needs 2 free huge pages of 2M";

	vm = gtdp_vm_create(&vcpu);
	mem = mmap(NULL, SZ_4M, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB |
		   (21 << MAP_HUGE_SHIFT), -1, 0);
	TEST_ASSERT(mem != MAP_FAILED, "mmap() failed, errno: %i", errno);
	vm_set_user_memory_region(vm, SLOT, 0, GPA, SZ_2M, mem + PAGE_SIZE);
	virt_map_level(vm, GPA, GPA, SZ_2M, PG_LEVEL_2M);
	fd = gtdp_attach(vm, 0);

	gtdp_build_ok(fd, GPA, SZ_2M, 0, 0);
	gtdp_build_ok(fd, 0, gtdp_slot0_size(vm), 0, 0);
	TEST_ASSERT_EQ(gtdp_stats(fd).leaves[PG_LEVEL_2M], 0);
	gtdp_assert_built(fd, SZ_2M + gtdp_slot0_size(vm));
	gtdp_assert_free_touch(fd, vcpu, GPA, SZ_2M);

	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(vm);
	munmap(mem, SZ_4M);
	return NULL;
}

/* In pieces that cut through huge pages, and in one page's steps. */
static const char *test_pieces(void)
{
	bool huge = gtdp_free_hugepages(SZ_2M) >= SIZE / SZ_2M;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 off;
	int fd;

	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, huge ? VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB :
				   VM_MEM_SRC_SHMEM,
			GPA, SLOT, SIZE);
	fd = gtdp_attach(vm, 0);
	gtdp_build_ok(fd, 0, gtdp_slot0_size(vm), 0, 0);

	for (off = 0; off < SZ_2M; off += PAGE_SIZE)
		gtdp_build_ok(fd, GPA + off, PAGE_SIZE, 0, 0);
	gtdp_build_ok(fd, GPA + SZ_2M, SZ_1M, 0, 0);
	gtdp_build_ok(fd, GPA + SZ_1M, SZ_4M, 0, 0);
	gtdp_build_ok(fd, GPA + SZ_4M + PAGE_SIZE, SIZE - SZ_4M - PAGE_SIZE, 0,
		      0);
	gtdp_assert_built(fd, SIZE + gtdp_slot0_size(vm));
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);

	for (off = 0; off < SIZE; off += SZ_512K)
		TEST_ASSERT(!gtdp_release(fd, GPA + off, SZ_512K),
			    "RELEASE failed");
	gtdp_assert_built(fd, gtdp_slot0_size(vm));
	gtdp_assert_pinned(fd, gtdp_slot0_size(vm));

	close(fd);
	kvm_vm_free(vm);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	return NULL;
}

static const char *test_before_vcpu(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int fd;

	vm = vm_create(1);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA, SLOT, SIZE);
	fd = gtdp_attach(vm, 0);
	gtdp_build_ok(fd, 0, gtdp_slot0_size(vm), 0, 0);
	gtdp_build_ok(fd, GPA, SIZE, 0, 0);

	vcpu = vm_vcpu_add(vm, 0, gtdp_guest_touch);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), 0);
	gtdp_assert_content(vm, GPA, SIZE, 1);

	close(fd);
	kvm_vm_free(vm);
	return NULL;
}

static bool stop_vcpu;

static void *run_vcpu(void *arg)
{
	u64 passes = 0;

	do {
		gtdp_touch(arg, GPA, SIZE);
		passes++;
	} while (!READ_ONCE(stop_vcpu));
	return (void *)passes;
}

/* Into the page table that a vCPU is walking and filling meanwhile. */
static const char *test_running_vcpu(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	pthread_t thread;
	void *passes;
	int i, fd;

	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA, SLOT, SIZE);
	stop_vcpu = false;
	pthread_create(&thread, NULL, run_vcpu, vcpu);

	for (i = 0; i < 4; i++) {
		fd = gtdp_attach(vm, 0);
		TEST_ASSERT(!gtdp_build_slots(fd), "BUILD failed");
		gtdp_assert_built(fd, SIZE + gtdp_slot0_size(vm));
		gtdp_assert_pinned(fd, SIZE + gtdp_slot0_size(vm));
		close(fd);
		/* What the vCPU has mapped already is to go, too. */
		madvise(addr_gpa2hva(vm, GPA), SIZE / 2, MADV_DONTNEED);
	}

	fd = gtdp_attach(vm, 0);
	TEST_ASSERT(!gtdp_build_slots(fd), "BUILD failed");
	WRITE_ONCE(stop_vcpu, true);
	pthread_join(thread, &passes);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);
	gtdp_assert_content(vm, GPA, SIZE, (u64)passes + 1);

	close(fd);
	kvm_vm_free(vm);
	return NULL;
}

static const char *test_nopin(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 all;
	int fd;

	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, VM_MEM_SRC_ANONYMOUS, GPA, SLOT, SIZE);
	all = SIZE + gtdp_slot0_size(vm);
	fd = gtdp_attach(vm, 0);
	gtdp_build_ok(fd, 0, gtdp_slot0_size(vm), KVM_GTDP_BUILD_NOPIN, 0);
	gtdp_build_ok(fd, GPA, SIZE, KVM_GTDP_BUILD_NOPIN, 0);
	gtdp_assert_built(fd, all);
	gtdp_assert_pinned(fd, 0);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);

	/* Pins can be had later, and lost together with the memory. */
	gtdp_build_ok(fd, GPA, SIZE, 0, 0);
	gtdp_assert_pinned(fd, SIZE);
	madvise(addr_gpa2hva(vm, GPA), SIZE, MADV_DONTNEED);
	gtdp_assert_pinned(fd, 0);
	TEST_ASSERT_EQ(gtdp_stats(fd).hole_bytes, SIZE);

	close(fd);
	kvm_vm_free(vm);
	return NULL;
}

static u64 resident_pages(void *mem, u64 size)
{
	unsigned char vec[SIZE / PAGE_SIZE];
	u64 i, nr = 0;

	TEST_ASSERT(!mincore(mem, size, vec), "mincore() failed: %i", errno);
	for (i = 0; i < size / PAGE_SIZE; i++)
		nr += vec[i] & 1;
	return nr;
}

/* Post-copy: what is not there must neither be made nor waited for. */
static const char *test_present(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int fd, uffd;
	void *mem;

	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, VM_MEM_SRC_ANONYMOUS, GPA, SLOT, SIZE);
	mem = addr_gpa2hva(vm, GPA);
	fd = gtdp_attach(vm, 0);
	memset(mem, 0x5a, SIZE / 2);

	uffd = syscall(__NR_userfaultfd, O_CLOEXEC);
	if (uffd >= 0) {
		reg.range.start = (uintptr_t)mem;
		reg.range.len = SIZE;
		TEST_ASSERT(!ioctl(uffd, UFFDIO_API, &api) &&
			    !ioctl(uffd, UFFDIO_REGISTER, &reg),
			    "userfaultfd failed, errno: %i", errno);
	}

	gtdp_build_ok(fd, GPA, SIZE, KVM_GTDP_BUILD_PRESENT, 0);
	stats = gtdp_stats(fd);
	TEST_ASSERT_EQ(stats.mapped_bytes, SIZE / 2);
	TEST_ASSERT_EQ(stats.pinned_bytes, SIZE / 2);
	TEST_ASSERT_EQ(resident_pages(mem, SIZE), SIZE / 2 / PAGE_SIZE);

	if (uffd >= 0)
		close(uffd);
	gtdp_build_ok(fd, GPA, SIZE, 0, 0);
	gtdp_assert_built(fd, SIZE);
	TEST_ASSERT_EQ(resident_pages(mem, SIZE), SIZE / PAGE_SIZE);

	close(fd);
	kvm_vm_free(vm);
	return uffd >= 0 ? NULL : "no userfaultfd for the other half";
}

static const struct gtdp_case cases[] = {
	{ "property 1: 4K leaves", test_4k },
	{ "property 1: 4K leaves, anonymous", test_4k_anonymous },
	{ "property 1: 2M leaves", test_2m },
	{ "property 1: 1G leaves", test_1g },
	{ "misaligned", test_misaligned },
	{ "pieces", test_pieces },
	{ "property 2: before the first vCPU", test_before_vcpu },
	{ "property 2: while vCPUs run", test_running_vcpu },
	{ "nopin", test_nopin },
	{ "present", test_present },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
