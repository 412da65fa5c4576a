// SPDX-License-Identifier: GPL-2.0-only
/*
 * The fuzzer's calls to /dev/kvm-gtdp and its handles, and what they may say.
 */
#include <poll.h>

#include "gtdp_fuzz.h"

/* Longer than what any host has. */
#define BEYOND	BIT_ULL(52)

static u32 gen(int vm)
{
	return __atomic_load_n(&fuzz->vms[vm].handle_gen, __ATOMIC_SEQ_CST);
}

/* Give the VM's handle its number, or /dev/null. */
static void set_handle(int vm, int fd, bool closed)
{
	struct fuzz_vm *v = &fuzz->vms[vm];
	u32 now;

	pthread_mutex_lock(&v->handle_lock);
	now = gen(vm);
	/* Odd before the last one goes, even once the next is there, and new each time. */
	__atomic_store_n(&v->handle_gen, now | 1, __ATOMIC_SEQ_CST);
	fuzz_set_fd(fd, fuzz_handle_fd(vm));
	if (!closed)
		__atomic_store_n(&v->handle_gen, (now + 2) & ~1, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&v->handle_lock);
}

/* The VM's handle is closed, or was for a moment since @before. */
static bool may_be_closed(int vm, u32 before)
{
	return (before & 1) || gen(vm) != before;
}

/* An errno that is on the list of this call, or that of a file which is not a handle. */
static void check_errno(struct fuzz_worker *w, int vm, u32 before, int err, const int *list, int nr)
{
	int i;

	for (i = 0; i < nr; i++) {
		if (err == list[i])
			return;
	}
	if (err == ENOTTY && may_be_closed(vm, before))
		return;
	fuzz_fail(w, "errno %i (%s) is not one that the interface names", err, strerror(err));
}

#define CHECK_ERRNO(w, vm, before, err, ...)					\
do {										\
	static const int __list[] = { __VA_ARGS__ };				\
										\
	check_errno(w, vm, before, err, __list, ARRAY_SIZE(__list));		\
} while (0)

/* A pointer to nothing, once in a while. */
static void *spoil_pointer(struct fuzz_worker *w, void *ptr)
{
	static void * const bad[] = {
		NULL, (void *)8, (void *)0xffff888000000000, (void *)0x7ffffffff000,
	};

	return fuzz_percent(w, 1) ? bad[gtdp_below(&w->rng, ARRAY_SIZE(bad))] : ptr;
}

int fuzz_attach(struct fuzz_worker *w, int vm)
{
	struct kvm_gtdp_attach attach = { .vm_fd = fuzz_vm_fd(vm) };
	bool wild = fuzz_percent(w, 5), bad = false;
	int dev_fd, fd, err;
	void *arg;

	if (fuzz_percent(w, 50))
		attach.flags = KVM_GTDP_ATTACH_AUTO;
	if (wild) {
		switch (gtdp_below(&w->rng, 3)) {
		case 0:
			attach.flags = guest_random_u32(&w->rng) | 2;
			break;
		case 1:
			attach.vm_fd = guest_random_u32(&w->rng);
			break;
		default:
			attach.reserved[gtdp_below(&w->rng, 3)] = fuzz_u64(w) | 1;
			break;
		}
		bad = true;
	}
	arg = spoil_pointer(w, &attach);
	w->now->arg[0] = attach.flags;

	dev_fd = gtdp_open();
	if (dev_fd < 0)
		fuzz_fail(w, "no device, errno: %i", errno);
	fd = ioctl(dev_fd, KVM_GTDP_ATTACH, arg);
	err = errno;
	close(dev_fd);
	if (fd < 0) {
		static const int list[] = {
			EBADF, EINVAL, EBUSY, ESRCH, EFAULT, ENOMEM,
		};

		/* Not by way of CHECK_ERRNO(): this is the device, it is always there. */
		check_errno(w, vm, 0, err, list, ARRAY_SIZE(list));
		return -err;
	}
	if (bad || arg != &attach)
		fuzz_fail(w, "a bad ATTACH succeeded");

	/* So that no read ever waits. */
	fcntl(fd, F_SETFL, O_NONBLOCK);
	set_handle(vm, fd, false);
	return 0;
}

int fuzz_close(struct fuzz_worker *w, int vm)
{
	set_handle(vm, open("/dev/null", O_RDWR | O_CLOEXEC), true);
	return 0;
}

/* A range in, around or far from a slot, cut at a small or a large page. */
static void make_range(struct fuzz_worker *w, int vm, struct kvm_gtdp_range *range)
{
	struct fuzz_slot *slot = &fuzz->vms[vm].slots[fuzz_pick_slot(w, vm)];
	u64 gpa = READ_ONCE(slot->gpa), size = READ_ONCE(slot->size);
	u64 unit = fuzz_percent(w, 50) ? SZ_2M : PAGE_SIZE;
	u64 off;

	if (!size)
		size = SZ_4M;
	*range = (struct kvm_gtdp_range) { .gpa = gpa, .size = size };
	if (fuzz_percent(w, 60)) {
		off = fuzz_u64(w) % size / unit * unit;
		range->gpa += off;
		range->size = fuzz_u64(w) % (size - off) / unit * unit ?: PAGE_SIZE;
	}
	if (fuzz_percent(w, 5)) {
		range->gpa = fuzz_percent(w, 50) ? 0 : gpa / SZ_1G * SZ_1G;
		range->size = fuzz_percent(w, 50) ? SZ_4G : SZ_1G;
	}
}

static void spoil_range(struct fuzz_worker *w, struct kvm_gtdp_range *range)
{
	switch (gtdp_below(&w->rng, 7)) {
	case 0:
		range->gpa = fuzz_u64(w);
		break;
	case 1:
		range->size = fuzz_u64(w);
		break;
	case 2:
		range->gpa += 1 + gtdp_below(&w->rng, PAGE_SIZE - 1);
		break;
	case 3:
		range->size = -range->gpa;
		break;
	case 4:
		range->flags = guest_random_u32(&w->rng);
		break;
	case 5:
		range->max_level = guest_random_u32(&w->rng);
		break;
	default:
		range->reserved[fuzz_percent(w, 50)] = fuzz_u64(w) | 1;
	}
}

static bool is_bad_range(const struct kvm_gtdp_range *range, enum fuzz_op op)
{
	u32 flags = op == FUZZ_BUILD ? KVM_GTDP_BUILD_NOPIN | KVM_GTDP_BUILD_PRESENT : 0;

	return (range->gpa | range->size) % PAGE_SIZE || !range->size ||
	       range->gpa + range->size < range->gpa || range->gpa + range->size > BEYOND ||
	       range->flags & ~flags || range->max_level > 3 ||
	       (op == FUZZ_RELEASE && range->max_level) ||
	       (op == FUZZ_SPLIT && range->max_level > 2) ||
	       range->reserved[0] || range->reserved[1];
}

/* Far from any slot it is for KVM to say whether a VM could have memory there. */
static bool is_far(const struct kvm_gtdp_range *range)
{
	return range->gpa + range->size > 1ull << 36;
}

static void check_range_errno(struct fuzz_worker *w, int vm, u32 before, enum fuzz_op op,
			      const struct kvm_gtdp_range *asked, bool bad_pointer, int err)
{
	if (err == EINVAL && !is_bad_range(asked, op) && !is_far(asked))
		fuzz_fail(w, "EINVAL for a good range");

	if (op == FUZZ_BUILD)
		CHECK_ERRNO(w, vm, before, err, EINVAL, ENOENT, EAGAIN, EINTR, EFAULT, EOPNOTSUPP,
			    ENOMEM, EIO, ESRCH);
	else if (err != EFAULT || !bad_pointer)
		CHECK_ERRNO(w, vm, before, err, EINVAL, EAGAIN, EINTR, ENOMEM, EIO, ESRCH);
}

int fuzz_range(struct fuzz_worker *w, int vm, enum fuzz_op op)
{
	static const unsigned int cmds[] = {
		[FUZZ_BUILD] = KVM_GTDP_BUILD, [FUZZ_RELEASE] = KVM_GTDP_RELEASE,
		[FUZZ_SPLIT] = KVM_GTDP_SPLIT, [FUZZ_COLLAPSE] = KVM_GTDP_COLLAPSE,
	};
	struct kvm_gtdp_range range, asked;
	u32 before = gen(vm);
	int ret, err;
	void *arg;

	make_range(w, vm, &range);
	if (op != FUZZ_RELEASE && fuzz_percent(w, 40))
		range.max_level = gtdp_below(&w->rng, 4);
	if (op == FUZZ_BUILD)
		range.flags = gtdp_below(&w->rng, 4);
	if (fuzz_percent(w, 5))
		spoil_range(w, &range);
	asked = range;
	arg = spoil_pointer(w, &range);
	w->now->arg[0] = asked.gpa;
	w->now->arg[1] = asked.size;
	w->now->arg[2] = asked.flags;
	w->now->arg[3] = asked.max_level;

	ret = ioctl(fuzz_handle_fd(vm), cmds[op], arg);
	err = errno;

	if (ret > 0)
		fuzz_fail(w, "returned %i", ret);
	if (ret < 0)
		check_range_errno(w, vm, before, op, &asked, arg != &range, err);
	if (arg != &range) {
		if (!ret)
			fuzz_fail(w, "success with a bad pointer");
		return -err;
	}
	if (!ret && is_bad_range(&asked, op))
		fuzz_fail(w, "a bad range was accepted");
	if (!ret && range.size)
		fuzz_fail(w, "success with 0x%llx bytes to go", range.size);
	if (range.size > asked.size || range.gpa + range.size != asked.gpa + asked.size ||
	    range.flags != asked.flags || range.max_level != asked.max_level)
		fuzz_fail(w, "the range became [0x%llx, +0x%llx)", range.gpa, range.size);
	return ret ? -err : 0;
}

static bool has_shrunk(const struct kvm_gtdp_stats *last, const struct kvm_gtdp_stats *stats)
{
	int i;

	for (i = 0; i < KVM_GTDP_HOLE_REASONS; i++) {
		if (stats->lost_bytes[i] < last->lost_bytes[i])
			return true;
	}
	return stats->faults < last->faults || stats->faults_other < last->faults_other ||
	       stats->build_ns < last->build_ns || stats->auto_builds < last->auto_builds ||
	       stats->auto_errors < last->auto_errors ||
	       stats->split_leaves < last->split_leaves ||
	       stats->collapsed_leaves < last->collapsed_leaves ||
	       stats->kept_bytes < last->kept_bytes ||
	       stats->dropped_events < last->dropped_events;
}

static void check_stats(struct fuzz_worker *w, const struct kvm_gtdp_stats *stats)
{
	u64 leaves = stats->leaves[1] * SZ_4K + stats->leaves[2] * SZ_2M + stats->leaves[3] * SZ_1G;
	/* All that could be mapped at once, with the code slot, in whole pages of 2M. */
	u64 most = (FUZZ_SLOTS + 1) * (FUZZ_SLOT_MAX + 2 * SZ_2M);
	int i;

	if (stats->mapped_bytes + stats->hole_bytes != stats->built_bytes)
		fuzz_fail(w, "0x%llx mapped and 0x%llx of holes are not 0x%llx built",
			  stats->mapped_bytes, stats->hole_bytes, stats->built_bytes);
	if (leaves < stats->mapped_bytes || stats->leaves[0])
		fuzz_fail(w, "leaves of 0x%lx map 0x%llx", leaves, stats->mapped_bytes);
	if ((stats->built_bytes | stats->mapped_bytes | stats->pinned_bytes) % PAGE_SIZE)
		fuzz_fail(w, "a part of a page");
	if (stats->pinned_bytes > most || stats->mapped_bytes > most)
		fuzz_fail(w, "0x%llx pinned, 0x%llx mapped", stats->pinned_bytes,
			  stats->mapped_bytes);
	if (stats->auto_last_error > 0 || stats->auto_last_error < -FUZZ_NR_ERRNOS ||
	    stats->auto_errors > stats->auto_builds)
		fuzz_fail(w, "%llu builds, %llu errors, the last %lli", stats->auto_builds,
			  stats->auto_errors, stats->auto_last_error);
	for (i = 0; i < ARRAY_SIZE(stats->reserved); i++) {
		if (stats->reserved[i])
			fuzz_fail(w, "reserved[%d] is 0x%llx", i, stats->reserved[i]);
	}
}

int fuzz_stats(struct fuzz_worker *w, int vm)
{
	struct kvm_gtdp_stats stats = {}, *last = &fuzz->vms[vm].last[w->id];
	u32 before = gen(vm);
	void *arg = spoil_pointer(w, &stats);
	int ret, err;

	ret = ioctl(fuzz_handle_fd(vm), KVM_GTDP_STATS, arg);
	err = errno;
	if (ret < 0) {
		CHECK_ERRNO(w, vm, before, err, EFAULT, ESRCH, EIO, ENOMEM);
		if (err == EFAULT && arg == &stats)
			fuzz_fail(w, "EFAULT for a good pointer");
		return -err;
	}
	if (arg != &stats)
		fuzz_fail(w, "success with a bad pointer");
	check_stats(w, &stats);
	if (may_be_closed(vm, before))
		return 0;

	if (fuzz->vms[vm].last_gen[w->id] == before && has_shrunk(last, &stats))
		fuzz_fail(w, "a counter went back");
	*last = stats;
	fuzz->vms[vm].last_gen[w->id] = before;
	if (stats.leaves[2])
		__atomic_add_fetch(&fuzz->large_leaves, 1, __ATOMIC_RELAXED);
	if (stats.split_leaves)
		__atomic_add_fetch(&fuzz->splits, 1, __ATOMIC_RELAXED);
	if (stats.collapsed_leaves)
		__atomic_add_fetch(&fuzz->collapses, 1, __ATOMIC_RELAXED);
	return 0;
}

int fuzz_get_slots(struct fuzz_worker *w, int vm)
{
	struct kvm_gtdp_slot slots[FUZZ_SLOTS + 2];
	struct kvm_gtdp_slots req = {
		.count = gtdp_below(&w->rng, ARRAY_SIZE(slots) + 1),
		.slots = (uintptr_t)spoil_pointer(w, slots),
	};
	u32 room = req.count, before = gen(vm);
	bool bad = false;
	int i, ret, err;

	if (fuzz_percent(w, 3)) {
		req.reserved32 = 1;
		bad = true;
	}
	ret = ioctl(fuzz_handle_fd(vm), KVM_GTDP_GET_SLOTS, &req);
	err = errno;
	if (ret < 0) {
		CHECK_ERRNO(w, vm, before, err, E2BIG, EINVAL, EFAULT, ESRCH, EIO, ENOMEM);
		if (err == EINVAL && !bad)
			fuzz_fail(w, "EINVAL for a good request");
		if (err == E2BIG && req.count <= room)
			fuzz_fail(w, "E2BIG: %u slots, room for %u", req.count, room);
		return -err;
	}
	if (bad || req.count > room)
		fuzz_fail(w, "%u slots, room for %u", req.count, room);
	for (i = 0; i + 1 < (int)req.count; i++) {
		if (slots[i].gpa + slots[i].size > slots[i + 1].gpa)
			fuzz_fail(w, "slots overlap or are not in order");
	}
	return 0;
}

static void check_event(struct fuzz_worker *w, const struct kvm_gtdp_event *e)
{
	if (e->type < KVM_GTDP_EVENT_HOLE || e->type > KVM_GTDP_EVENT_DROPPED)
		fuzz_fail(w, "event of type %u", e->type);
	if (e->type == KVM_GTDP_EVENT_HOLE &&
	    (e->reason > KVM_GTDP_HOLE_OTHER || !e->bytes ||
	     (e->gpa | e->size | e->bytes) % PAGE_SIZE))
		fuzz_fail(w, "hole of reason %u, [0x%llx, +0x%llx), 0x%llx bytes", e->reason,
			  e->gpa, e->size, e->bytes);
}

int fuzz_read(struct fuzz_worker *w, int vm)
{
	struct kvm_gtdp_event events[8];
	u32 before = gen(vm);
	size_t size = gtdp_below(&w->rng, sizeof(events) + 1);
	void *arg = spoil_pointer(w, events);
	int i, err;
	ssize_t ret;

	ret = read(fuzz_handle_fd(vm), arg, size);
	err = errno;
	if (ret < 0) {
		CHECK_ERRNO(w, vm, before, err, EINVAL, EAGAIN, EFAULT, EINTR);
		if (err == EINVAL && size >= sizeof(events[0]) && !may_be_closed(vm, before))
			fuzz_fail(w, "EINVAL with room for an event");
		return -err;
	}
	if (ret % sizeof(events[0]) || ret > size)
		fuzz_fail(w, "read %zi of %zu bytes", ret, size);
	for (i = 0; arg == events && i < ret / sizeof(events[0]); i++)
		check_event(w, &events[i]);
	return 0;
}

int fuzz_poll(struct fuzz_worker *w, int vm)
{
	struct pollfd pfd = { .fd = fuzz_handle_fd(vm), .events = POLLIN | POLLOUT };
	u32 before = gen(vm);
	int ret;

	ret = poll(&pfd, 1, gtdp_below(&w->rng, 3));
	if (ret < 0)
		return -errno;
	if (!may_be_closed(vm, before) && pfd.revents & ~(POLLIN | POLLHUP | POLLERR))
		fuzz_fail(w, "revents 0x%x", pfd.revents);
	return 0;
}
