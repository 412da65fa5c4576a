// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test builds of slots of all shapes: smaller than a large leaf and not aligned
 * to one, several in a file, two over the same memory, read-only ones.
 */
#include <linux/memfd.h>
#include <linux/mman.h>
#include <sys/syscall.h>

#include "gtdp_bed.h"

#define GPA	((u64)GTDP_TEST_GPA)
#define SLOT	GTDP_TEST_SLOT
#define SIZE	SZ_16M

/* Memory of huge pages if there are any, so that alignment matters. */
static int memory_file(u64 size, bool *huge)
{
	int fd;

	*huge = gtdp_free_hugepages(SZ_2M) >= size / SZ_2M;
	fd = memfd_create("gtdp", MFD_CLOEXEC |
				  (*huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0));
	TEST_ASSERT(fd >= 0 && !ftruncate(fd, size), "memfd failed: %i", errno);
	return fd;
}

static u8 *map_file(int memfd, u64 off, u64 size)
{
	u8 *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd,
		       off);

	TEST_ASSERT(mem != MAP_FAILED, "mmap() failed, errno: %i", errno);
	return mem;
}

static void map_guest(struct kvm_vm *vm, u64 gpa, u64 size)
{
	virt_map(vm, gpa, gpa, size / PAGE_SIZE);
}

static void assert_words(u8 *mem, u64 size, u64 want)
{
	u64 i;

	for (i = 0; i < size; i += PAGE_SIZE)
		TEST_ASSERT(*(u64 *)(mem + i) == want, "0x%lx: %lu, expected %lu",
			    i, *(u64 *)(mem + i), want);
}

static const struct shape {
	u64 gpa_off;		/* of the slot, from an address aligned to 1G */
	u64 hva_off;		/* of its memory, from one aligned to 2M */
	u64 size;
	u64 leaves_2m;
} shapes[] = {
	/* Smaller than a large leaf: at its start, end, middle, one page. */
	{ 0, 0, SZ_1M, 0 },
	{ SZ_1M, SZ_1M, SZ_1M, 0 },
	{ SZ_64K, SZ_64K, SZ_64K, 0 },
	{ SZ_2M - SZ_4K, SZ_2M - SZ_4K, SZ_4K, 0 },
	/* Over the border of two, without one as a whole, and with one. */
	{ SZ_1M, SZ_1M, SZ_2M, 0 },
	{ SZ_2M - SZ_4K, SZ_2M - SZ_4K, SZ_2M + SZ_8K, 1 },
	{ SZ_4K, SZ_4K, SZ_8M - SZ_8K, 2 },
	{ 0, 0, SZ_4M + SZ_4K, 2 },
	/* Guest and owner disagree on what is aligned. */
	{ SZ_4K, 0, SZ_4M, 0 },
	{ 0, SZ_4K, SZ_4M, 0 },
	{ SZ_1M, 0, SZ_8M - SZ_1M, 0 },
	/* They agree, as seen from an odd address. */
	{ SZ_2M + SZ_64K, SZ_64K, SZ_8M, 3 },
};

static const char *test_shapes(void)
{
	struct kvm_vcpu *vcpu;
	bool huge = true;
	struct kvm_vm *vm;
	int i, fd, memfd;
	u64 rest, leaves;
	u8 *mem;

	memfd = memory_file(SIZE, &huge);
	mem = map_file(memfd, 0, SIZE);
	TEST_ASSERT(!huge || !((uintptr_t)mem % SZ_2M), "hugetlb at %p", mem);

	for (i = 0; i < ARRAY_SIZE(shapes); i++) {
		const struct shape *s = &shapes[i];

		vm = gtdp_vm_create(&vcpu);
		rest = gtdp_slot0_size(vm);
		fd = gtdp_attach(vm, 0);
		gtdp_build_ok(fd, 0, rest, 0, 0);
		leaves = gtdp_stats(fd).leaves[PG_LEVEL_2M];
		vm_set_user_memory_region(vm, SLOT, 0, GPA + s->gpa_off,
					  s->size, mem + s->hva_off);
		map_guest(vm, GPA + s->gpa_off, s->size);
		gtdp_build_ok(fd, GPA + s->gpa_off, s->size, 0, 0);
		gtdp_assert_built(fd, rest + s->size);
		if (huge)
			TEST_ASSERT(gtdp_stats(fd).leaves[PG_LEVEL_2M] - leaves ==
				    s->leaves_2m,
				    "shape %d: %llu leaves of 2M, expected %lu",
				    i, gtdp_stats(fd).leaves[PG_LEVEL_2M] - leaves,
				    s->leaves_2m);
		else
			gtdp_assert_pinned(fd, rest + s->size);
		memset(mem, 0, SIZE);
		gtdp_assert_free_touch(fd, vcpu, GPA + s->gpa_off, s->size);
		assert_words(mem, s->hva_off, 0);
		assert_words(mem + s->hva_off, s->size, 1);
		assert_words(mem + s->hva_off + s->size,
			     SIZE - s->hva_off - s->size, 0);
		TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), 0);

		close(fd);
		TEST_ASSERT_EQ(gtdp_own_pin(), 0);
		kvm_vm_free(vm);
	}
	munmap(mem, SIZE);
	close(memfd);
	return huge ? NULL : "leaves of 2M need 8 free huge pages";
}

/* In the file in another order than in the guest, with gaps in both. */
static const char *test_file(void)
{
	static const u64 offsets[] = { SZ_8M, 0, SZ_4M + SZ_64K };
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int i, fd, memfd;
	u64 rest;
	bool huge;
	u8 *mem;

	memfd = memory_file(SIZE, &huge);
	mem = map_file(memfd, 0, SIZE);
	vm = gtdp_vm_create(&vcpu);
	rest = gtdp_slot0_size(vm);
	fd = gtdp_attach(vm, 0);
	gtdp_build_ok(fd, 0, rest, 0, 0);
	for (i = 0; i < 3; i++) {
		vm_set_user_memory_region(vm, SLOT + i, 0, GPA + i * SZ_4M,
					  SZ_2M, mem + offsets[i]);
		map_guest(vm, GPA + i * SZ_4M, SZ_2M);
		gtdp_build_ok(fd, GPA + i * SZ_4M, SZ_2M, 0, 0);
	}
	gtdp_assert_built(fd, rest + 3 * SZ_2M);
	for (i = 0; i < 3; i++) {
		gtdp_assert_free_touch(fd, vcpu, GPA + i * SZ_4M, SZ_2M);
		assert_words(mem + offsets[i], SZ_2M, 1);
	}

	/* One of them is punched out, another slot goes. */
	gtdp_drain_events(fd);
	madvise(mem, SZ_2M, MADV_REMOVE);
	TEST_ASSERT_EQ(gtdp_stats(fd).hole_bytes, SZ_2M);
	vm_set_user_memory_region(vm, SLOT, 0, GPA, 0, NULL);
	gtdp_assert_free_touch(fd, vcpu, GPA + 2 * SZ_4M, SZ_2M);
	gtdp_build_ok(fd, GPA + SZ_4M, SZ_2M, 0, 0);
	gtdp_assert_built(fd, rest + 2 * SZ_2M);
	gtdp_assert_free_touch(fd, vcpu, GPA + SZ_4M, SZ_2M);
	assert_words(mem, SZ_2M, 1);
	assert_words(mem + offsets[2], SZ_2M, 2);

	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(vm);
	munmap(mem, SIZE);
	close(memfd);
	return NULL;
}

/*
 * Two slots over the same owner's memory.  It is pinned for each of them, and a
 * notifier takes it from both.
 */
static const char *test_overlap(void)
{
	const u64 gpa2 = GPA + SZ_1G;
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 rest;
	u8 *mem;
	int fd;

	mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TEST_ASSERT(mem != MAP_FAILED, "mmap() failed, errno: %i", errno);
	madvise(mem, SIZE, MADV_NOHUGEPAGE);
	vm = gtdp_vm_create(&vcpu);
	rest = gtdp_slot0_size(vm);
	fd = gtdp_attach(vm, 0);
	gtdp_build_ok(fd, 0, rest, 0, 0);

	vm_set_user_memory_region(vm, SLOT, 0, GPA, SZ_8M, mem);
	vm_set_user_memory_region(vm, SLOT + 1, 0, gpa2, SZ_8M, mem + SZ_4M);
	map_guest(vm, GPA, SZ_8M);
	map_guest(vm, gpa2, SZ_8M);
	gtdp_build_ok(fd, GPA, SZ_8M, 0, 0);
	gtdp_build_ok(fd, gpa2, SZ_8M, 0, 0);
	gtdp_assert_built(fd, rest + 2 * SZ_8M);
	gtdp_assert_pinned(fd, rest + 2 * SZ_8M);
	gtdp_assert_free_touch(fd, vcpu, GPA, SZ_8M);
	gtdp_assert_free_touch(fd, vcpu, gpa2, SZ_8M);
	assert_words(mem, SZ_4M, 1);
	assert_words(mem + SZ_4M, SZ_4M, 2);
	assert_words(mem + SZ_8M, SZ_4M, 1);

	madvise(mem + SZ_4M, SZ_4M, MADV_DONTNEED);
	stats = gtdp_stats(fd);
	TEST_ASSERT_EQ(stats.hole_bytes, 2 * SZ_4M);
	TEST_ASSERT_EQ(stats.lost_bytes[KVM_GTDP_HOLE_NOTIFIER], 2 * SZ_4M);
	gtdp_assert_pinned(fd, rest + SZ_8M);
	gtdp_build_ok(fd, gpa2, SZ_8M, 0, 0);
	gtdp_assert_free_touch(fd, vcpu, gpa2, SZ_8M);
	gtdp_build_ok(fd, GPA, SZ_8M, 0, 0);
	gtdp_assert_free_touch(fd, vcpu, GPA, SZ_8M);
	assert_words(mem + SZ_4M, SZ_4M, 2);

	/* One slot goes, and the other keeps its pins. */
	vm_set_user_memory_region(vm, SLOT, 0, GPA, 0, NULL);
	gtdp_assert_built(fd, rest + SZ_8M);
	gtdp_assert_pinned(fd, rest + SZ_8M);
	gtdp_assert_free_touch(fd, vcpu, gpa2, SZ_8M);

	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(vm);
	munmap(mem, SIZE);
	return NULL;
}

/* A guest that reads its ROM, and writes to it as well. */
static void run_to_mmio(struct kvm_vcpu *vcpu, u64 gpa)
{
	struct kvm_run *run = vcpu->run;

	vcpu_run(vcpu);
	TEST_ASSERT_KVM_EXIT_REASON(vcpu, KVM_EXIT_MMIO);
	TEST_ASSERT_EQ(run->mmio.phys_addr, gpa);
	TEST_ASSERT_EQ(run->mmio.is_write, 1);
	TEST_ASSERT_EQ(run->mmio.len, 8);
}

static const char *test_rom(void)
{
	const u64 rom = GPA + SIZE;
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 rest, *words, i;
	int fd;

	vm = gtdp_create_built(&vcpu, &fd, VM_MEM_SRC_SHMEM, SIZE);
	rest = SIZE + gtdp_slot0_size(vm);
	vm_userspace_mem_region_add(vm, VM_MEM_SRC_SHMEM, rom, SLOT + 1,
				    SZ_2M / PAGE_SIZE, KVM_MEM_READONLY);
	map_guest(vm, rom, SZ_2M);
	words = addr_gpa2hva(vm, rom);
	*words = 41;

	/* It is passed over, alone and among others, and pins nothing. */
	gtdp_build_ok(fd, rom, SZ_2M, 0, 0);
	gtdp_build_ok(fd, GPA, SIZE + SZ_2M, 0, 0);
	gtdp_assert_pinned(fd, rest);
	stats = gtdp_stats(fd);
	TEST_ASSERT_EQ(stats.mapped_bytes, rest);
	TEST_ASSERT_EQ(stats.hole_bytes, 0);

	gtdp_set_touch(vcpu, rom, PAGE_SIZE);
	run_to_mmio(vcpu, rom);
	memcpy(&i, vcpu->run->mmio.data, 8);
	TEST_ASSERT_EQ(i, 42);
	TEST_ASSERT_EQ(*words, 41);
	vcpu_run(vcpu);
	TEST_ASSERT_KVM_EXIT_REASON(vcpu, KVM_EXIT_IO);
	gtdp_build_ok(fd, GPA, SIZE + SZ_2M, 0, 0);
	gtdp_set_touch(vcpu, rom, PAGE_SIZE);
	run_to_mmio(vcpu, rom);
	vcpu_run(vcpu);

	/* RAM that becomes ROM is no longer built, and the other way round. */
	vm_mem_region_delete(vm, SLOT + 1);
	vm_mem_region_delete(vm, SLOT);
	vm_userspace_mem_region_add(vm, VM_MEM_SRC_SHMEM, GPA, SLOT,
				    SIZE / PAGE_SIZE, KVM_MEM_READONLY);
	gtdp_build_ok(fd, GPA, SIZE, 0, 0);
	gtdp_assert_pinned(fd, rest - SIZE);
	gtdp_set_touch(vcpu, GPA, PAGE_SIZE);
	run_to_mmio(vcpu, GPA);
	vcpu_run(vcpu);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, rom + SZ_2M, SLOT + 1, SZ_2M);
	gtdp_build_ok(fd, rom + SZ_2M, SZ_2M, 0, 0);
	gtdp_assert_free_touch(fd, vcpu, rom + SZ_2M, SZ_2M);

	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(vm);
	return NULL;
}

static const struct gtdp_case cases[] = {
	{ "shapes", test_shapes },
	{ "file", test_file },
	{ "overlap", test_overlap },
	{ "property 7: ROM is passed over and stays ROM", test_rom },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
