/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For tests of /dev/kvm-gtdp that do many things at random and at once: how long,
 * by what seed, and whether anything was left behind.
 */
#ifndef SELFTEST_KVM_GTDP_CHAOS_H
#define SELFTEST_KVM_GTDP_CHAOS_H

#include <time.h>

#include "gtdp.h"

/* Environment: GTDP_SECONDS and GTDP_SEED, so that a failure can be tried again. */
int gtdp_seconds(int otherwise);
u32 gtdp_seed(void);

/* One of many streams of a seed. */
struct guest_random_state gtdp_rng(u32 seed, u32 stream);

static inline u32 gtdp_below(struct guest_random_state *rng, u32 n)
{
	return guest_random_u32(rng) % n;
}

static inline u64 gtdp_msecs(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ull + ts.tv_nsec / 1000000;
}

/* What the host has, and what must be back once all is closed. */
struct gtdp_host_state {
	s64 pins;		/* pages pinned by anybody, less those let go */
	s64 table_bytes;	/* TDP tables of all VMs */
	s64 free_2m;
	s64 free_1g;
	s64 free_bytes;
};

/*
 * Slabs fill up with what is kept for the next time: some 100 KiB for each of the first
 * rounds of the fuzzer, 1.5 MiB after 20 of them, and no more later.  The other values
 * are exact.
 */
#define GTDP_FREE_SLACK	SZ_8M

void gtdp_host_state(struct gtdp_host_state *state);
void gtdp_assert_host_state(const struct gtdp_host_state *before, u64 free_slack);

/* The kernel's log from now on, and nothing of the kernel's must be there. */
int gtdp_log_open(void);
void gtdp_assert_log_silent(int fd);

#endif /* SELFTEST_KVM_GTDP_CHAOS_H */
