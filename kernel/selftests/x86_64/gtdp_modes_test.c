// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test VMs that are not plain: with SMM, and with memory that must not be mapped
 * by others.
 */
#include "gtdp.h"

#define GPA		((u64)SZ_1G)	/* within reach of real mode */
#define SLOT		GTDP_TEST_SLOT
#define SMM_SLOT(id)	(1 << 16 | (id))
#define SIZE		SZ_4M

#define SMRAM_GPA	0x1000000
#define SMRAM_SIZE	SZ_64K
#define SMI_PORT	0xe

static void inject_smi(struct kvm_vcpu *vcpu)
{
	struct kvm_vcpu_events events;

	vcpu_events_get(vcpu, &events);
	events.smi.pending = 1;
	events.flags |= KVM_VCPUEVENT_VALID_SMM;
	vcpu_events_set(vcpu, &events);
}

/* Real mode with limits of 4G: adds 1 to two words, tells, and returns. */
static void write_smi_handler(u8 *smram, u32 addr, u32 addr2)
{
	u8 code[] = {
		0x67, 0x66, 0xff, 0x05, 0, 0, 0, 0,	/* incl addr */
		0x67, 0x66, 0xff, 0x05, 0, 0, 0, 0,	/* incl addr2 */
		0xe4, SMI_PORT,				/* in $SMI_PORT, %al */
		0x0f, 0xaa,				/* rsm */
	};

	memcpy(code + 4, &addr, sizeof(addr));
	memcpy(code + 12, &addr2, sizeof(addr2));
	memcpy(smram + 0x8000, code, sizeof(code));
}

static void run_smi(struct kvm_vcpu *vcpu)
{
	inject_smi(vcpu);
	vcpu_run(vcpu);
	TEST_ASSERT_KVM_EXIT_REASON(vcpu, KVM_EXIT_IO);
	TEST_ASSERT_EQ(vcpu->run->io.port, SMI_PORT);
}

/*
 * SMM sees RAM through slots of its own, which are mapped on demand.  The built
 * mapping of the same memory goes on beside that.
 */
static const char *test_smm(void)
{
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 all, taken, smm_faults;
	u8 *mem;
	int i, fd;

	if (!kvm_has_cap(KVM_CAP_X86_SMM))
		return "no SMM in this kernel";

	vm = gtdp_vm_create(&vcpu);
	vm_userspace_mem_region_add(vm, VM_MEM_SRC_ANONYMOUS, SMRAM_GPA,
				    SMM_SLOT(1), SMRAM_SIZE / PAGE_SIZE, 0);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA, SLOT, SIZE);
	mem = addr_gpa2hva(vm, GPA);
	vm_set_user_memory_region(vm, SMM_SLOT(2), 0, GPA, SIZE, mem);
	write_smi_handler(addr_gpa2hva(vm, SMRAM_GPA), GPA, GPA + SZ_2M);
	vcpu_set_msr(vcpu, MSR_IA32_SMBASE, SMRAM_GPA);

	fd = gtdp_attach(vm, KVM_GTDP_ATTACH_AUTO);
	TEST_ASSERT(!gtdp_build_slots(fd), "BUILD failed");
	all = SIZE + gtdp_slot0_size(vm);
	gtdp_assert_built(fd, all);
	gtdp_assert_pinned(fd, all);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);

	for (i = 0; i < 3; i++) {
		run_smi(vcpu);
		stats = gtdp_stats(fd);
		TEST_ASSERT_EQ(stats.faults, 0);
		TEST_ASSERT_EQ(stats.hole_bytes, 0);
		taken = gtdp_vcpu_stat(vcpu, "pf_taken");
		/* Returns from SMM, and goes on with what is built. */
		gtdp_touch(vcpu, GPA, SIZE);
		TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), taken);
		TEST_ASSERT_EQ(*(u64 *)mem, 3 + 2 * i);
		TEST_ASSERT_EQ(*(u64 *)(mem + SZ_2M), 3 + 2 * i);
		TEST_ASSERT_EQ(*(u64 *)(mem + PAGE_SIZE), 2 + i);
	}
	smm_faults = gtdp_stats(fd).faults_other;
	TEST_ASSERT(smm_faults, "SMM's faults are not counted as others'");

	/* What the owner takes is gone for both. */
	TEST_ASSERT(!madvise(mem, SZ_2M, MADV_REMOVE), "madvise() failed");
	stats = gtdp_stats(fd);
	TEST_ASSERT_EQ(stats.hole_bytes, SZ_2M);
	TEST_ASSERT_EQ(stats.lost_bytes[KVM_GTDP_HOLE_NOTIFIER], SZ_2M);
	run_smi(vcpu);
	TEST_ASSERT(gtdp_stats(fd).faults_other > smm_faults,
		    "SMM kept what the owner took");
	TEST_ASSERT_EQ(*(u64 *)mem, 1);
	gtdp_touch(vcpu, GPA, SIZE);
	TEST_ASSERT_EQ(*(u64 *)mem, 2);
	gtdp_build_ok(fd, GPA, SIZE, 0, 0);
	gtdp_assert_built(fd, all);

	/* SMM's slot goes, and nobody else loses anything. */
	taken = gtdp_vcpu_stat(vcpu, "pf_taken");
	vm_set_user_memory_region(vm, SMM_SLOT(2), 0, GPA, 0, NULL);
	stats = gtdp_stats(fd);
	TEST_ASSERT_EQ(stats.lost_bytes[KVM_GTDP_HOLE_SLOT], 0);
	TEST_ASSERT_EQ(stats.lost_bytes[KVM_GTDP_HOLE_OTHER], 0);
	gtdp_assert_built(fd, all);
	gtdp_assert_pinned(fd, all);
	gtdp_assert_free_touch(fd, vcpu, GPA, SIZE);
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), taken);

	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(vm);
	return NULL;
}

static const char *refuse(u64 type, const char *without)
{
	int fd, dev_fd = gtdp_open();
	struct kvm_vm *vm;

	if (!(kvm_check_cap(KVM_CAP_VM_TYPES) & BIT(type))) {
		close(dev_fd);
		return without;
	}
	vm = vm_create_barebones_type(type);
	fd = __gtdp_attach(dev_fd, vm->fd, 0);
	TEST_ASSERT(fd == -1 && errno == EOPNOTSUPP,
		    "ATTACH to a VM of type %lu: %i, errno: %i", type, fd,
		    errno);
	kvm_vm_free(vm);
	close(dev_fd);
	return NULL;
}

static const char *test_private(void)
{
	return refuse(KVM_X86_SW_PROTECTED_VM,
		      "this kernel has no KVM_X86_SW_PROTECTED_VM");
}

static const char *test_sev(void)
{
	return refuse(KVM_X86_SEV_VM, "this host has no SEV");
}

static const struct gtdp_case cases[] = {
	{ "property 7: SMM", test_smm },
	{ "property 7: private memory is refused", test_private },
	{ "property 7: SEV is refused", test_sev },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
