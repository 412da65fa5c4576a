// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test a host without TDP (kvm_amd.npt=0, kvm_intel.ept=0): a VM can be attached
 * to and looked at, what needs TDP says so, and the guest runs as ever.
 */
#include "gtdp.h"

#define GPA	((u64)GTDP_TEST_GPA)
#define SIZE	SZ_4M

static int range_call(int fd, unsigned long cmd)
{
	struct kvm_gtdp_range range = { .gpa = GPA, .size = SIZE };
	int ret = ioctl(fd, cmd, &range) ? -errno : 0;

	if (ret)
		TEST_ASSERT(range.gpa == GPA && range.size == SIZE,
			    "an error, but the range was advanced");
	return ret;
}

int main(int argc, char *argv[])
{
	struct kvm_gtdp_slot slots[4];
	struct kvm_gtdp_slots req = {
		.count = ARRAY_SIZE(slots),
		.slots = (uintptr_t)slots,
	};
	struct kvm_gtdp_stats stats;
	struct kvm_gtdp_info info;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int fd = gtdp_open();

	__TEST_REQUIRE(fd >= 0, "%s: %s", GTDP_DEV_PATH, strerror(errno));
	close(fd);
	gtdp_get_info(&info);
	__TEST_REQUIRE(info.mode == KVM_GTDP_MODE_SHADOW,
		       "this host has TDP; load kvm_amd with npt=0, or kvm_intel with ept=0");
	ksft_print_header();
	ksft_set_plan(1);

	TEST_ASSERT_EQ(info.root_level, 0);
	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA, GTDP_TEST_SLOT, SIZE);
	fd = gtdp_attach(vm, KVM_GTDP_ATTACH_AUTO);

	TEST_ASSERT(!__kvm_ioctl(fd, KVM_GTDP_GET_SLOTS, &req),
		    "GET_SLOTS failed, errno: %i", errno);
	TEST_ASSERT_EQ(req.count, 2);
	TEST_ASSERT_EQ(range_call(fd, KVM_GTDP_BUILD), -EOPNOTSUPP);
	TEST_ASSERT_EQ(range_call(fd, KVM_GTDP_SPLIT), -EOPNOTSUPP);
	TEST_ASSERT_EQ(range_call(fd, KVM_GTDP_COLLAPSE), -EOPNOTSUPP);
	TEST_ASSERT_EQ(range_call(fd, KVM_GTDP_RELEASE), 0);

	gtdp_touch(vcpu, GPA, SIZE);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA + SZ_1G, GTDP_TEST_SLOT + 1,
			SIZE);
	gtdp_touch(vcpu, GPA + SZ_1G, SIZE);
	madvise(addr_gpa2hva(vm, GPA), SIZE, MADV_REMOVE);
	gtdp_touch(vcpu, GPA, SIZE);
	gtdp_assert_content(vm, GPA, SIZE, 1);
	vm_mem_region_delete(vm, GTDP_TEST_SLOT + 1);
	gtdp_touch(vcpu, GPA, SIZE);
	gtdp_assert_content(vm, GPA, SIZE, 2);

	stats = gtdp_stats(fd);
	TEST_ASSERT_EQ(stats.built_bytes, 0);
	TEST_ASSERT_EQ(stats.mapped_bytes, 0);
	TEST_ASSERT_EQ(stats.auto_builds, 0);
	gtdp_assert_pinned(fd, 0);
	close(fd);
	gtdp_touch(vcpu, GPA, SIZE);
	kvm_vm_free(vm);
	ksft_test_result_pass("property 7: shadow paging\n");
	ksft_finished();
}
