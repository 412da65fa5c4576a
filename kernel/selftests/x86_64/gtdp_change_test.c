// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test what becomes of built mappings when the VMM changes its memory slots or
 * its memory: only what is touched goes, pins with it, and it can be healed.
 */
#include "gtdp.h"

#define GPA	GTDP_TEST_GPA
#define SLOT	GTDP_TEST_SLOT
#define SIZE	SZ_16M

static const char *test_auto(void)
{
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 before;
	int fd;

	vm = gtdp_vm_create(&vcpu);
	fd = gtdp_attach(vm, KVM_GTDP_ATTACH_AUTO);
	gtdp_build_ok(fd, 0, gtdp_slot0_size(vm), 0, 0);
	before = gtdp_stats(fd).auto_builds;

	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA, SLOT, SIZE);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA + SZ_1G, SLOT + 1, SIZE);
	stats = gtdp_stats(fd);
	TEST_ASSERT_EQ(stats.auto_builds, before + 2);
	TEST_ASSERT_EQ(stats.auto_errors, 0);
	TEST_ASSERT_EQ(stats.auto_last_error, 0);
	gtdp_assert_built(fd, 2 * SIZE + gtdp_slot0_size(vm));
	gtdp_assert_pinned(fd, 2 * SIZE + gtdp_slot0_size(vm));
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);
	gtdp_assert_free_touch(fd, vcpu, GPA + SZ_1G, SIZE);

	/* A slot that moves is built where it comes to be. */
	vm_mem_region_move(vm, SLOT + 1, GPA + SZ_2G);
	virt_map_level(vm, GPA + SZ_2G, GPA + SZ_2G, SIZE, PG_LEVEL_2M);
	gtdp_assert_pinned(fd, 2 * SIZE + gtdp_slot0_size(vm));
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);
	gtdp_assert_free_touch(fd, vcpu, GPA + SZ_2G, SIZE);
	gtdp_assert_content(vm, GPA + SZ_2G, SIZE, 2);
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), 0);

	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(vm);
	return NULL;
}

/* Deleting a slot costs that slot, and nobody else. */
static const char *test_delete(void)
{
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 rest;
	int fd;

	vm = gtdp_create_built(&vcpu, &fd, VM_MEM_SRC_SHMEM, SIZE);
	rest = SIZE + gtdp_slot0_size(vm);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA + SZ_1G, SLOT + 1, SIZE);
	gtdp_build_ok(fd, GPA + SZ_1G, SIZE, 0, 0);
	gtdp_touch(vcpu, GPA + SZ_1G, SIZE);
	gtdp_assert_pinned(fd, rest + SIZE);

	vm_mem_region_delete(vm, SLOT + 1);
	gtdp_assert_pinned(fd, rest);
	stats = gtdp_stats(fd);
	TEST_ASSERT_EQ(stats.lost_bytes[KVM_GTDP_HOLE_SLOT], SIZE);
	TEST_ASSERT_EQ(stats.mapped_bytes, rest);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), 0);

	/* Without AUTO nobody builds what comes in its place... */
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA + SZ_2G, SLOT + 1, SIZE);
	gtdp_assert_pinned(fd, rest);
	gtdp_touch(vcpu, GPA + SZ_2G, SIZE);
	TEST_ASSERT(gtdp_vcpu_stat(vcpu, "pf_taken") >= SIZE / PAGE_SIZE,
		    "mapped without a build");
	TEST_ASSERT(gtdp_stats(fd).faults_other >= SIZE / PAGE_SIZE,
		    "faults outside of what is built are not counted");
	TEST_ASSERT_EQ(gtdp_stats(fd).faults, 0);

	/* ...and what the vCPU has mapped by now is as good a leaf. */
	gtdp_build_ok(fd, GPA + SZ_2G, SIZE, 0, 0);
	gtdp_assert_pinned(fd, rest + SIZE);
	gtdp_assert_free_touch(fd, vcpu, GPA + SZ_2G, SIZE);

	close(fd);
	kvm_vm_free(vm);
	return NULL;
}

/* The owner takes memory away: a hole, without pins, which can be healed. */
static void check_discard(enum vm_mem_backing_src_type src, size_t page_size)
{
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 all;
	int fd;

	vm = gtdp_create_built(&vcpu, &fd, src, SIZE);
	all = SIZE + gtdp_slot0_size(vm);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);

	TEST_ASSERT(!madvise(addr_gpa2hva(vm, GPA + SZ_4M), SZ_4M,
			     MADV_DONTNEED),
		    "madvise() failed, errno: %i", errno);
	stats = gtdp_stats(fd);
	TEST_ASSERT_EQ(stats.built_bytes, all);
	TEST_ASSERT_EQ(stats.hole_bytes, SZ_4M);
	TEST_ASSERT_EQ(stats.mapped_bytes, all - SZ_4M);
	TEST_ASSERT_EQ(stats.lost_bytes[KVM_GTDP_HOLE_NOTIFIER], SZ_4M);
	gtdp_assert_pinned(fd, all - SZ_4M);
	gtdp_assert_free_touch(fd, vcpu, GPA, SZ_4M);

	gtdp_build_ok(fd, GPA, SIZE, 0, 0);
	gtdp_assert_built(fd, all);
	gtdp_assert_pinned(fd, all);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);

	/* On demand, too, but that is counted, and pins nothing. */
	madvise(addr_gpa2hva(vm, GPA + SZ_4M), SZ_4M, MADV_DONTNEED);
	gtdp_touch(vcpu, GPA, SIZE);
	stats = gtdp_stats(fd);
	TEST_ASSERT(stats.faults >= SZ_4M / page_size, "%llu faults", stats.faults);
	TEST_ASSERT_EQ(stats.hole_bytes, 0);
	gtdp_assert_pinned(fd, all - SZ_4M);
	gtdp_build_ok(fd, GPA, SIZE, 0, 0);
	gtdp_assert_pinned(fd, all);
	gtdp_assert_content(vm, GPA, SZ_4M, 4);

	close(fd);
	kvm_vm_free(vm);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
}

static const char *test_discard(void)
{
	check_discard(VM_MEM_SRC_ANONYMOUS, SZ_4K);
	if (gtdp_free_hugepages(SZ_2M) < SIZE / SZ_2M)
		return "2M part needs 8 free huge pages of 2M";
	check_discard(VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, SZ_2M);
	return NULL;
}

static const char *test_readonly(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 rest;
	int fd;

	vm = gtdp_create_built(&vcpu, &fd, VM_MEM_SRC_SHMEM, SIZE);
	rest = SIZE + gtdp_slot0_size(vm);
	vm_userspace_mem_region_add(vm, VM_MEM_SRC_SHMEM, GPA + SIZE, SLOT + 1,
				    SZ_2M / PAGE_SIZE, KVM_MEM_READONLY);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA + SIZE + SZ_2M, SLOT + 2,
			SZ_2M);

	/* In the middle of a range it stops nobody. */
	gtdp_build_ok(fd, GPA, SIZE + SZ_4M, 0, 0);
	gtdp_assert_pinned(fd, rest + SZ_2M);
	TEST_ASSERT_EQ(gtdp_stats(fd).mapped_bytes, rest + SZ_2M);
	gtdp_assert_free_touch(fd, vcpu, GPA + SIZE + SZ_2M, SZ_2M);

	close(fd);
	kvm_vm_free(vm);
	return NULL;
}

static u64 dirty_pages(struct kvm_vm *vm)
{
	unsigned long bitmap[SIZE / PAGE_SIZE / BITS_PER_LONG] = {};
	u64 i, nr = 0;

	kvm_vm_get_dirty_log(vm, SLOT, bitmap);
	for (i = 0; i < ARRAY_SIZE(bitmap); i++)
		nr += __builtin_popcountl(bitmap[i]);
	return nr;
}

/* However it was built: what the guest writes to is in the log. */
static void check_dirty_log(enum vm_mem_backing_src_type src, int level)
{
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int fd;

	vm = gtdp_create_built(&vcpu, &fd, src, SIZE);
	gtdp_touch(vcpu, GPA, SIZE);

	vm_mem_region_set_flags(vm, SLOT, KVM_MEM_LOG_DIRTY_PAGES);
	gtdp_touch(vcpu, GPA, SZ_1M);
	TEST_ASSERT_EQ(dirty_pages(vm), SZ_1M / PAGE_SIZE);

	/* A build with the log on may well say "dirty" too often, once. */
	gtdp_build_ok(fd, GPA, SIZE, 0, 0);
	gtdp_touch(vcpu, GPA, SIZE);
	TEST_ASSERT_EQ(dirty_pages(vm), SIZE / PAGE_SIZE);
	gtdp_touch(vcpu, GPA + SZ_4M, SZ_2M);
	TEST_ASSERT_EQ(dirty_pages(vm), SZ_2M / PAGE_SIZE);
	TEST_ASSERT_EQ(dirty_pages(vm), 0);

	vm_mem_region_set_flags(vm, SLOT, 0);
	gtdp_build_ok(fd, GPA, SIZE, 0, 0);
	stats = gtdp_stats(fd);
	TEST_ASSERT_EQ(stats.hole_bytes, 0);
	if (level == PG_LEVEL_2M)
		TEST_ASSERT_EQ(stats.leaves[level], SIZE / SZ_2M);
	gtdp_assert_pinned(fd, SIZE + gtdp_slot0_size(vm));
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);

	close(fd);
	kvm_vm_free(vm);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
}

static const char *test_dirty_log(void)
{
	check_dirty_log(VM_MEM_SRC_SHMEM, PG_LEVEL_4K);
	if (gtdp_free_hugepages(SZ_2M) < SIZE / SZ_2M)
		return "2M part needs 8 free huge pages of 2M";
	check_dirty_log(VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, PG_LEVEL_2M);
	return NULL;
}

static const struct gtdp_case cases[] = {
	{ "auto", test_auto },
	{ "delete", test_delete },
	{ "discard", test_discard },
	{ "readonly", test_readonly },
	{ "dirty_log", test_dirty_log },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
