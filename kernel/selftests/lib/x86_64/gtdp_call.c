// SPDX-License-Identifier: GPL-2.0-only
/*
 * The calls of /dev/kvm-gtdp and its handles as a table, and a VM to try them on.
 */
#include "gtdp_call.h"

const struct gtdp_call_info gtdp_calls[GTDP_NR_CALLS] = {
	[GTDP_ATTACH]		= { "ATTACH", KVM_GTDP_ATTACH, true, false },
	[GTDP_GET_INFO]		= { "GET_INFO", KVM_GTDP_GET_INFO, true, true },
	[GTDP_GET_SLOTS]	= { "GET_SLOTS", KVM_GTDP_GET_SLOTS, false, true },
	[GTDP_STATS]		= { "STATS", KVM_GTDP_STATS, false, true },
	[GTDP_BUILD]		= { "BUILD", KVM_GTDP_BUILD, false, true },
	[GTDP_RELEASE]		= { "RELEASE", KVM_GTDP_RELEASE, false, true },
	[GTDP_SPLIT]		= { "SPLIT", KVM_GTDP_SPLIT, false, true },
	[GTDP_COLLAPSE]		= { "COLLAPSE", KVM_GTDP_COLLAPSE, false, true },
};

void gtdp_call_open(struct gtdp_call_vm *t, bool handle)
{
	struct kvm_vcpu *vcpu;

	t->vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(t->vm, VM_MEM_SRC_SHMEM, GTDP_TEST_GPA, GTDP_TEST_SLOT, GTDP_CALL_SIZE);
	t->dev_fd = gtdp_open();
	t->fd = handle ? gtdp_attach(t->vm, 0) : -1;
}

void gtdp_call_close(struct gtdp_call_vm *t)
{
	if (t->fd >= 0)
		close(t->fd);
	close(t->dev_fd);
	kvm_vm_free(t->vm);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
}

union gtdp_arg gtdp_good_arg(struct gtdp_call_vm *t, enum gtdp_call call)
{
	union gtdp_arg arg = {};

	if (call == GTDP_ATTACH)
		arg.attach.vm_fd = t->vm->fd;
	else if (call == GTDP_GET_SLOTS)
		arg.slots = (struct kvm_gtdp_slots) {
			.count = ARRAY_SIZE(t->slots),
			.slots = (uintptr_t)t->slots,
		};
	else if (gtdp_is_range_call(call))
		arg.range = (struct kvm_gtdp_range) {
			.gpa = GTDP_TEST_GPA,
			.size = GTDP_CALL_SIZE,
		};
	return arg;
}

int gtdp_do_call(struct gtdp_call_vm *t, enum gtdp_call call, void *arg)
{
	return ioctl(gtdp_calls[call].on_device ? t->dev_fd : t->fd, gtdp_calls[call].cmd, arg);
}

void gtdp_assert_nothing_built(struct gtdp_call_vm *t, const char *what)
{
	struct kvm_gtdp_stats stats;

	if (t->fd < 0)
		return;
	stats = gtdp_stats(t->fd);
	TEST_ASSERT(!stats.built_bytes && !stats.pinned_bytes, "%s built something", what);
}
