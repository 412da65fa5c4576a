// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test guests that run guests on a built mapping: with nested EPT or NPT, and
 * with page tables of their own that KVM shadows.  The nested guest's mapping is
 * made on demand; the built one below it neither loses a leaf nor takes a fault,
 * though KVM write-protects the page tables that the guest keeps in it.
 */
#include "gtdp.h"
#include "svm_util.h"
#include "vmx.h"

#define GPA		((u64)GTDP_TEST_GPA)
#define SIZE		SZ_16M
#define TABLES		(GPA + SIZE - SZ_2M)	/* the guest's own, at its end */
#define DATA_SIZE	(SIZE - SZ_2M)
#define ALIAS		(GPA + (u64)SZ_1G)	/* only known to the nested guest */

#define STACK_WORDS	64

enum {
	NO_TABLES,		/* KVM shadows the nested guest's page tables */
	SMALL_TABLES,		/* nested EPT or NPT, entries of 4K... */
	LARGE_TABLES,		/* ...or of 2M */
};

/* For the guest. */
static struct {
	bool svm;
	u64 root;		/* of the nested tables, 0: none */
	u64 alias_pte;		/* where the alias is to be mapped... */
	u64 alias_value;	/* ...by this */
} shared;

static void touch(u64 gva, u64 size)
{
	u64 end = gva + size;

	for (; gva < end; gva += PAGE_SIZE)
		WRITE_ONCE(*(u64 *)gva, READ_ONCE(*(u64 *)gva) + 1);
}

static void leave_l2(void)
{
	/* CPUID would exit by itself. */
	if (READ_ONCE(shared.svm))
		vmmcall();
	else
		vmcall();
}

static void l2_touch_data(void)
{
	for (;;) {
		touch(GPA, DATA_SIZE);
		leave_l2();
	}
}

static void l2_touch_alias(void)
{
	touch(ALIAS, PAGE_SIZE);
	leave_l2();
	l2_touch_data();
}

static void l2_guest_code(void)
{
	touch(GPA, DATA_SIZE);
	leave_l2();

	/* L1 has not mapped it yet, and does when it hears of it. */
	if (READ_ONCE(shared.root))
		l2_touch_alias();
	l2_touch_data();
}

static void enter_svm(struct svm_test_data *svm, u32 exit_code)
{
	run_guest(svm->vmcb, svm->vmcb_gpa);
	__GUEST_ASSERT(svm->vmcb->control.exit_code == exit_code,
		       "nested exit 0x%x", svm->vmcb->control.exit_code);
	if (exit_code == SVM_EXIT_VMMCALL)
		svm->vmcb->save.rip += 3;
}

static void enter_vmx(bool *launched, u32 reason)
{
	GUEST_ASSERT(!(*launched ? vmresume() : vmlaunch()));
	*launched = true;
	__GUEST_ASSERT(vmreadz(VM_EXIT_REASON) == reason,
		       "nested exit %lu, event 0x%lx, error 0x%lx, qualification 0x%lx, rip 0x%lx",
		       vmreadz(VM_EXIT_REASON), vmreadz(VM_EXIT_INTR_INFO),
		       vmreadz(VM_EXIT_INTR_ERROR_CODE),
		       vmreadz(EXIT_QUALIFICATION), vmreadz(GUEST_RIP));
	if (reason == EXIT_REASON_VMCALL)
		vmwrite(GUEST_RIP, vmreadz(GUEST_RIP) +
				   vmreadz(VM_EXIT_INSTRUCTION_LEN));
}

static void l1_guest_code(void *nested)
{
	unsigned long stack[STACK_WORDS];
	bool svm = shared.svm, launched = false;
	struct svm_test_data *s = nested;
	int i;

	if (svm) {
		generic_svm_setup(s, l2_guest_code, &stack[STACK_WORDS]);
		if (shared.root) {
			s->vmcb->control.nested_ctl = 1;
			s->vmcb->control.nested_cr3 = shared.root;
		}
	} else {
		GUEST_ASSERT(prepare_for_vmx_operation(nested));
		GUEST_ASSERT(load_vmcs(nested));
		prepare_vmcs(nested, l2_guest_code, &stack[STACK_WORDS]);
	}

	touch(GPA, DATA_SIZE);
	GUEST_SYNC(0);

#define ENTER(svm_exit, vmx_exit)					\
	do {								\
		if (svm)						\
			enter_svm(s, svm_exit);				\
		else							\
			enter_vmx(&launched, vmx_exit);			\
	} while (0)

	ENTER(SVM_EXIT_VMMCALL, EXIT_REASON_VMCALL);
	GUEST_SYNC(1);

	if (shared.root) {
		ENTER(SVM_EXIT_NPF, EXIT_REASON_EPT_VIOLATION);
		/* KVM tracks writes to this page. */
		WRITE_ONCE(*(u64 *)shared.alias_pte, shared.alias_value);
		/* From the start: on VMX, L2's registers are L1's by now. */
		if (svm) {
			s->vmcb->save.rip = (u64)l2_touch_alias;
			s->vmcb->save.rsp = (u64)&stack[STACK_WORDS];
		} else {
			vmwrite(GUEST_RIP, (u64)l2_touch_alias);
			vmwrite(GUEST_RSP, (u64)&stack[STACK_WORDS]);
		}
		ENTER(SVM_EXIT_VMMCALL, EXIT_REASON_VMCALL);
	}
	GUEST_SYNC(2);

	for (i = 3; ; i++) {
		touch(GPA, DATA_SIZE);
		GUEST_SYNC(i);
		ENTER(SVM_EXIT_VMMCALL, EXIT_REASON_VMCALL);
		GUEST_SYNC(++i);
	}
}

/* Nested page tables of L1, in the tested slot, written as by L1. */
struct tables {
	struct kvm_vm *vm;
	bool ept;
	u64 next;
};

static u64 *entry(struct tables *t, u64 table, u64 addr, int level)
{
	u64 *hva = addr_gpa2hva(t->vm, table);

	return &hva[(addr >> PG_LEVEL_SHIFT(level)) & 511];
}

/* The entry of the given level, with tables down to it. */
static u64 *nested_entry(struct tables *t, u64 addr, int leaf)
{
	u64 *e, table = TABLES;
	int level;

	for (level = PG_LEVEL_512G; level > leaf; level--) {
		e = entry(t, table, addr, level);
		if (!*e) {
			*e = t->next | 7;
			t->next += PAGE_SIZE;
		}
		table = *e & ~(PAGE_SIZE - 1);
	}
	return entry(t, table, addr, leaf);
}

static u64 leaf_value(struct tables *t, u64 addr, int level)
{
	u64 value = addr | (t->ept ? 0x37 : 0x67);

	return level == PG_LEVEL_2M ? value | BIT(7) : value;
}

static void nested_identity(struct tables *t, u64 addr, u64 size, int level)
{
	u64 end = addr + size;

	for (; addr < end; addr += PG_LEVEL_SIZE(level))
		*nested_entry(t, addr, level) = leaf_value(t, addr, level);
}

static void make_tables(struct tables *t, int kind)
{
	u64 *e;

	memset(addr_gpa2hva(t->vm, TABLES), 0, SZ_2M);
	t->next = TABLES + PAGE_SIZE;
	nested_identity(t, 0, round_up(gtdp_slot0_size(t->vm), SZ_2M),
			PG_LEVEL_4K);
	nested_identity(t, GPA, SIZE,
			kind == LARGE_TABLES ? PG_LEVEL_2M : PG_LEVEL_4K);

	e = nested_entry(t, ALIAS, PG_LEVEL_4K);
	shared.alias_value = leaf_value(t, GPA, PG_LEVEL_4K);
	shared.alias_pte = 0;
	for (u64 gpa = TABLES; gpa < t->next; gpa += PAGE_SIZE) {
		u64 *hva = addr_gpa2hva(t->vm, gpa);

		if (e >= hva && e < hva + 512)
			shared.alias_pte = gpa + (e - hva) * sizeof(*e);
	}
	TEST_ASSERT(shared.alias_pte, "the alias has no table");
	shared.root = TABLES;
}

static void run_to(struct kvm_vcpu *vcpu, u64 stage)
{
	struct ucall uc;

	vcpu_run(vcpu);
	TEST_ASSERT_KVM_EXIT_REASON(vcpu, KVM_EXIT_IO);
	switch (get_ucall(vcpu, &uc)) {
	case UCALL_SYNC:
		TEST_ASSERT_EQ(uc.args[1], stage);
		break;
	case UCALL_ABORT:
		REPORT_GUEST_ASSERT(uc);
		break;
	default:
		TEST_FAIL("unexpected ucall %lu", uc.cmd);
	}
}

static void assert_nothing_lost(int fd, u64 all)
{
	struct kvm_gtdp_stats stats = gtdp_stats(fd);
	int i;

	TEST_ASSERT_EQ(stats.built_bytes, all);
	TEST_ASSERT_EQ(stats.hole_bytes, 0);
	for (i = 0; i < KVM_GTDP_HOLE_REASONS; i++)
		TEST_ASSERT_EQ(stats.lost_bytes[i], 0);
	gtdp_assert_pinned(fd, all);
}

static void check_nested(enum vm_mem_backing_src_type src, int kind)
{
	struct tables t = { .ept = host_cpu_is_intel };
	vm_vaddr_t nested_gva;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 all, faults;
	int fd, i;

	vm = vm_create_with_one_vcpu(&vcpu, l1_guest_code);
	if (host_cpu_is_intel)
		vcpu_alloc_vmx(vm, &nested_gva);
	else
		vcpu_alloc_svm(vm, &nested_gva);
	vcpu_args_set(vcpu, 1, nested_gva);
	gtdp_add_memory(vm, src, GPA, GTDP_TEST_SLOT, SIZE);
	virt_map(vm, ALIAS, ALIAS, 1);

	memset(&shared, 0, sizeof(shared));
	shared.svm = !host_cpu_is_intel;
	t.vm = vm;
	if (kind != NO_TABLES)
		make_tables(&t, kind);
	sync_global_to_guest(vm, shared);
	if (host_cpu_is_intel) {
		struct vmx_pages *vmx = addr_gva2hva(vm, nested_gva);

		vmx->eptp_gpa = shared.root;
	}

	all = SIZE + gtdp_slot0_size(vm);
	fd = gtdp_attach(vm, 0);
	TEST_ASSERT(!gtdp_build_slots(fd), "BUILD failed");
	gtdp_assert_built(fd, all);

	run_to(vcpu, 0);
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), 0);
	run_to(vcpu, 1);
	assert_nothing_lost(fd, all);
	gtdp_assert_content(vm, GPA, PAGE_SIZE, 2);
	run_to(vcpu, 2);
	assert_nothing_lost(fd, all);
	gtdp_assert_content(vm, GPA, PAGE_SIZE, kind == NO_TABLES ? 2 : 3);
	gtdp_assert_content(vm, GPA + PAGE_SIZE, DATA_SIZE - PAGE_SIZE, 2);

	/* L1 alone: nothing to fault for, whatever L2 has done. */
	for (i = 3; i < 7; i += 2) {
		faults = gtdp_vcpu_stat(vcpu, "pf_taken");
		run_to(vcpu, i);
		TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), faults);
		run_to(vcpu, i + 1);
		assert_nothing_lost(fd, all);
		gtdp_assert_content(vm, GPA + PAGE_SIZE, DATA_SIZE - PAGE_SIZE,
				    i + 1);
		/* A build is welcome while there is a nested guest. */
		TEST_ASSERT(!gtdp_build_slots(fd), "BUILD failed");
	}

	/* What the owner takes is gone for L2, too. */
	madvise(addr_gpa2hva(vm, GPA), SZ_2M, MADV_REMOVE);
	TEST_ASSERT_EQ(gtdp_stats(fd).hole_bytes, SZ_2M);
	run_to(vcpu, i);
	run_to(vcpu, i + 1);
	gtdp_assert_content(vm, GPA, SZ_2M, 2);
	gtdp_assert_content(vm, GPA + SZ_2M, DATA_SIZE - SZ_2M, i + 1);
	TEST_ASSERT(!gtdp_build_slots(fd), "BUILD failed");
	gtdp_assert_built(fd, all);
	gtdp_assert_pinned(fd, all);

	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(vm);
}

static bool has_nested(void)
{
	return kvm_cpu_has(host_cpu_is_intel ? X86_FEATURE_VMX :
					       X86_FEATURE_SVM);
}

static bool has_nested_tdp(void)
{
	return host_cpu_is_intel ? kvm_cpu_has_ept() :
				   kvm_cpu_has(X86_FEATURE_NPT);
}

static const char *check_all_memory(int kind)
{
	if (!has_nested())
		return "KVM does not let guests run guests";
	if (kind != NO_TABLES && !has_nested_tdp())
		return "KVM does not let guests use nested EPT or NPT";

	check_nested(VM_MEM_SRC_SHMEM, kind);
	/* Of which L1's tables are a part of a large leaf. */
	if (get_def_hugetlb_pagesz() == SZ_2M &&
	    gtdp_free_hugepages(SZ_2M) >= SIZE / SZ_2M)
		check_nested(VM_MEM_SRC_SHARED_HUGETLB, kind);
	return NULL;
}

static const char *test_shadow(void)
{
	return check_all_memory(NO_TABLES);
}

static const char *test_small(void)
{
	return check_all_memory(SMALL_TABLES);
}

static const char *test_large(void)
{
	return check_all_memory(LARGE_TABLES);
}

static const struct gtdp_case cases[] = {
	{ "property 7: nested guest, shadowed page tables", test_shadow },
	{ "property 7: nested EPT or NPT of 4K, write-tracked", test_small },
	{ "property 7: nested EPT or NPT of 2M, write-tracked", test_large },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
