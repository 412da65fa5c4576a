// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test a global mapping in a storm: it is built, healed from its events, released,
 * split, collapsed, attached and closed, while slots come and go, memory is discarded,
 * protected and forked and dirty logging goes on and off, all at once.  The guest checks
 * its memory all the time.
 *
 * GTDP_SECONDS says how long (default 20, on one CPU 6), GTDP_SEED with what seed.
 */
#include <sys/uio.h>

#include "gtdp_storm.h"
#include "ucall_common.h"

#define NR_VCPUS	3
#define BURST		64

/* What the guest has written last, page by page: each page is one vCPU's. */
static u32 guest_last[STORM_AREAS][STORM_PAGES];
static u64 guest_seed;
static u64 guest_all;		/* not at random: check and write every page */
static u64 guest_accesses[NR_VCPUS];

static u64 pattern(int area, u64 page, u32 nr)
{
	return nr ? ((u64)area << 56 | page << 32 | nr) : 0;
}

/* Discarded memory is new memory, and never old content. */
static void guest_check(int area, u64 page, u64 *word)
{
	u64 want = pattern(area, page, guest_last[area][page]), have = READ_ONCE(*word);
	bool discard = area >= STORM_AREAS / 2;

	__GUEST_ASSERT(have == want || (discard && !have),
		       "area %d, page 0x%lx: 0x%lx, expected 0x%lx", area, page, have, want);
}

static void guest_access(int area, u64 page)
{
	u64 *first = (u64 *)(storm_area_gpa(area) + page * PAGE_SIZE);
	u64 *last = first + PAGE_SIZE / 8 - 1;

	guest_check(area, page, first);
	guest_check(area, page, last);
	guest_last[area][page]++;
	WRITE_ONCE(*first, pattern(area, page, guest_last[area][page]));
	WRITE_ONCE(*last, pattern(area, page, guest_last[area][page]));
}

static void guest_main(u64 id)
{
	struct guest_random_state rng = new_guest_random_state(READ_ONCE(guest_seed) + id);
	int i, area;
	u64 page;

	for (;;) {
		if (READ_ONCE(guest_all)) {
			for (area = 0; area < STORM_AREAS; area++) {
				for (page = id; page < STORM_PAGES; page += NR_VCPUS)
					guest_access(area, page);
			}
			GUEST_DONE();
		}
		for (i = 0; i < BURST; i++) {
			page = guest_random_u32(&rng) % (STORM_PAGES / NR_VCPUS) * NR_VCPUS + id;
			guest_access(guest_random_u32(&rng) % STORM_AREAS, page);
		}
		guest_accesses[id] += BURST;
		GUEST_SYNC(0);
	}
}

struct vcpu_thread {
	struct storm *s;
	struct kvm_vcpu *vcpu;
	pthread_t thread;
	u64 mmio;
	u64 faults;
};

/*
 * The slot is not there just now: do what the guest wants in its stead.  Not by
 * touching the memory: it may be protected.
 */
static void handle_mmio(struct vcpu_thread *v)
{
	struct kvm_run *run = v->vcpu->run;
	u64 off = run->mmio.phys_addr - GTDP_TEST_GPA;
	struct storm_area *area = &v->s->areas[off / SZ_1G];
	struct iovec local = { run->mmio.data, run->mmio.len };
	struct iovec remote = { area->mem + off % SZ_1G, run->mmio.len };
	ssize_t n;

	TEST_ASSERT(off / SZ_1G < STORM_AREAS && off % SZ_1G < STORM_SIZE, "MMIO at 0x%llx",
		    run->mmio.phys_addr);
	do {
		n = run->mmio.is_write ? process_vm_writev(getpid(), &local, 1, &remote, 1, 0) :
					 process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
		TEST_ASSERT(n == run->mmio.len || (n < 0 && errno == EFAULT),
			    "memory of the guest: %zi, errno: %i", n, errno);
		if (n < 0)
			usleep(100);
	} while (n < 0);
	v->mmio++;
}

static void *run_vcpu(void *arg)
{
	struct vcpu_thread *v = arg;
	struct ucall uc;

	for (;;) {
		if (__vcpu_run(v->vcpu)) {
			/* EFAULT: its memory is protected. */
			TEST_ASSERT(errno == EINTR || errno == EFAULT, "KVM_RUN: errno %i (%s)",
				    errno, strerror(errno));
			v->faults++;
			usleep(100);
			continue;
		}
		if (v->vcpu->run->exit_reason == KVM_EXIT_MMIO) {
			handle_mmio(v);
			continue;
		}
		switch (get_ucall(v->vcpu, &uc)) {
		case UCALL_SYNC:
			break;
		case UCALL_DONE:
			return NULL;
		case UCALL_ABORT:
			ksft_print_msg("GTDP_SEED=%u failed\n", v->s->seed);
			REPORT_GUEST_ASSERT(uc);
		default:
			TEST_FAIL("exit reason %u", v->vcpu->run->exit_reason);
		}
	}
}

/* The first half of them is kept, see guest_check(). */
static void add_areas(struct storm *s)
{
	bool huge = gtdp_free_hugepages(SZ_2M) >= 2 * STORM_SIZE / SZ_2M;
	const enum vm_mem_backing_src_type sources[STORM_AREAS] = {
		huge ? VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB : VM_MEM_SRC_ANONYMOUS_THP,
		VM_MEM_SRC_ANONYMOUS_THP, VM_MEM_SRC_SHMEM, VM_MEM_SRC_ANONYMOUS_THP,
	};
	struct storm_area *area;
	int i;

	for (i = 0; i < STORM_AREAS; i++) {
		area = &s->areas[i];
		area->gpa = storm_area_gpa(i);
		gtdp_add_memory(s->vm, sources[i], area->gpa, STORM_SLOT + i, STORM_SIZE);
		area->mem = addr_gpa2hva(s->vm, area->gpa);
		area->memfd = memslot2region(s->vm, STORM_SLOT + i)->fd;
		area->discard = i >= STORM_AREAS / 2;
	}
}

static void start_vcpus(struct vcpu_thread *vcpus)
{
	int i;

	for (i = 0; i < NR_VCPUS; i++)
		pthread_create(&vcpus[i].thread, NULL, run_vcpu, &vcpus[i]);
}

static void join_vcpus(struct vcpu_thread *vcpus)
{
	int i;

	for (i = 0; i < NR_VCPUS; i++)
		pthread_join(vcpus[i].thread, NULL);
}

static u64 all_faults(struct vcpu_thread *vcpus)
{
	u64 sum = 0;
	int i;

	for (i = 0; i < NR_VCPUS; i++)
		sum += gtdp_vcpu_stat(vcpus[i].vcpu, "pf_taken");
	return sum;
}

/* After it all: everything can be built, and no vCPU faults any more. */
static void check_calm(struct storm *s, struct vcpu_thread *vcpus)
{
	u64 all = gtdp_slot0_size(s->vm) + STORM_AREAS * STORM_SIZE, faults;
	int i;

	/* A new handle has the statistics of what it has built itself. */
	storm_close(s);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	s->fd = gtdp_attach(s->vm, 0);
	gtdp_build_ok(s->fd, 0, gtdp_slot0_size(s->vm), 0, 0);
	for (i = 0; i < STORM_AREAS; i++)
		gtdp_build_ok(s->fd, s->areas[i].gpa, STORM_SIZE, 0, 0);
	gtdp_assert_built(s->fd, all);
	gtdp_assert_pinned(s->fd, all);

	faults = all_faults(vcpus);
	start_vcpus(vcpus);
	join_vcpus(vcpus);
	TEST_ASSERT_EQ(all_faults(vcpus), faults);
	TEST_ASSERT_EQ(gtdp_stats(s->fd).faults, 0);
	storm_close(s);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
}

static void report(struct storm *s, struct vcpu_thread *vcpus)
{
	u64 accesses = 0, mmio = 0, faults = 0;
	int i;

	sync_global_from_guest(s->vm, guest_accesses);
	for (i = 0; i < NR_VCPUS; i++) {
		accesses += guest_accesses[i];
		mmio += vcpus[i].mmio;
		faults += vcpus[i].faults;
	}
	ksft_print_msg("%lu accesses of the guest, %lu by exits, %lu to protected memory\n",
		       accesses, mmio, faults);
	ksft_print_msg("%lu builds, %lu holes told, %lu splits, collapses and releases\n",
		       s->done[STORM_BUILD], s->holes, s->done[STORM_SPLIT]);
	ksft_print_msg("%lu changes of slots, %lu of memory, %lu dirty logs, %lu attaches\n",
		       s->done[STORM_SLOTS], s->done[STORM_MEMORY], s->done[STORM_DIRTY_LOG],
		       s->done[STORM_ATTACH]);
	for (i = 0; i < STORM_NR_JOBS; i++)
		TEST_ASSERT(s->done[i], "job %d was never done", i);
	TEST_ASSERT(accesses && s->holes, "%lu accesses, %lu holes", accesses, s->holes);
}

static const char *test_storm(void)
{
	int i, seconds = gtdp_seconds(20), log_fd = gtdp_log_open();
	struct vcpu_thread vcpus[NR_VCPUS] = {};
	struct gtdp_host_state before;
	struct storm s = {};

	gtdp_host_state(&before);
	s.seed = gtdp_seed();
	s.vm = vm_create(NR_VCPUS);
	storm_open(&s);
	add_areas(&s);
	guest_seed = s.seed % SZ_1G + 1;
	sync_global_to_guest(s.vm, guest_seed);
	for (i = 0; i < NR_VCPUS; i++) {
		vcpus[i].s = &s;
		vcpus[i].vcpu = vm_vcpu_add(s.vm, i, guest_main);
		vcpu_args_set(vcpus[i].vcpu, 1, i);
	}

	start_vcpus(vcpus);
	storm_start(&s);
	for (i = 0; i < seconds; i++) {
		sleep(1);
		alarm(GTDP_CASE_SECONDS);
	}
	alarm(4 * GTDP_CASE_SECONDS);
	storm_stop(&s);
	guest_all = 1;
	sync_global_to_guest(s.vm, guest_all);
	join_vcpus(vcpus);

	report(&s, vcpus);
	check_calm(&s, vcpus);
	kvm_vm_free(s.vm);
	/* This is the first round, so caches were cold. */
	gtdp_assert_host_state(&before, 2 * GTDP_FREE_SLACK);
	gtdp_assert_log_silent(log_fd);
	close(log_fd);
	return NULL;
}

static const struct gtdp_case cases[] = {
	{ "storm", test_storm },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
