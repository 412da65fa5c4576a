// SPDX-License-Identifier: GPL-2.0-only
/*
 * The fuzzer's choice of what to do next, its record of what it did, and what must
 * be so once all is quiet.
 */
#include "gtdp_fuzz.h"

struct fuzz *fuzz;

/* @handle: on a handle, so that a second process can do it as well. */
static const struct {
	const char *name;
	int weight;
	bool handle;
	int (*run)(struct fuzz_worker *w, int vm);
} ops[FUZZ_NR_OPS] = {
	[FUZZ_ATTACH]		= { "attach", 10, true, fuzz_attach },
	[FUZZ_CLOSE]		= { "close", 1, true, fuzz_close },
	[FUZZ_BUILD]		= { "build", 14, true },
	[FUZZ_RELEASE]		= { "release", 4, true },
	[FUZZ_SPLIT]		= { "split", 6, true },
	[FUZZ_COLLAPSE]		= { "collapse", 6, true },
	[FUZZ_STATS]		= { "stats", 5, true, fuzz_stats },
	[FUZZ_GET_SLOTS]	= { "get_slots", 3, true, fuzz_get_slots },
	[FUZZ_READ]		= { "read", 5, true, fuzz_read },
	[FUZZ_POLL]		= { "poll", 2, true, fuzz_poll },
	[FUZZ_VM_NEW]		= { "vm_new", 8, false, fuzz_vm_new },
	[FUZZ_VM_END]		= { "vm_end", 1, false, fuzz_vm_end },
	[FUZZ_SLOT_SET]		= { "slot_set", 12, false, fuzz_slot_set },
	[FUZZ_SLOT_DELETE]	= { "slot_delete", 2, false, fuzz_slot_delete },
	[FUZZ_SLOT_MOVE]	= { "slot_move", 2, false, fuzz_slot_move },
	[FUZZ_SLOT_FLAGS]	= { "slot_flags", 4, false, fuzz_slot_flags },
	[FUZZ_DIRTY_GET]	= { "dirty_get", 3, false, fuzz_dirty_get },
	[FUZZ_DIRTY_CLEAR]	= { "dirty_clear", 3, false, fuzz_dirty_clear },
	[FUZZ_DIRTY_RESET]	= { "dirty_reset", 2, false, fuzz_dirty_reset },
	[FUZZ_RUN]		= { "run", 12, false, fuzz_run },
	[FUZZ_DISCARD]		= { "discard", 5, false, fuzz_discard },
	[FUZZ_PUNCH]		= { "punch", 4, false, fuzz_punch },
	[FUZZ_REMAP]		= { "remap", 3, false, fuzz_remap },
	[FUZZ_PROTECT]		= { "protect", 2, false, fuzz_protect },
	[FUZZ_ADVISE]		= { "advise", 5, false, fuzz_advise },
	[FUZZ_FORK]		= { "fork", 1, false, fuzz_fork },
	[FUZZ_TOUCH]		= { "touch", 4, false, fuzz_touch },
	[FUZZ_HOST]		= { "host", 1, false, fuzz_host },
};

#define NOT_YET	INT_MIN

static enum fuzz_op choose_op(struct fuzz_worker *w, int vm)
{
	int i, sum = 0, at;

	for (i = 0; i < FUZZ_NR_OPS; i++)
		sum += !w->foreign || ops[i].handle ? ops[i].weight : 0;
	at = gtdp_below(&w->rng, sum);
	for (i = 0; i < FUZZ_NR_OPS; i++) {
		at -= !w->foreign || ops[i].handle ? ops[i].weight : 0;
		if (at < 0)
			break;
	}
	/* Little comes of calls to what is not there. */
	if (!fuzz->vms[vm].there && !w->foreign && fuzz_percent(w, 80))
		return FUZZ_VM_NEW;
	if (ops[i].handle && fuzz->vms[vm].there && fuzz_handle_closed(vm) && fuzz_percent(w, 80))
		return FUZZ_ATTACH;
	return i;
}

static struct fuzz_trace *next_trace(struct fuzz_worker *w, enum fuzz_op op, int vm)
{
	struct fuzz_trace *now = &fuzz->trace[w->id][fuzz->traced[w->id]++ % FUZZ_TRACE];

	*now = (struct fuzz_trace) {
		.msecs = gtdp_msecs(),
		.op = op,
		.vm = vm,
		.ret = NOT_YET,
	};
	return now;
}

/* Until told to stop. */
void fuzz_work(struct fuzz_worker *w)
{
	enum fuzz_op op;
	int ret, vm;

	while (!READ_ONCE(fuzz->stop)) {
		vm = gtdp_below(&w->rng, FUZZ_VMS);
		op = choose_op(w, vm);
		w->now = next_trace(w, op, vm);
		ret = ops[op].run ? ops[op].run(w, vm) : fuzz_range(w, vm, op);
		w->now->ret = ret;
		__atomic_add_fetch(&fuzz->counts[op][min(-ret, FUZZ_NR_ERRNOS - 1)], 1,
				   __ATOMIC_RELAXED);
	}
}

static void print_trace(int id)
{
	struct fuzz_trace *t;
	u32 i, end = fuzz->traced[id];

	for (i = end > FUZZ_TRACE ? end - FUZZ_TRACE : 0; i < end; i++) {
		t = &fuzz->trace[id][i % FUZZ_TRACE];
		ksft_print_msg("%lu.%03lu worker %d: vm %d %s 0x%lx 0x%lx 0x%lx 0x%lx: ",
			       t->msecs / 1000, t->msecs % 1000, id, t->vm, ops[t->op].name,
			       t->arg[0], t->arg[1], t->arg[2], t->arg[3]);
		if (t->ret == NOT_YET)
			printf("...\n");
		else
			printf("%d\n", t->ret);
	}
}

/* Ends the process, with all that led to it. */
void fuzz_fail(struct fuzz_worker *w, const char *fmt, ...)
{
	va_list ap;
	int i;

	/* Only the first one is worth reading. */
	if (__atomic_exchange_n(&fuzz->failed, true, __ATOMIC_SEQ_CST))
		_exit(KSFT_FAIL);

	for (i = 0; i < FUZZ_WORKERS; i++)
		print_trace(i);
	ksft_print_msg("GTDP_SEED=%u failed", fuzz->seed);
	if (w)
		printf(", worker %d, vm %d, %s", w->id, w->now->vm, ops[w->now->op].name);
	printf(": ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	_exit(KSFT_FAIL);
}

static u64 check_pinned(int vm, bool release)
{
	struct kvm_gtdp_range all = { .size = 2 * SZ_4G };
	int fd = fuzz_handle_fd(vm);
	struct kvm_gtdp_stats stats;

	if (ioctl(fd, KVM_GTDP_STATS, &stats))
		return 0;
	if (stats.mapped_bytes + stats.hole_bytes != stats.built_bytes)
		fuzz_fail(NULL, "vm %d: 0x%llx mapped, 0x%llx of holes, 0x%llx built", vm,
			  stats.mapped_bytes, stats.hole_bytes, stats.built_bytes);
	if (!release)
		return stats.pinned_bytes;

	if (ioctl(fd, KVM_GTDP_RELEASE, &all) || ioctl(fd, KVM_GTDP_STATS, &stats))
		fuzz_fail(NULL, "vm %d: RELEASE of all failed, errno: %i", vm, errno);
	if (stats.pinned_bytes || stats.built_bytes || stats.mapped_bytes)
		fuzz_fail(NULL, "vm %d: 0x%llx built, 0x%llx pinned after RELEASE of all", vm,
			  stats.built_bytes, stats.pinned_bytes);
	return 0;
}

/* Nobody does anything any more: what VMs say they have pinned is what the owner has. */
void fuzz_assert_quiet_state(void)
{
	u64 pinned = 0;
	int vm;

	for (vm = 0; vm < FUZZ_VMS; vm++)
		pinned += check_pinned(vm, false);
	if (pinned != gtdp_own_pin())
		fuzz_fail(NULL, "VMs have pinned 0x%lx, VmPin is 0x%lx", pinned, gtdp_own_pin());

	for (vm = 0; vm < FUZZ_VMS; vm += 2)
		check_pinned(vm, true);
	for (vm = 0; vm < FUZZ_VMS; vm++)
		fuzz_close(NULL, vm);
	if (gtdp_own_pin())
		fuzz_fail(NULL, "VmPin is 0x%lx with all handles closed", gtdp_own_pin());
}

void fuzz_print_counts(void)
{
	int op, err;

	for (op = 0; op < FUZZ_NR_OPS; op++) {
		ksft_print_msg("%-12s", ops[op].name);
		for (err = 0; err < FUZZ_NR_ERRNOS; err++) {
			if (fuzz->counts[op][err])
				printf(" %s %lu", err ? strerrorname_np(err) ?: "?" : "ok",
				       fuzz->counts[op][err]);
		}
		printf("\n");
	}
}
