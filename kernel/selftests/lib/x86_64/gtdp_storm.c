// SPDX-License-Identifier: GPL-2.0-only
/*
 * All that can happen to a VM with a global mapping, at once, from many threads.
 */
#include <linux/falloc.h>
#include <poll.h>
#include <sys/wait.h>

#include "gtdp_keep.h"
#include "gtdp_storm.h"

/* Two of each of the first ones, one of the others. */
static const enum storm_job jobs[] = {
	STORM_BUILD, STORM_BUILD, STORM_SPLIT, STORM_SPLIT, STORM_HEAL, STORM_SLOTS,
	STORM_DIRTY_LOG, STORM_MEMORY, STORM_ATTACH, STORM_STATS,
};

#define NR_THREADS	ARRAY_SIZE(jobs)

struct storm_thread {
	struct storm *s;
	enum storm_job job;
	struct guest_random_state rng;
	pthread_t thread;
};

static struct storm_thread threads[NR_THREADS];

static struct storm_area *any_area(struct storm_thread *t)
{
	return &t->s->areas[gtdp_below(&t->rng, STORM_AREAS)];
}

/* A part of an area, at large or small pages. */
static u64 any_part(struct storm_thread *t, u64 *size)
{
	u64 unit = gtdp_below(&t->rng, 4) ? SZ_2M : PAGE_SIZE;
	u64 first = gtdp_below(&t->rng, STORM_SIZE / unit);

	*size = (1 + gtdp_below(&t->rng, STORM_SIZE / unit - first)) * unit;
	return first * unit;
}

/* ENOTTY: between two handles, there is none. */
static void assert_errno(const char *what, bool ok)
{
	TEST_ASSERT(ok || errno == ENOTTY || errno == EAGAIN, "%s failed, errno: %i (%s)", what,
		    errno, strerror(errno));
}

static void build(struct storm_thread *t, u64 gpa, u64 size, u32 flags)
{
	struct kvm_gtdp_range range = {
		.gpa = gpa,
		.size = size,
		.flags = flags,
		.max_level = gtdp_below(&t->rng, 4),
	};
	int ret = ioctl(t->s->fd, KVM_GTDP_BUILD, &range);

	/* The slot is deleted, or the memory write-protected, just now. */
	assert_errno("BUILD", !ret || errno == ENOENT || errno == EFAULT);
}

static void do_build(struct storm_thread *t)
{
	u64 size, off = any_part(t, &size);

	build(t, any_area(t)->gpa + off, size, gtdp_below(&t->rng, 4));
}

/* As a daemon would: what is still there is mapped again, nothing is made for it. */
static void do_heal(struct storm_thread *t)
{
	struct pollfd pfd = { .fd = t->s->fd, .events = POLLIN };
	struct kvm_gtdp_event events[16];
	ssize_t i, n;

	if (poll(&pfd, 1, 20) != 1 || !(pfd.revents & POLLIN))
		return;
	n = read(t->s->fd, events, sizeof(events));
	if (n < 0)
		assert_errno("read()", errno == EINTR);
	for (i = 0; i < n / (ssize_t)sizeof(events[0]); i++) {
		if (events[i].type != KVM_GTDP_EVENT_HOLE)
			continue;
		t->s->holes++;
		build(t, events[i].gpa, events[i].size, KVM_GTDP_BUILD_PRESENT);
	}
}

static void do_split(struct storm_thread *t)
{
	static const unsigned long cmds[] = {
		KVM_GTDP_SPLIT, KVM_GTDP_COLLAPSE, KVM_GTDP_RELEASE,
	};
	u64 size, off = any_part(t, &size);
	struct kvm_gtdp_range range = { .gpa = any_area(t)->gpa + off, .size = size };
	int i = gtdp_below(&t->rng, ARRAY_SIZE(cmds));

	assert_errno("SPLIT, COLLAPSE or RELEASE", !ioctl(t->s->fd, cmds[i], &range));
}

static void set_slot(struct storm *s, int area, u32 flags, u64 gpa, u64 size)
{
	vm_set_user_memory_region(s->vm, STORM_SLOT + area, flags, gpa, size, s->areas[area].mem);
}

/* Deleted, or somewhere else, for a moment.  vCPUs get exits for what they do then. */
static void do_slots(struct storm_thread *t)
{
	struct storm *s = t->s;
	int i = gtdp_below(&t->rng, STORM_AREAS);
	struct storm_area *area = &s->areas[i];

	pthread_mutex_lock(&area->lock);
	if (gtdp_below(&t->rng, 2)) {
		set_slot(s, i, 0, area->gpa, 0);
		usleep(gtdp_below(&t->rng, 300));
		set_slot(s, i, 0, area->gpa, STORM_SIZE);
	} else {
		/* Its log would not move with it. */
		set_slot(s, i, 0, area->gpa, STORM_SIZE);
		set_slot(s, i, 0, area->gpa + SZ_512M, STORM_SIZE);
		usleep(gtdp_below(&t->rng, 300));
		set_slot(s, i, 0, area->gpa, STORM_SIZE);
	}
	pthread_mutex_unlock(&area->lock);
	usleep(gtdp_below(&t->rng, 50000));
}

static void do_dirty_log(struct storm_thread *t)
{
	unsigned long log[STORM_PAGES / BITS_PER_LONG];
	struct storm *s = t->s;
	int i = gtdp_below(&t->rng, STORM_AREAS), rounds = gtdp_below(&t->rng, 4);
	struct storm_area *area = &s->areas[i];

	pthread_mutex_lock(&area->lock);
	set_slot(s, i, KVM_MEM_LOG_DIRTY_PAGES, area->gpa, STORM_SIZE);
	for (; rounds; rounds--) {
		usleep(gtdp_below(&t->rng, 5000));
		kvm_vm_get_dirty_log(s->vm, STORM_SLOT + i, log);
		kvm_vm_clear_dirty_log(s->vm, STORM_SLOT + i, log, 0, STORM_PAGES);
	}
	if (gtdp_below(&t->rng, 4))
		set_slot(s, i, 0, area->gpa, STORM_SIZE);
	pthread_mutex_unlock(&area->lock);
	usleep(gtdp_below(&t->rng, 10000));
}

static void discard(struct storm_thread *t, struct storm_area *area, u64 off, u64 size)
{
	if (area->memfd >= 0)
		TEST_ASSERT(!fallocate(area->memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off,
				       size), "fallocate() failed, errno: %i", errno);
	else
		TEST_ASSERT(!madvise(area->mem + off, size, MADV_DONTNEED),
			    "madvise() failed, errno: %i", errno);
}

static void protect(struct storm_thread *t, struct storm_area *area, u64 off, u64 size)
{
	pthread_mutex_lock(&area->lock);
	/* Not possible in the middle of a huge page of hugetlbfs. */
	if (!mprotect(area->mem + off, size, gtdp_below(&t->rng, 2) ? PROT_READ : PROT_NONE)) {
		usleep(gtdp_below(&t->rng, 200));
		TEST_ASSERT(!mprotect(area->mem + off, size, PROT_READ | PROT_WRITE),
			    "mprotect() failed, errno: %i", errno);
	}
	pthread_mutex_unlock(&area->lock);
}

/* A child that has all of the memory, writes to a part of it, and goes. */
static void fork_owner(struct storm_area *area, u64 off, u64 size)
{
	pid_t pid = fork();

	/* Not enough huge pages for two. */
	if (pid < 0)
		return;
	if (!pid) {
		if (area->memfd < 0)
			madvise(area->mem + off, size, MADV_POPULATE_WRITE);
		_exit(0);
	}
	TEST_ASSERT(waitpid(pid, NULL, 0) == pid, "waitpid() failed, errno: %i", errno);
}

static void do_memory(struct storm_thread *t)
{
	static const int advice[] = {
		MADV_COLLAPSE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLD, MADV_PAGEOUT,
		MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_POPULATE_WRITE,
	};
	struct storm_area *area = any_area(t);
	u64 size, off = any_part(t, &size);

	switch (gtdp_below(&t->rng, 8)) {
	case 0:
		fork_owner(area, off, size);
		break;
	case 1:
	case 2:
		protect(t, area, off, size);
		break;
	case 3:
		/* Whatever comes of it. */
		madvise(area->mem + off, size, advice[gtdp_below(&t->rng, ARRAY_SIZE(advice))]);
		break;
	default:
		if (area->discard)
			discard(t, area, off, size);
	}
	usleep(gtdp_below(&t->rng, 3000));
}

static void set_handle(struct storm *s, int fd)
{
	TEST_ASSERT(fd >= 0 && dup3(fd, s->fd, O_CLOEXEC) == s->fd, "no file, errno: %i", errno);
	close(fd);
}

/* EBUSY: somebody is still in a call of the last handle, or a child has it. */
static int attach(struct storm *s, u32 flags)
{
	int fd, dev_fd = gtdp_open();

	do {
		fd = __gtdp_attach(dev_fd, s->vm->fd, flags);
		TEST_ASSERT(fd >= 0 || errno == EBUSY, KVM_IOCTL_ERROR(KVM_GTDP_ATTACH, fd));
	} while (fd < 0);
	close(dev_fd);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

static void do_attach(struct storm_thread *t)
{
	usleep(gtdp_below(&t->rng, 1000000));
	set_handle(t->s, open("/dev/null", O_RDWR | O_CLOEXEC));
	usleep(gtdp_below(&t->rng, 2000));
	set_handle(t->s, attach(t->s, gtdp_below(&t->rng, 4) ? KVM_GTDP_ATTACH_AUTO : 0));
}

static void do_stats(struct storm_thread *t)
{
	struct kvm_gtdp_slot slots[STORM_AREAS + 4];
	struct kvm_gtdp_slots req = { .count = ARRAY_SIZE(slots), .slots = (uintptr_t)slots };
	struct kvm_gtdp_stats stats = {};

	if (ioctl(t->s->fd, KVM_GTDP_STATS, &stats))
		assert_errno("STATS", false);
	TEST_ASSERT(stats.mapped_bytes + stats.hole_bytes == stats.built_bytes &&
		    stats.pinned_bytes <= 2 * STORM_AREAS * STORM_SIZE,
		    "0x%llx built, 0x%llx mapped, 0x%llx holes, 0x%llx pinned", stats.built_bytes,
		    stats.mapped_bytes, stats.hole_bytes, stats.pinned_bytes);
	assert_errno("GET_SLOTS", !ioctl(t->s->fd, KVM_GTDP_GET_SLOTS, &req));
	usleep(gtdp_below(&t->rng, 10000));
}

static void *run_thread(void *arg)
{
	static void (*const fns[STORM_NR_JOBS])(struct storm_thread *t) = {
		[STORM_BUILD] = do_build, [STORM_HEAL] = do_heal, [STORM_SPLIT] = do_split,
		[STORM_SLOTS] = do_slots, [STORM_DIRTY_LOG] = do_dirty_log,
		[STORM_MEMORY] = do_memory, [STORM_ATTACH] = do_attach, [STORM_STATS] = do_stats,
	};
	struct storm_thread *t = arg;

	while (!READ_ONCE(t->s->stop)) {
		fns[t->job](t);
		__atomic_add_fetch(&t->s->done[t->job], 1, __ATOMIC_RELAXED);
		/* Leave something for the guest. */
		usleep(gtdp_below(&t->rng, 4000));
	}
	return NULL;
}

void storm_open(struct storm *s)
{
	int i;

	for (i = 0; i < STORM_AREAS; i++)
		pthread_mutex_init(&s->areas[i].lock, NULL);
	vm_enable_cap(s->vm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
		      KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE);
	s->fd = attach(s, KVM_GTDP_ATTACH_AUTO);
}

void storm_start(struct storm *s)
{
	int i;

	for (i = 0; i < NR_THREADS; i++) {
		threads[i] = (struct storm_thread) {
			.s = s,
			.job = jobs[i],
			.rng = gtdp_rng(s->seed, i + 1),
		};
		pthread_create(&threads[i].thread, NULL, run_thread, &threads[i]);
	}
}

void storm_stop(struct storm *s)
{
	int i;

	WRITE_ONCE(s->stop, true);
	for (i = 0; i < NR_THREADS; i++)
		pthread_join(threads[i].thread, NULL);
	for (i = 0; i < STORM_AREAS; i++)
		set_slot(s, i, 0, s->areas[i].gpa, STORM_SIZE);
}

void storm_close(struct storm *s)
{
	close(s->fd);
}
