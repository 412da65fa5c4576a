// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test that with kvm.gtdp=off KVM is what it was: no device, memory is mapped on
 * demand, and a slot that goes takes the mapping of the whole VM with it.
 */
#include "gtdp.h"

#define GPA	((u64)GTDP_TEST_GPA)
#define SLOT	GTDP_TEST_SLOT
#define SIZE	SZ_4M
#define PAGES	(SIZE / PAGE_SIZE)

static u64 touch_faults(struct kvm_vcpu *vcpu, u64 gpa)
{
	u64 before = gtdp_vcpu_stat(vcpu, "pf_taken");

	gtdp_touch(vcpu, gpa, SIZE);
	return gtdp_vcpu_stat(vcpu, "pf_taken") - before;
}

int main(int argc, char *argv[])
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 faults;
	int fd;

	fd = open("/sys/module/kvm/parameters/gtdp", O_RDONLY);
	if (fd >= 0) {
		char value[8] = {};

		TEST_ASSERT(read(fd, value, sizeof(value) - 1) > 0,
			    "cannot read the parameter");
		close(fd);
		__TEST_REQUIRE(!strncmp(value, "off", 3),
			       "kvm.gtdp is %s: load kvm with gtdp=off", value);
	}
	ksft_print_header();
	ksft_set_plan(1);

	fd = gtdp_open();
	TEST_ASSERT(fd < 0 && errno == ENOENT, "%s is there", GTDP_DEV_PATH);

	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA, SLOT, SIZE);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA + SZ_1G, SLOT + 1, SIZE);
	faults = touch_faults(vcpu, GPA);
	TEST_ASSERT(faults >= PAGES, "%lu faults", faults);
	TEST_ASSERT_EQ(touch_faults(vcpu, GPA), 0);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);

	/* The quirk of old, of which a built VM is freed. */
	vm_mem_region_delete(vm, SLOT + 1);
	faults = touch_faults(vcpu, GPA);
	TEST_ASSERT(faults >= PAGES, "%lu faults", faults);

	vm_mem_region_set_flags(vm, SLOT, KVM_MEM_LOG_DIRTY_PAGES);
	faults = touch_faults(vcpu, GPA);
	TEST_ASSERT(faults >= PAGES, "%lu faults", faults);
	gtdp_assert_content(vm, GPA, SIZE, 4);
	kvm_vm_free(vm);

	ksft_test_result_pass("property 8: off is as if it was not there\n");
	ksft_finished();
}
