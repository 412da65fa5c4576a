// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test kvm.gtdp=force: a VM that nobody asked for is built, slot by slot, before
 * its vCPUs can touch it, and stays so.
 */
#include "gtdp.h"

#define GPA	((u64)GTDP_TEST_GPA)
#define SLOT	GTDP_TEST_SLOT
#define SIZE	SZ_16M

int main(int argc, char *argv[])
{
	struct kvm_gtdp_info info;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int fd = gtdp_open();
	u64 all;

	__TEST_REQUIRE(fd >= 0, "%s: %s", GTDP_DEV_PATH, strerror(errno));
	close(fd);
	gtdp_get_info(&info);
	__TEST_REQUIRE(info.features & KVM_GTDP_FEAT_FORCE,
		       "load kvm with gtdp=force");
	ksft_print_header();
	ksft_set_plan(1);

	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, VM_MEM_SRC_ANONYMOUS, GPA, SLOT, SIZE);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA + SZ_1G, SLOT + 1, SIZE);
	all = 2 * SIZE + gtdp_slot0_size(vm);
	TEST_ASSERT_EQ(gtdp_own_pin(), all);
	gtdp_touch(vcpu, GPA, SIZE);
	gtdp_touch(vcpu, GPA + SZ_1G, SIZE);
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), 0);

	/* Who attaches finds it built; what he leaves stays built. */
	fd = gtdp_attach(vm, 0);
	gtdp_assert_built(fd, all);
	TEST_ASSERT_EQ(gtdp_stats(fd).auto_builds, 3);
	TEST_ASSERT_EQ(gtdp_stats(fd).auto_errors, 0);
	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), all);
	vm_mem_region_delete(vm, SLOT + 1);
	TEST_ASSERT_EQ(gtdp_own_pin(), all - SIZE);
	gtdp_touch(vcpu, GPA, SIZE);
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), 0);
	gtdp_assert_content(vm, GPA, SIZE, 2);

	kvm_vm_free(vm);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	ksft_test_result_pass("force\n");
	ksft_finished();
}
