// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test what becomes of a built mapping when memory slots come, go, move and
 * change, in all shapes that a slot can have: what is touched goes and nothing
 * else, and what is told of it is true.
 */
#include <poll.h>

#include "gtdp_bed.h"

#define GPA	((u64)GTDP_TEST_GPA)
#define SLOT	GTDP_TEST_SLOT
#define SIZE	SZ_16M

/* Where a second slot goes, and a third. */
#define GPA2	(GPA + SZ_1G)
#define GPA3	(GPA + SZ_2G)

static void assert_event(int fd, u32 type, u32 reason, u64 gpa, u64 size,
			 u64 bytes)
{
	struct kvm_gtdp_event event = {};
	int nr = gtdp_events(fd, &event, 1);

	TEST_ASSERT(nr == 1, "no event, type %u was expected", type);
	TEST_ASSERT(event.type == type && event.reason == reason &&
		    event.gpa == gpa && event.size == size &&
		    event.bytes == bytes,
		    "event type %u, reason %u, [0x%llx, +0x%llx), 0x%llx bytes; expected %u, %u, [0x%lx, +0x%lx), 0x%lx",
		    event.type, event.reason, event.gpa, event.size,
		    event.bytes, type, reason, gpa, size, bytes);
}

static void assert_no_event(int fd)
{
	struct kvm_gtdp_event event = {};

	TEST_ASSERT(!gtdp_events(fd, &event, 1),
		    "unexpected event: type %u, reason %u, [0x%llx, +0x%llx)",
		    event.type, event.reason, event.gpa, event.size);
}

/* The slot has gone, or is elsewhere: told once as a slot, once as a loss. */
static void assert_removed(int fd, u64 gpa, u64 size)
{
	struct kvm_gtdp_event event[2];
	int i, nr = gtdp_events(fd, event, 2), hole = 0, removed = 0;

	TEST_ASSERT_EQ(nr, 2);
	for (i = 0; i < 2; i++) {
		TEST_ASSERT_EQ(event[i].gpa, gpa);
		TEST_ASSERT_EQ(event[i].size, size);
		if (event[i].type == KVM_GTDP_EVENT_HOLE) {
			TEST_ASSERT_EQ(event[i].reason, KVM_GTDP_HOLE_SLOT);
			TEST_ASSERT_EQ(event[i].bytes, size);
			hole++;
		} else {
			TEST_ASSERT_EQ(event[i].type,
				       KVM_GTDP_EVENT_SLOT_REMOVED);
			removed++;
		}
	}
	TEST_ASSERT(hole == 1 && removed == 1, "%d holes, %d removals", hole,
		    removed);
}

static void check_delete(enum vm_mem_backing_src_type src)
{
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 rest, taken;
	int fd;

	vm = gtdp_create_built(&vcpu, &fd, src, SIZE);
	rest = SIZE + gtdp_slot0_size(vm);
	gtdp_add_memory(vm, src, GPA2, SLOT + 1, SIZE);
	gtdp_build_ok(fd, GPA2, SIZE, 0, 0);
	gtdp_touch(vcpu, GPA, SIZE);
	gtdp_touch(vcpu, GPA2, SIZE);
	taken = gtdp_vcpu_stat(vcpu, "pf_taken");
	gtdp_assert_pinned(fd, rest + SIZE);
	gtdp_drain_events(fd);

	vm_mem_region_delete(vm, SLOT + 1);
	assert_removed(fd, GPA2, SIZE);
	gtdp_assert_built(fd, rest);
	gtdp_assert_pinned(fd, rest);
	stats = gtdp_stats(fd);
	TEST_ASSERT_EQ(stats.lost_bytes[KVM_GTDP_HOLE_SLOT], SIZE);
	TEST_ASSERT_EQ(stats.lost_bytes[KVM_GTDP_HOLE_NOTIFIER], 0);
	TEST_ASSERT_EQ(stats.lost_bytes[KVM_GTDP_HOLE_OTHER], 0);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), taken);
	gtdp_assert_content(vm, GPA, SIZE, 3);

	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(vm);
}

static const char *test_delete(void)
{
	check_delete(VM_MEM_SRC_SHMEM);
	check_delete(VM_MEM_SRC_ANONYMOUS);
	if (gtdp_free_hugepages(SZ_2M) < 2 * SIZE / SZ_2M)
		return "2M part needs 16 free huge pages of 2M";
	check_delete(VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB);
	return NULL;
}

static const char *test_move(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 rest;
	int fd;

	vm = gtdp_create_built(&vcpu, &fd, VM_MEM_SRC_SHMEM, SIZE);
	rest = SIZE + gtdp_slot0_size(vm);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA2, SLOT + 1, SIZE);
	gtdp_build_ok(fd, GPA2, SIZE, 0, 0);
	gtdp_touch(vcpu, GPA2, SIZE);
	gtdp_drain_events(fd);

	vm_mem_region_move(vm, SLOT + 1, GPA3);
	virt_map_level(vm, GPA3, GPA3, SIZE, PG_LEVEL_2M);
	assert_removed(fd, GPA2, SIZE);
	assert_event(fd, KVM_GTDP_EVENT_SLOT_ADDED, 0, GPA3, SIZE, 0);
	assert_no_event(fd);
	gtdp_assert_built(fd, rest);
	gtdp_assert_pinned(fd, rest);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), 0);
	TEST_ASSERT_EQ(gtdp_build(fd, GPA2, SIZE, 0, 0), -ENOENT);

	gtdp_build_ok(fd, GPA3, SIZE, 0, 0);
	gtdp_assert_pinned(fd, rest + SIZE);
	gtdp_assert_free_touch(fd, vcpu, GPA3, SIZE);
	TEST_ASSERT_EQ(*(u64 *)addr_gpa2hva(vm, GPA3), 2);

	close(fd);
	kvm_vm_free(vm);
	return NULL;
}

/* The log goes on and off: told, nothing is lost that others had. */
static const char *test_flags(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 all;
	int fd;

	vm = gtdp_create_built(&vcpu, &fd, VM_MEM_SRC_SHMEM, SIZE);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA2, SLOT + 1, SIZE);
	gtdp_build_ok(fd, GPA2, SIZE, 0, 0);
	all = 2 * SIZE + gtdp_slot0_size(vm);
	gtdp_drain_events(fd);

	vm_mem_region_set_flags(vm, SLOT + 1, KVM_MEM_LOG_DIRTY_PAGES);
	assert_event(fd, KVM_GTDP_EVENT_SLOT_FLAGS, KVM_GTDP_SLOT_DIRTY_LOG,
		     GPA2, SIZE, 0);
	assert_no_event(fd);
	gtdp_assert_pinned(fd, all);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);
	TEST_ASSERT_EQ(gtdp_stats(fd).hole_bytes, 0);

	vm_mem_region_set_flags(vm, SLOT + 1, 0);
	assert_event(fd, KVM_GTDP_EVENT_SLOT_FLAGS, 0, GPA2, SIZE, 0);
	assert_no_event(fd);
	gtdp_assert_built(fd, all);
	gtdp_assert_pinned(fd, all);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);

	/* Small leaves that nobody wrote to are still write-protected. */
	gtdp_build_ok(fd, GPA2, SIZE, 0, 0);
	assert_no_event(fd);
	gtdp_assert_free_touch(fd, vcpu, GPA2, SIZE);

	close(fd);
	kvm_vm_free(vm);
	return NULL;
}

static const char *test_hotplug(void)
{
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 rest;
	int i, fd;

	vm = gtdp_vm_create(&vcpu);
	rest = gtdp_slot0_size(vm);
	fd = gtdp_attach(vm, KVM_GTDP_ATTACH_AUTO);
	gtdp_build_ok(fd, 0, rest, 0, 0);
	assert_no_event(fd);

	for (i = 0; i < 3; i++) {
		gtdp_add_memory(vm, VM_MEM_SRC_ANONYMOUS, GPA + i * (u64)SZ_1G,
				SLOT + i, SIZE);
		rest += SIZE;
		assert_event(fd, KVM_GTDP_EVENT_SLOT_ADDED, 0, GPA + i * (u64)SZ_1G,
			     SIZE, 0);
		gtdp_assert_built(fd, rest);
		gtdp_assert_pinned(fd, rest);
	}
	gtdp_assert_free_touch(fd, vcpu, GPA + SZ_2G, SIZE);

	/* The one in the middle goes, and comes again somewhere else. */
	vm_mem_region_delete(vm, SLOT + 1);
	assert_removed(fd, GPA2, SIZE);
	gtdp_assert_pinned(fd, rest - SIZE);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA + SZ_512M, SLOT + 1, SIZE);
	assert_event(fd, KVM_GTDP_EVENT_SLOT_ADDED, 0, GPA + SZ_512M, SIZE, 0);
	assert_no_event(fd);
	gtdp_assert_built(fd, rest);
	gtdp_assert_pinned(fd, rest);
	for (i = 0; i < 3; i++)
		gtdp_assert_free_touch(fd, vcpu, i == 1 ? GPA + SZ_512M :
							  GPA + i * (u64)SZ_1G,
				       SIZE);
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), 0);
	stats = gtdp_stats(fd);
	TEST_ASSERT_EQ(stats.auto_builds, 4);
	TEST_ASSERT_EQ(stats.auto_errors, 0);

	/* ROM is told, too, but not built. */
	vm_userspace_mem_region_add(vm, VM_MEM_SRC_ANONYMOUS, GPA + 3ull * SZ_1G,
				    SLOT + 3, SZ_2M / PAGE_SIZE,
				    KVM_MEM_READONLY);
	assert_event(fd, KVM_GTDP_EVENT_SLOT_ADDED, KVM_GTDP_SLOT_READONLY,
		     GPA + 3ull * SZ_1G, SZ_2M, 0);
	gtdp_assert_pinned(fd, rest);

	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(vm);
	return NULL;
}

/*
 * Firmware: the big slot below 4G goes and comes back in other sizes, over the
 * same memory.  With AUTO it is built each time, and nobody else pays.
 */
static const char *test_firmware(void)
{
	static const u64 sizes[] = { SZ_16M, SZ_16M - SZ_64K, SZ_8M + SZ_4K };
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 rest;
	u8 *mem;
	int i, fd;

	vm = gtdp_vm_create(&vcpu);
	mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	TEST_ASSERT(mem != MAP_FAILED, "mmap() failed, errno: %i", errno);
	virt_map_level(vm, GPA, GPA, SIZE, PG_LEVEL_2M);
	fd = gtdp_attach(vm, KVM_GTDP_ATTACH_AUTO);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA2, SLOT + 1, SIZE);
	gtdp_build_ok(fd, 0, gtdp_slot0_size(vm), 0, 0);
	rest = gtdp_slot0_size(vm) + SIZE;

	for (i = 0; i < 9; i++) {
		u64 size = sizes[i % 3];

		vm_set_user_memory_region(vm, SLOT, 0, GPA, size, mem);
		gtdp_assert_built(fd, rest + size);
		gtdp_assert_pinned(fd, rest + size);
		gtdp_assert_free_touch(fd, vcpu, GPA, size);
		gtdp_assert_free_touch(fd, vcpu, GPA2, SIZE);
		TEST_ASSERT_EQ(*(u64 *)mem, i + 1);
		vm_set_user_memory_region(vm, SLOT, 0, GPA, 0, NULL);
		gtdp_assert_pinned(fd, rest);
	}
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), 0);

	close(fd);
	kvm_vm_free(vm);
	munmap(mem, SIZE);
	return NULL;
}

/* poll() and a blocking read() see an event when it comes, and POLLHUP. */
static const char *test_poll(void)
{
	struct kvm_gtdp_event event[2] = {};
	struct kvm_vcpu *vcpu;
	int removed = 0;
	struct pollfd pfd;
	struct kvm_vm *vm;
	char small[sizeof(event[0]) - 1];
	void *nowhere;
	int fd;

	vm = gtdp_vm_create(&vcpu);
	fd = gtdp_attach(vm, 0);
	pfd = (struct pollfd) { .fd = fd, .events = POLLIN };
	TEST_ASSERT_EQ(poll(&pfd, 1, 50), 0);

	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA, SLOT, SIZE);
	TEST_ASSERT_EQ(poll(&pfd, 1, 0), 1);
	TEST_ASSERT_EQ(pfd.revents, POLLIN);
	TEST_ASSERT(read(fd, small, sizeof(small)) == -1 && errno == EINVAL,
		    "read() into %zu bytes: errno: %i", sizeof(small), errno);
	nowhere = mmap(NULL, PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	TEST_ASSERT(read(fd, nowhere, sizeof(event)) == -1 && errno == EFAULT,
		    "read() to nowhere: errno: %i", errno);
	munmap(nowhere, PAGE_SIZE);
	/* What cannot be delivered is lost. */
	TEST_ASSERT_EQ(poll(&pfd, 1, 0), 0);
	vm_mem_region_delete(vm, SLOT);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA2, SLOT + 1, SIZE);
	TEST_ASSERT_EQ(poll(&pfd, 1, 0), 1);
	TEST_ASSERT_EQ(read(fd, event, sizeof(event[0])), sizeof(event[0]));
	TEST_ASSERT_EQ(event[0].type, KVM_GTDP_EVENT_SLOT_REMOVED);
	TEST_ASSERT_EQ(read(fd, event, sizeof(event) - 1), sizeof(event[0]));
	TEST_ASSERT_EQ(event[0].type, KVM_GTDP_EVENT_SLOT_ADDED);
	TEST_ASSERT_EQ(poll(&pfd, 1, 0), 0);

	/* What is left when the VM goes can be read, and then there is an end. */
	vm_mem_region_delete(vm, SLOT + 1);
	kvm_vm_free(vm);
	TEST_ASSERT(gtdp_wait_hup(fd, 5000), "no POLLHUP");
	while (read(fd, event, sizeof(event[0])) == sizeof(event[0])) {
		TEST_ASSERT_EQ(event[0].type, KVM_GTDP_EVENT_SLOT_REMOVED);
		removed++;
	}
	TEST_ASSERT(removed, "what came before the end is lost");
	TEST_ASSERT_EQ(read(fd, event, sizeof(event)), 0);
	close(fd);
	return NULL;
}

static const struct gtdp_case cases[] = {
	{ "property 4: deleting a slot costs that slot only", test_delete },
	{ "property 4: moving a slot costs that slot only", test_move },
	{ "flags", test_flags },
	{ "hotplug", test_hotplug },
	{ "firmware", test_firmware },
	{ "poll", test_poll },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
