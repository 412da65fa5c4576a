// SPDX-License-Identifier: GPL-2.0-only
/*
 * A VM whose vCPUs write everywhere, and somebody who copies its memory by the dirty
 * log alone.
 */
#include <signal.h>
#include <sys/syscall.h>

#include "gtdp_dirty.h"
#include "ucall_common.h"

#define RING_BYTES	(1024 * sizeof(struct kvm_dirty_gfn))
#define LOG_BYTES	(DIRTY_PAGES / 8)
/* The guest looks whether it is to stop after so many writes. */
#define BURST		64
#define WINDOW		32

/* How vCPUs are to stop: in the guest, with what the CPU has logged in its buffer. */
enum { PARK_NOT, PARK_SPIN, PARK_EXIT };

/* Guest and host both see these, the host through guest_word(). */
static u64 guest_counter;
static u64 guest_park;
static u64 guest_parked[DIRTY_VCPUS];
static u64 guest_seed;

static u64 *guest_word(struct dirty_vm *d, u64 *word)
{
	return addr_gva2hva(d->vm, (vm_vaddr_t)word);
}

static void guest_write(struct guest_random_state *rng, u32 page)
{
	u64 value = __atomic_fetch_add(&guest_counter, 1, __ATOMIC_RELAXED) + 1;
	u64 word = guest_random_u32(rng) % (PAGE_SIZE / 8);

	WRITE_ONCE(*(u64 *)(DIRTY_GPA + page * PAGE_SIZE + word * 8), value);
}

/* Everywhere, and again and again in a small window that wanders. */
static void guest_main(u64 id)
{
	struct guest_random_state rng = new_guest_random_state(READ_ONCE(guest_seed) + id);
	u32 i, window;
	u64 park;

	for (;;) {
		window = guest_random_u32(&rng) % (DIRTY_PAGES - WINDOW);
		for (i = 0; i < BURST; i++)
			guest_write(&rng, i & 1 ? guest_random_u32(&rng) % DIRTY_PAGES :
						  window + guest_random_u32(&rng) % WINDOW);

		park = READ_ONCE(guest_park);
		if (park == PARK_NOT)
			continue;
		WRITE_ONCE(guest_parked[id], 1);
		if (park == PARK_EXIT)
			GUEST_SYNC(0);
		while (READ_ONCE(guest_park) != PARK_NOT)
			cpu_relax();
		WRITE_ONCE(guest_parked[id], 0);
	}
}

static void on_kick(int sig)
{
}

/* Has the guest stopped by itself, to go on when it is told? */
static void wait_unparked(struct dirty_vm *d, struct dirty_vcpu *v)
{
	while (READ_ONCE(*guest_word(d, &guest_park)) == PARK_EXIT && !READ_ONCE(d->stop)) {
		WRITE_ONCE(v->kicked, READ_ONCE(d->kicks));
		usleep(500);
	}
}

static void *run_vcpu(void *arg)
{
	struct dirty_vcpu *v = arg;
	struct dirty_vm *d = v->vm;
	struct ucall uc;
	int ret;

	v->tid = syscall(__NR_gettid);
	while (!READ_ONCE(d->stop)) {
		ret = __vcpu_run(v->vcpu);
		/* Read before the next run: what was logged until now is in the ring. */
		WRITE_ONCE(v->kicked, READ_ONCE(d->kicks));
		if (ret) {
			/* EFAULT: its memory is write-protected by the owner for a moment. */
			TEST_ASSERT(errno == EINTR || errno == EFAULT, "KVM_RUN: errno %i (%s)",
				    errno, strerror(errno));
			continue;
		}
		if (v->vcpu->run->exit_reason == KVM_EXIT_DIRTY_RING_FULL) {
			usleep(500);
			continue;
		}
		TEST_ASSERT_KVM_EXIT_REASON(v->vcpu, KVM_EXIT_IO);
		TEST_ASSERT_EQ(get_ucall(v->vcpu, &uc), UCALL_SYNC);
		wait_unparked(d, v);
	}
	return NULL;
}

static void enable_mode(struct dirty_vm *d)
{
	if (d->mode == DIRTY_RING)
		vm_enable_dirty_ring(d->vm, RING_BYTES);
	else if (d->mode != DIRTY_BITMAP)
		vm_enable_cap(d->vm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
			      KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE |
			      (d->mode == DIRTY_INITIALLY_SET ? KVM_DIRTY_LOG_INITIALLY_SET : 0));
}

struct dirty_vm *dirty_vm_create(enum dirty_mode mode, enum vm_mem_backing_src_type src, u32 seed)
{
	struct dirty_vm *d = calloc(1, sizeof(*d));
	int i;

	TEST_ASSERT(d, "no memory");
	d->mode = mode;
	d->seed = seed;
	d->rng = gtdp_rng(seed, 0);
	d->vm = vm_create(DIRTY_VCPUS);
	enable_mode(d);
	gtdp_add_memory(d->vm, src, DIRTY_GPA, DIRTY_SLOT, DIRTY_SIZE);
	d->mem = addr_gpa2hva(d->vm, DIRTY_GPA);
	d->copy = malloc(DIRTY_SIZE);
	d->log = calloc(1, LOG_BYTES);
	TEST_ASSERT(d->copy && d->log, "no memory");

	for (i = 0; i < DIRTY_VCPUS; i++) {
		d->vcpus[i].vm = d;
		d->vcpus[i].vcpu = vm_vcpu_add(d->vm, i, guest_main);
		vcpu_args_set(d->vcpus[i].vcpu, 1, i);
		if (mode == DIRTY_RING)
			vcpu_map_dirty_ring(d->vcpus[i].vcpu);
	}
	*guest_word(d, &guest_seed) = (seed % SZ_1G) | 1;
	signal(SIGUSR1, on_kick);
	return d;
}

void dirty_vm_start(struct dirty_vm *d)
{
	int i;

	for (i = 0; i < DIRTY_VCPUS; i++)
		pthread_create(&d->vcpus[i].thread, NULL, run_vcpu, &d->vcpus[i]);
}

/* Until each vCPU has left the guest once: what is in its CPU's buffer is logged. */
static void kick(struct dirty_vm *d)
{
	u32 kicks = ++d->kicks;
	int i;

	for (i = 0; i < DIRTY_VCPUS; i++) {
		while (READ_ONCE(d->vcpus[i].kicked) != kicks) {
			pthread_kill(d->vcpus[i].thread, SIGUSR1);
			usleep(200);
		}
	}
}

void dirty_vm_free(struct dirty_vm *d)
{
	int i;

	*guest_word(d, &guest_park) = PARK_NOT;
	kick(d);
	WRITE_ONCE(d->stop, true);
	for (i = 0; i < DIRTY_VCPUS; i++) {
		while (pthread_tryjoin_np(d->vcpus[i].thread, NULL)) {
			pthread_kill(d->vcpus[i].thread, SIGUSR1);
			usleep(200);
		}
	}
	kvm_vm_free(d->vm);
	free(d->copy);
	free(d->log);
	free(d);
}

u64 dirty_writes(struct dirty_vm *d)
{
	return READ_ONCE(*guest_word(d, &guest_counter));
}

/* The library's memcpy() and memcmp() go byte by byte. */
static void copy_page(u64 *to, const u64 *from)
{
	int i;

	for (i = 0; i < PAGE_SIZE / 8; i++)
		to[i] = READ_ONCE(from[i]);
}

/* The first word that differs, or -1. */
static int differs(const u64 *a, const u64 *b)
{
	int i;

	for (i = 0; i < PAGE_SIZE / 8; i++) {
		if (a[i] != b[i])
			return i;
	}
	return -1;
}

static void copy_pages(struct dirty_vm *d, const unsigned long *log)
{
	u64 page;

	for (page = 0; page < DIRTY_PAGES; page++) {
		if (!(log[page / BITS_PER_LONG] >> page % BITS_PER_LONG & 1))
			continue;
		copy_page(d->copy + page * PAGE_SIZE, d->mem + page * PAGE_SIZE);
		d->copied++;
	}
}

/* Pages are to be logged again from here on, and so are to be copied after it. */
static void clear_log(struct dirty_vm *d, bool all)
{
	u64 first = 0, nr = DIRTY_PAGES;

	if (!all) {
		first = gtdp_below(&d->rng, DIRTY_PAGES / 64) * 64;
		nr = (1 + gtdp_below(&d->rng, (DIRTY_PAGES - first) / 64)) * 64;
	}
	kvm_vm_clear_dirty_log(d->vm, DIRTY_SLOT, d->log + first / BITS_PER_LONG, first, nr);
	/* What was not cleared is still in KVM's log. */
	memset(d->log, 0, first / 8);
	memset((char *)d->log + (first + nr) / 8, 0, (DIRTY_PAGES - first - nr) / 8);
}

static void add_to_log(struct dirty_vm *d, u64 page)
{
	TEST_ASSERT(page < DIRTY_PAGES, "page 0x%lx", page);
	d->log[page / BITS_PER_LONG] |= 1ul << page % BITS_PER_LONG;
}

static void harvest_ring(struct dirty_vm *d)
{
	struct kvm_dirty_gfn *gfn;
	struct dirty_vcpu *v;
	int i;

	memset(d->log, 0, LOG_BYTES);
	for (i = 0; i < DIRTY_VCPUS; i++) {
		v = &d->vcpus[i];
		for (;; v->fetched++) {
			gfn = &v->vcpu->dirty_gfns[v->fetched % v->vcpu->dirty_gfns_count];
			if (__atomic_load_n(&gfn->flags, __ATOMIC_ACQUIRE) != KVM_DIRTY_GFN_F_DIRTY)
				break;
			/* Other slots may be logged, too. */
			if (gfn->slot == DIRTY_SLOT)
				add_to_log(d, gfn->offset);
			__atomic_store_n(&gfn->flags, KVM_DIRTY_GFN_F_RESET, __ATOMIC_RELEASE);
		}
	}
	kvm_vm_reset_dirty_ring(d->vm);
}

/* @all: not only a part of what is there, if there is a choice. */
void dirty_harvest(struct dirty_vm *d, bool all)
{
	if (d->mode == DIRTY_RING) {
		harvest_ring(d);
	} else {
		kvm_vm_get_dirty_log(d->vm, DIRTY_SLOT, d->log);
		if (d->mode != DIRTY_BITMAP)
			clear_log(d, all);
	}
	copy_pages(d, d->log);
}

void dirty_enable(struct dirty_vm *d)
{
	u64 page;

	vm_mem_region_set_flags(d->vm, DIRTY_SLOT, KVM_MEM_LOG_DIRTY_PAGES);
	/* With all pages in the log, there is nothing else to go by. */
	for (page = 0; page < DIRTY_PAGES; page++) {
		if (d->mode == DIRTY_INITIALLY_SET)
			*(u64 *)(d->copy + page * PAGE_SIZE) = -1;
		else
			copy_page(d->copy + page * PAGE_SIZE, d->mem + page * PAGE_SIZE);
	}
}

void dirty_disable(struct dirty_vm *d)
{
	vm_mem_region_set_flags(d->vm, DIRTY_SLOT, 0);
}

static void park(struct dirty_vm *d, u64 how)
{
	u64 want = how != PARK_NOT;
	int i;

	WRITE_ONCE(*guest_word(d, &guest_park), how);
	for (i = 0; i < DIRTY_VCPUS; i++) {
		while (READ_ONCE(*guest_word(d, &guest_parked[i])) != want) {
			/* With its ring full, a vCPU does not get to where it could see it. */
			dirty_harvest(d, true);
			usleep(200);
		}
	}
}

static void check_page(struct dirty_vm *d, u64 page)
{
	u64 *now = d->mem + page * PAGE_SIZE, *old = d->copy + page * PAGE_SIZE;
	int i = differs(now, old);

	TEST_ASSERT(i < 0,
		    "GTDP_SEED=%u: page 0x%lx, word %d: write %lu of %lu is not in the log (was %lu)",
		    d->seed, page, i, now[i < 0 ? 0 : i], dirty_writes(d),
		    old[i < 0 ? 0 : i]);
}

void dirty_check(struct dirty_vm *d)
{
	u64 page;

	park(d, gtdp_below(&d->rng, 2) ? PARK_SPIN : PARK_EXIT);
	if (d->mode == DIRTY_RING)
		kick(d);
	dirty_harvest(d, true);

	for (page = 0; page < DIRTY_PAGES; page++)
		check_page(d, page);
	d->compared++;

	park(d, PARK_NOT);
}
