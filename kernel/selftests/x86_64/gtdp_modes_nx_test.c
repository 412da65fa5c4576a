// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test the mitigation that makes large leaves not executable: a guest that
 * executes from one has it split, and loses nothing that is not counted and
 * cannot be had again; whether it is on may change with the VM running.
 */
#include "gtdp_bed.h"

#define GPA		((u64)GTDP_TEST_GPA)
#define SIZE		GTDP_BED_SIZE

#define PARAM		"/sys/module/kvm/parameters/nx_huge_pages"
#define PERIOD		PARAM "_recovery_period_ms"
#define RATIO		PARAM "_recovery_ratio"

#define RET_OPCODE	0xc3

/* Calls one byte of code in each large page, after writing to all of them. */
static void guest_code(void)
{
	u64 gva;

	for (;;) {
		for (gva = GPA; gva < GPA + SIZE; gva += PAGE_SIZE)
			WRITE_ONCE(*(u64 *)(gva + 64),
				   READ_ONCE(*(u64 *)(gva + 64)) + 1);
		GUEST_SYNC(0);
		for (gva = GPA; gva < GPA + SIZE; gva += SZ_2M)
			((void (*)(void))gva)();
		GUEST_SYNC(1);
	}
}

static u64 run(struct kvm_vcpu *vcpu, u64 stage)
{
	u64 before = gtdp_vcpu_stat(vcpu, "pf_taken");
	struct ucall uc;

	vcpu_run(vcpu);
	TEST_ASSERT_KVM_EXIT_REASON(vcpu, KVM_EXIT_IO);
	TEST_ASSERT_EQ(get_ucall(vcpu, &uc), UCALL_SYNC);
	TEST_ASSERT_EQ(uc.args[1], stage);
	return gtdp_vcpu_stat(vcpu, "pf_taken") - before;
}

static u64 lost(const struct kvm_gtdp_stats *stats)
{
	u64 sum = 0;
	int i;

	for (i = 0; i < KVM_GTDP_HOLE_REASONS; i++)
		sum += stats->lost_bytes[i];
	return sum;
}

/* Of the reason alone, with as much told in events. */
static void assert_told(int fd, u32 reason)
{
	struct kvm_gtdp_stats stats = gtdp_stats(fd);
	struct kvm_gtdp_event event[64];
	int i, nr = gtdp_events(fd, event, ARRAY_SIZE(event));
	u64 told = 0;

	for (i = 0; i < nr; i++) {
		TEST_ASSERT_EQ(event[i].type, KVM_GTDP_EVENT_HOLE);
		TEST_ASSERT_EQ(event[i].reason, reason);
		told += event[i].bytes;
	}
	TEST_ASSERT_EQ(told, stats.lost_bytes[reason]);
	TEST_ASSERT_EQ(told, lost(&stats));
}

static struct kvm_vm *create(struct kvm_vcpu **vcpu, int *fd, u64 *all)
{
	struct kvm_vm *vm = vm_create_with_one_vcpu(vcpu, guest_code);
	u64 i;

	gtdp_add_memory(vm, VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, GPA,
			GTDP_TEST_SLOT, SIZE);
	for (i = 0; i < SIZE; i += SZ_2M)
		*(u8 *)addr_gpa2hva(vm, GPA + i) = RET_OPCODE;
	*fd = gtdp_attach(vm, 0);
	TEST_ASSERT(!gtdp_build_slots(*fd), "BUILD failed");
	*all = SIZE + gtdp_slot0_size(vm);
	TEST_ASSERT(gtdp_stats(*fd).leaves[PG_LEVEL_2M] >= SIZE / SZ_2M,
		    "not built of large leaves");
	gtdp_drain_events(*fd);
	return vm;
}

static void check_execute(bool expect_splits)
{
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 all, faults;
	int fd;

	vm = create(&vcpu, &fd, &all);
	run(vcpu, 0);
	TEST_ASSERT_EQ(gtdp_stats(fd).faults, 0);

	faults = run(vcpu, 1);
	stats = gtdp_stats(fd);
	if (expect_splits)
		TEST_ASSERT(faults >= SIZE / SZ_2M, "%lu faults", faults);
	else
		TEST_ASSERT_EQ(faults, 0);
	TEST_ASSERT_EQ(stats.hole_bytes, 0);
	TEST_ASSERT_EQ(lost(&stats), 0);
	gtdp_assert_pinned(fd, all);

	/* Once split, it stays so: data and code without a fault. */
	TEST_ASSERT_EQ(run(vcpu, 0), 0);
	TEST_ASSERT_EQ(run(vcpu, 1), 0);

	/* A build leaves it as it is. */
	TEST_ASSERT(!gtdp_build_slots(fd), "BUILD failed");
	gtdp_assert_built(fd, all);
	TEST_ASSERT_EQ(run(vcpu, 0), 0);
	TEST_ASSERT_EQ(run(vcpu, 1), 0);

	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(vm);
}

/*
 * KVM's worker takes split tables away after a while, so that large leaves can
 * come back: a hole by its own name.
 */
static void check_recovery(void)
{
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int fd, msecs;
	u64 all;

	vm = create(&vcpu, &fd, &all);
	run(vcpu, 0);
	run(vcpu, 1);
	TEST_ASSERT_EQ(gtdp_stats(fd).hole_bytes, 0);

	TEST_ASSERT(!gtdp_write_file(RATIO, "1") &&
		    !gtdp_write_file(PERIOD, "100"), "cannot set %s", PERIOD);
	for (msecs = 0; msecs < 20000; msecs += 50) {
		if (gtdp_stats(fd).hole_bytes >= SIZE)
			break;
		usleep(50 * 1000);
	}
	gtdp_write_file(PERIOD, "0");
	gtdp_write_file(RATIO, "60");
	stats = gtdp_stats(fd);
	TEST_ASSERT(stats.hole_bytes >= SIZE && stats.hole_bytes == lost(&stats),
		    "hole 0x%llx, lost 0x%lx", stats.hole_bytes, lost(&stats));
	assert_told(fd, KVM_GTDP_HOLE_NX_HUGE);

	TEST_ASSERT(!gtdp_build_slots(fd), "BUILD failed");
	gtdp_assert_built(fd, all);
	gtdp_assert_pinned(fd, all);
	TEST_ASSERT(gtdp_stats(fd).leaves[PG_LEVEL_2M] >= SIZE / SZ_2M,
		    "large leaves did not come back");
	TEST_ASSERT_EQ(run(vcpu, 0), 0);

	close(fd);
	kvm_vm_free(vm);
}

/* Switching it drops all that any VM has mapped: all of it is a hole. */
static void check_switch(const char *to)
{
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 all, faults;
	int fd;

	vm = create(&vcpu, &fd, &all);
	run(vcpu, 0);
	TEST_ASSERT(!gtdp_write_file(PARAM, to), "cannot write %s", PARAM);
	stats = gtdp_stats(fd);
	TEST_ASSERT_EQ(stats.hole_bytes, all);
	TEST_ASSERT_EQ(stats.mapped_bytes, 0);
	TEST_ASSERT_EQ(lost(&stats), all);
	assert_told(fd, stats.lost_bytes[KVM_GTDP_HOLE_NX_HUGE] ?
			KVM_GTDP_HOLE_NX_HUGE : KVM_GTDP_HOLE_OTHER);
	gtdp_assert_pinned(fd, all);

	TEST_ASSERT(!gtdp_build_slots(fd), "BUILD failed");
	gtdp_assert_built(fd, all);
	gtdp_assert_pinned(fd, all);
	run(vcpu, 1);
	TEST_ASSERT_EQ(run(vcpu, 0), 0);

	/* With the vCPU on its way back in, and no build. */
	TEST_ASSERT(!gtdp_write_file(PARAM, "force"), "cannot write %s", PARAM);
	faults = run(vcpu, 1) + run(vcpu, 0);
	TEST_ASSERT(faults, "no fault on an empty mapping");
	TEST_ASSERT(!gtdp_build_slots(fd), "BUILD failed");
	gtdp_assert_built(fd, all);
	TEST_ASSERT_EQ(*(u64 *)(addr_gpa2hva(vm, GPA) + 64), 3);

	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(vm);
}

static char old_value[16];

/* Runs a case with the mitigation as wanted, and puts it back. */
static const char *with(const char *value, void (*fn)(void))
{
	struct kvm_gtdp_info info;
	FILE *file = fopen(PARAM, "re");

	if (!file)
		return "no mitigation in this kernel";
	TEST_ASSERT(fscanf(file, "%15s", old_value) == 1, "%s: empty", PARAM);
	fclose(file);
	if (gtdp_free_hugepages(SZ_2M) < SIZE / SZ_2M)
		return "needs 8 free huge pages of 2M";
	if (gtdp_write_file(PARAM, value))
		return "the mitigation cannot be switched";

	gtdp_get_info(&info);
	TEST_ASSERT_EQ(!!(info.features & KVM_GTDP_FEAT_NX_HUGE),
		       !strcmp(value, "force"));
	fn();
	TEST_ASSERT(!gtdp_write_file(PARAM, !strcmp(old_value, "Y") ? "force" :
							 "off"),
		    "cannot restore %s", PARAM);
	return NULL;
}

static void execute_on(void)
{
	check_execute(true);
}

static void execute_off(void)
{
	check_execute(false);
}

static void switch_off(void)
{
	check_switch("off");
}

static const char *test_off(void)
{
	return with("off", execute_off);
}

static const char *test_force(void)
{
	return with("force", execute_on);
}

static const char *test_recovery(void)
{
	return with("force", check_recovery);
}

static const char *test_switch(void)
{
	return with("force", switch_off);
}

static const struct gtdp_case cases[] = {
	{ "nx_off", test_off },
	{ "property 7: NX huge pages forced", test_force },
	{ "nx_recovery", test_recovery },
	{ "nx_switch", test_switch },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
