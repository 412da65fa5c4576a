// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test the interface of /dev/kvm-gtdp: what it reports, whom it serves and
 * what it refuses.  What a build does is tested by gtdp_map_test.
 */
#include <sys/stat.h>
#include <sys/wait.h>

#include "gtdp.h"

#define SIZE	SZ_4M

#define ASSERT_ERRNO(expr, err)						\
do {									\
	int __ret = (expr);						\
									\
	TEST_ASSERT(__ret < 0 && errno == (err),			\
		    #expr ": expected " #err ", got %i, errno: %i (%s)",\
		    __ret, errno, strerror(errno));			\
} while (0)

#define ASSERT_RET(expr, err)						\
do {									\
	int __ret = (expr);						\
									\
	TEST_ASSERT(__ret == -(err),					\
		    #expr ": expected -" #err ", got %i", __ret);	\
} while (0)

static int build_raw(int fd, struct kvm_gtdp_range range)
{
	return ioctl(fd, KVM_GTDP_BUILD, &range);
}

static int release_raw(int fd, struct kvm_gtdp_range range)
{
	return ioctl(fd, KVM_GTDP_RELEASE, &range);
}

static const char *test_info(void)
{
	struct kvm_gtdp_info info;
	int i, dev_fd = gtdp_open();

	gtdp_get_info(&info);
	TEST_ASSERT_EQ(info.abi_version, KVM_GTDP_ABI_VERSION);
	TEST_ASSERT_EQ(info.mode, host_cpu_is_intel ? KVM_GTDP_MODE_EPT :
						      KVM_GTDP_MODE_NPT);
	TEST_ASSERT(info.root_level == 4 || info.root_level == 5,
		    "root level %u", info.root_level);
	TEST_ASSERT(info.max_leaf_level >= PG_LEVEL_4K &&
		    info.max_leaf_level <= PG_LEVEL_1G,
		    "largest leaf level %u", info.max_leaf_level);
	for (i = 0; i < ARRAY_SIZE(info.reserved); i++)
		TEST_ASSERT_EQ(info.reserved[i], 0);

	ASSERT_ERRNO(ioctl(dev_fd, KVM_GTDP_GET_INFO, NULL), EFAULT);
	ASSERT_ERRNO(ioctl(dev_fd, KVM_GTDP_STATS, &info), ENOTTY);
	ASSERT_ERRNO(ioctl(dev_fd, _IO(KVM_GTDP_IOC, 0xff), 0), ENOTTY);
	close(dev_fd);
	return NULL;
}

static const char *test_root_only(void)
{
	int status;
	pid_t pid;

	if (geteuid())
		return "needs root";

	pid = fork();
	TEST_ASSERT(pid >= 0, "fork() failed, errno: %i", errno);
	if (!pid) {
		if (setgid(65534) || setuid(65534))
			_exit(2);
		_exit(gtdp_open() >= 0 || errno != EACCES);
	}
	TEST_ASSERT(waitpid(pid, &status, 0) == pid && !status,
		    "opened by an unprivileged user, status 0x%x", status);
	return NULL;
}

static const char *test_attach(void)
{
	struct kvm_gtdp_attach attach = {};
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm, *vm2;
	int i, fd, fd2, null_fd, dev_fd = gtdp_open();

	vm = gtdp_vm_create(&vcpu);
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	ASSERT_ERRNO(__gtdp_attach(dev_fd, -1, 0), EBADF);
	ASSERT_ERRNO(__gtdp_attach(dev_fd, 4095, 0), EBADF);
	ASSERT_ERRNO(__gtdp_attach(dev_fd, null_fd, 0), EINVAL);
	ASSERT_ERRNO(__gtdp_attach(dev_fd, dev_fd, 0), EINVAL);
	ASSERT_ERRNO(__gtdp_attach(dev_fd, vm->kvm_fd, 0), EINVAL);
	ASSERT_ERRNO(__gtdp_attach(dev_fd, vcpu->fd, 0), EINVAL);
	ASSERT_ERRNO(ioctl(dev_fd, KVM_GTDP_ATTACH, NULL), EFAULT);

	for (i = 1; i < 32; i++)
		ASSERT_ERRNO(__gtdp_attach(dev_fd, vm->fd, 1u << i), EINVAL);
	for (i = 0; i < ARRAY_SIZE(attach.reserved); i++) {
		attach = (struct kvm_gtdp_attach) { .vm_fd = vm->fd };
		attach.reserved[i] = 1;
		ASSERT_ERRNO(__kvm_ioctl(dev_fd, KVM_GTDP_ATTACH, &attach),
			     EINVAL);
	}

	/* None of the above may have left a trace. */
	fd = gtdp_attach(vm, 0);
	TEST_ASSERT(fcntl(fd, F_GETFD) & FD_CLOEXEC, "handle without CLOEXEC");
	ASSERT_ERRNO(__gtdp_attach(dev_fd, fd, 0), EINVAL);
	ASSERT_ERRNO(__gtdp_attach(dev_fd, vm->fd, 0), EBUSY);
	ASSERT_ERRNO(__gtdp_attach(dev_fd, vm->fd, KVM_GTDP_ATTACH_AUTO),
		     EBUSY);
	ASSERT_ERRNO(ioctl(fd, KVM_GTDP_GET_INFO, &attach), ENOTTY);
	ASSERT_ERRNO(ioctl(fd, _IO(KVM_GTDP_IOC, 0xff), 0), ENOTTY);
	TEST_ASSERT(!gtdp_wait_hup(fd, 0), "POLLHUP with the VM alive");

	/* One object for each VM, and not one for all. */
	vm2 = vm_create_barebones();
	fd2 = gtdp_attach(vm2, 0);
	close(fd2);
	kvm_vm_free(vm2);

	close(fd);
	fd = gtdp_attach(vm, KVM_GTDP_ATTACH_AUTO);
	close(fd);
	close(null_fd);
	close(dev_fd);
	kvm_vm_free(vm);
	return NULL;
}

static int get_slots(int fd, struct kvm_gtdp_slot *slots, u32 *count)
{
	struct kvm_gtdp_slots req = {
		.count = *count,
		.slots = (uintptr_t)slots,
	};
	int ret = __kvm_ioctl(fd, KVM_GTDP_GET_SLOTS, &req);

	*count = req.count;
	return ret;
}

static void assert_slot(const struct kvm_gtdp_slot *slot, struct kvm_vm *vm,
			u32 id, u64 page_size, u32 flags)
{
	struct userspace_mem_region *region = memslot2region(vm, id);

	TEST_ASSERT_EQ(slot->id, id);
	TEST_ASSERT_EQ(slot->gpa, region->region.guest_phys_addr);
	TEST_ASSERT_EQ(slot->size, region->region.memory_size);
	TEST_ASSERT_EQ(slot->hva, region->region.userspace_addr);
	TEST_ASSERT_EQ(slot->page_size, page_size);
	TEST_ASSERT_EQ(slot->flags, flags);
	TEST_ASSERT_EQ(slot->reserved, 0);
}

static const char *test_slots(void)
{
	bool huge = gtdp_free_hugepages(SZ_2M) >= 2;
	struct kvm_gtdp_slot slots[8];
	struct kvm_gtdp_slots req;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u32 count;
	int fd;

	/* Not in the order of their addresses, and of all kinds. */
	vm = gtdp_vm_create(&vcpu);
	vm_userspace_mem_region_add(vm, VM_MEM_SRC_SHMEM, GTDP_TEST_GPA + SZ_1G,
				    11, SIZE / PAGE_SIZE, KVM_MEM_READONLY);
	vm_userspace_mem_region_add(vm, huge ? VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB :
					       VM_MEM_SRC_SHMEM,
				    GTDP_TEST_GPA, 12, SIZE / PAGE_SIZE, 0);
	vm_userspace_mem_region_add(vm, VM_MEM_SRC_ANONYMOUS,
				    GTDP_TEST_GPA + SZ_2G, 10, SIZE / PAGE_SIZE,
				    KVM_MEM_LOG_DIRTY_PAGES);
	fd = gtdp_attach(vm, 0);

	count = 0;
	ASSERT_ERRNO(get_slots(fd, NULL, &count), E2BIG);
	TEST_ASSERT_EQ(count, 4);
	count = 3;
	ASSERT_ERRNO(get_slots(fd, slots, &count), E2BIG);
	TEST_ASSERT_EQ(count, 4);
	ASSERT_ERRNO(get_slots(fd, NULL, &count), EFAULT);

	count = 4;
	memset(slots, 0xff, sizeof(slots));
	TEST_ASSERT(!get_slots(fd, slots, &count), "exact room is refused");
	count = ARRAY_SIZE(slots);
	TEST_ASSERT(!get_slots(fd, slots, &count), "ample room is refused");
	TEST_ASSERT_EQ(count, 4);
	assert_slot(&slots[0], vm, 0, PAGE_SIZE, 0);
	assert_slot(&slots[1], vm, 12, huge ? SZ_2M : PAGE_SIZE, 0);
	assert_slot(&slots[2], vm, 11, PAGE_SIZE, KVM_GTDP_SLOT_READONLY);
	assert_slot(&slots[3], vm, 10, PAGE_SIZE, KVM_GTDP_SLOT_DIRTY_LOG);

	req = (struct kvm_gtdp_slots) { .count = 8, .reserved32 = 1 };
	ASSERT_ERRNO(__kvm_ioctl(fd, KVM_GTDP_GET_SLOTS, &req), EINVAL);
	req = (struct kvm_gtdp_slots) { .count = 8, .reserved = { 0, 1 } };
	ASSERT_ERRNO(__kvm_ioctl(fd, KVM_GTDP_GET_SLOTS, &req), EINVAL);
	ASSERT_ERRNO(ioctl(fd, KVM_GTDP_GET_SLOTS, NULL), EFAULT);

	close(fd);
	kvm_vm_free(vm);
	return NULL;
}

static void assert_no_trace(int fd)
{
	struct kvm_gtdp_stats stats = gtdp_stats(fd);

	TEST_ASSERT_EQ(stats.built_bytes, 0);
	TEST_ASSERT_EQ(stats.pinned_bytes, 0);
}

/* What is wrong with a range whatever it is for. */
static void test_bad_ranges(int fd, int (*call)(int, struct kvm_gtdp_range))
{
	const struct kvm_gtdp_range bad[] = {
		{ .gpa = GTDP_TEST_GPA, .size = 0 },
		{ .gpa = GTDP_TEST_GPA + 1, .size = PAGE_SIZE },
		{ .gpa = GTDP_TEST_GPA + 2048, .size = PAGE_SIZE },
		{ .gpa = GTDP_TEST_GPA, .size = 1 },
		{ .gpa = GTDP_TEST_GPA, .size = PAGE_SIZE + 512 },
		{ .gpa = -PAGE_SIZE, .size = 2 * PAGE_SIZE },
		{ .gpa = -PAGE_SIZE, .size = PAGE_SIZE },
		{ .gpa = GTDP_TEST_GPA, .size = -PAGE_SIZE },
		{ .gpa = GTDP_TEST_GPA, .size = -GTDP_TEST_GPA },
		{ .gpa = 1ull << 52, .size = PAGE_SIZE },
		{ .gpa = GTDP_TEST_GPA, .size = 1ull << 52 },
		{ .gpa = GTDP_TEST_GPA, .size = SIZE, .flags = 1u << 2 },
		{ .gpa = GTDP_TEST_GPA, .size = SIZE, .flags = 1u << 31 },
		{ .gpa = GTDP_TEST_GPA, .size = SIZE, .max_level = 4 },
		{ .gpa = GTDP_TEST_GPA, .size = SIZE, .max_level = -1 },
		{ .gpa = GTDP_TEST_GPA, .size = SIZE, .reserved = { 1 } },
		{ .gpa = GTDP_TEST_GPA, .size = SIZE, .reserved = { 0, 1 } },
	};
	int i, ret;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		ret = call(fd, bad[i]);
		TEST_ASSERT(ret < 0 && errno == EINVAL,
			    "bad range %d: expected EINVAL, got %i, errno: %i",
			    i, ret, errno);
		assert_no_trace(fd);
	}
}

static const char *test_ranges(void)
{
	struct kvm_gtdp_range range = {
		.gpa = GTDP_TEST_GPA,
		.size = SIZE,
	};
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int i, fd;

	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GTDP_TEST_GPA, GTDP_TEST_SLOT,
			SIZE);
	fd = gtdp_attach(vm, 0);

	test_bad_ranges(fd, build_raw);
	test_bad_ranges(fd, release_raw);
	ASSERT_ERRNO(ioctl(fd, KVM_GTDP_BUILD, NULL), EFAULT);
	ASSERT_ERRNO(ioctl(fd, KVM_GTDP_RELEASE, NULL), EFAULT);
	ASSERT_ERRNO(ioctl(fd, KVM_GTDP_STATS, NULL), EFAULT);

	/* RELEASE knows no flags and no levels. */
	for (i = 0; i < 2; i++) {
		range.flags = 1u << i;
		ASSERT_ERRNO(release_raw(fd, range), EINVAL);
	}
	range.flags = 0;
	range.max_level = 1;
	ASSERT_ERRNO(release_raw(fd, range), EINVAL);

	/* There is nothing to release, and that is fine. */
	TEST_ASSERT(!gtdp_release(fd, GTDP_TEST_GPA, SIZE), "RELEASE failed");
	TEST_ASSERT(!gtdp_release(fd, SZ_1G, SIZE), "RELEASE failed");
	assert_no_trace(fd);

	close(fd);
	kvm_vm_free(vm);
	return NULL;
}

static const char *test_holes(void)
{
	const u64 gap = GTDP_TEST_GPA + SIZE;
	u64 gpa, size;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int fd, ret;

	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GTDP_TEST_GPA, GTDP_TEST_SLOT,
			SIZE);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, gap + SZ_2M, GTDP_TEST_SLOT + 1,
			SIZE);
	fd = gtdp_attach(vm, 0);

	/* Before, between and after the slots. */
	ASSERT_RET(gtdp_build(fd, GTDP_TEST_GPA - SZ_2M, SZ_4M, 0, 0), ENOENT);
	ASSERT_RET(gtdp_build(fd, gap, PAGE_SIZE, 0, 0), ENOENT);
	ASSERT_RET(gtdp_build(fd, gap, SZ_4M, 0, 0), ENOENT);
	ASSERT_RET(gtdp_build(fd, gap + SZ_2M + SIZE, PAGE_SIZE, 0, 0), ENOENT);
	assert_no_trace(fd);

	/* Over the gap: all up to it, and not a page more. */
	gpa = GTDP_TEST_GPA + SIZE / 2;
	size = SIZE * 2;
	do {
		ret = __gtdp_build(fd, &gpa, &size, 0, 0);
	} while (size && (!ret || ret == -EAGAIN || ret == -EINTR));
	ASSERT_RET(ret, ENOENT);
	TEST_ASSERT_EQ(gpa, gap);
	TEST_ASSERT_EQ(size, SIZE * 3 / 2);
	TEST_ASSERT_EQ(gtdp_stats(fd).built_bytes, SIZE / 2);
	TEST_ASSERT_EQ(gtdp_stats(fd).mapped_bytes, SIZE / 2);
	TEST_ASSERT_EQ(gtdp_stats(fd).pinned_bytes, SIZE / 2);

	/* A hole in the owner's memory is another thing than one in the VM. */
	munmap(addr_gpa2hva(vm, gap + SZ_2M + SIZE / 2), PAGE_SIZE);
	ASSERT_RET(gtdp_build(fd, gap + SZ_2M, SIZE, 0, 0), EFAULT);
	TEST_ASSERT(!gtdp_release(fd, GTDP_TEST_GPA, 2 * SIZE + SZ_2M),
		    "RELEASE failed");
	assert_no_trace(fd);

	close(fd);
	kvm_vm_free(vm);
	return NULL;
}

/* A handle does not hold the VM, and says so once the VM has gone. */
static const char *test_vm_freed(void)
{
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u32 count = 0;
	int fd;

	vm = gtdp_vm_create(&vcpu);
	fd = gtdp_attach(vm, 0);
	TEST_ASSERT(!gtdp_build_slots(fd), "BUILD failed");
	TEST_ASSERT(gtdp_own_pin(), "nothing is pinned");
	kvm_vm_free(vm);

	TEST_ASSERT(gtdp_wait_hup(fd, 5000), "no POLLHUP from a freed VM");
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	ASSERT_ERRNO(get_slots(fd, NULL, &count), ESRCH);
	ASSERT_ERRNO(__kvm_ioctl(fd, KVM_GTDP_STATS, &stats), ESRCH);
	ASSERT_RET(gtdp_build(fd, 0, PAGE_SIZE, 0, 0), ESRCH);
	ASSERT_RET(gtdp_release(fd, 0, PAGE_SIZE), ESRCH);
	close(fd);
	return NULL;
}

static const struct gtdp_case cases[] = {
	{ "info", test_info },
	{ "root_only", test_root_only },
	{ "attach", test_attach },
	{ "slots", test_slots },
	{ "ranges", test_ranges },
	{ "holes", test_holes },
	{ "vm_freed", test_vm_freed },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
