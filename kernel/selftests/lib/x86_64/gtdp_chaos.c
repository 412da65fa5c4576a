// SPDX-License-Identifier: GPL-2.0-only
/*
 * For tests of /dev/kvm-gtdp that do many things at random and at once.
 */
#include <sys/sysinfo.h>

#include "gtdp_bed.h"
#include "gtdp_chaos.h"

/* How long freed memory may take to show as such: RCU, workqueues. */
#define SETTLE_MSECS	10000

int gtdp_seconds(int otherwise)
{
	const char *env = getenv("GTDP_SECONDS");

	if (env)
		return atoi_positive("GTDP_SECONDS", env);
	/* One CPU is an emulator's, that counts instructions: there, seconds are long. */
	return get_nprocs() > 1 ? otherwise : otherwise / 3;
}

u32 gtdp_seed(void)
{
	const char *env = getenv("GTDP_SEED");
	struct timespec ts;
	u32 seed;

	clock_gettime(CLOCK_REALTIME, &ts);
	seed = env ? strtoul(env, NULL, 0) : ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
	ksft_print_msg("GTDP_SEED=%u\n", seed);
	return seed;
}

struct guest_random_state gtdp_rng(u32 seed, u32 stream)
{
	/* Neighbouring seeds would be neighbours in one and the same stream. */
	struct guest_random_state rng = new_guest_random_state(seed ^ stream * 0x9e3779b9);

	/* 0 would stay 0. */
	return new_guest_random_state(guest_random_u32(&rng) ?: stream + 1);
}

/* What CPUs keep at hand is as free: there may be many MiB of it. */
static u64 cpu_free_bytes(void)
{
	FILE *file = fopen("/proc/zoneinfo", "re");
	u64 pages = 0, count;
	char line[128];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, " count: %lu", &count) == 1)
			pages += count;
	}
	if (file)
		fclose(file);
	return pages * PAGE_SIZE;
}

static void read_host_state(struct gtdp_host_state *state)
{
	/* 4 keeps the kernel from logging this. */
	gtdp_write_file("/proc/sys/vm/drop_caches", "4");
	gtdp_write_file("/proc/sys/vm/drop_caches", "3");
	/* What CPUs have counted and not told yet. */
	gtdp_write_file("/proc/sys/vm/stat_refresh", "1");

	state->pins = gtdp_vmstat("nr_foll_pin_acquired") - gtdp_vmstat("nr_foll_pin_released");
	state->table_bytes = gtdp_find_number("/proc/meminfo", "SecPageTables: %lu") * SZ_1K;
	state->free_2m = gtdp_free_hugepages(SZ_2M);
	state->free_1g = gtdp_free_hugepages(SZ_1G);
	state->free_bytes = gtdp_find_number("/proc/meminfo", "MemFree: %lu") * SZ_1K +
			    cpu_free_bytes();
}

static bool is_back(const struct gtdp_host_state *before, const struct gtdp_host_state *now,
		    u64 free_slack)
{
	return now->pins <= before->pins && now->table_bytes <= before->table_bytes &&
	       now->free_2m >= before->free_2m && now->free_1g >= before->free_1g &&
	       now->free_bytes + free_slack >= before->free_bytes;
}

/* As it is once it does not change any more: somebody may just have gone. */
void gtdp_host_state(struct gtdp_host_state *state)
{
	u64 end = gtdp_msecs() + SETTLE_MSECS;
	struct gtdp_host_state last;

	read_host_state(state);
	do {
		last = *state;
		usleep(200 * 1000);
		read_host_state(state);
	} while (!(is_back(&last, state, SZ_1M) && is_back(state, &last, SZ_1M)) &&
		 gtdp_msecs() < end);
}

void gtdp_assert_host_state(const struct gtdp_host_state *before, u64 free_slack)
{
	struct gtdp_host_state now;
	u64 end = gtdp_msecs() + SETTLE_MSECS;

	/* Such a kernel keeps records, and freed memory back.  It finds leaks itself. */
	if (!access("/sys/kernel/debug/kmemleak", F_OK))
		free_slack = SZ_1G;

	for (;;) {
		read_host_state(&now);
		if (is_back(before, &now, free_slack))
			return;
		if (gtdp_msecs() > end)
			break;
		usleep(100 * 1000);
	}

	TEST_ASSERT(false,
		    "left behind: %ld pins, %ld bytes of tables, %ld pages of 2M, %ld of 1G, %ld bytes",
		    now.pins - before->pins, now.table_bytes - before->table_bytes,
		    before->free_2m - now.free_2m, before->free_1g - now.free_1g,
		    before->free_bytes - now.free_bytes);
}

int gtdp_log_open(void)
{
	int fd;

	gtdp_write_file("/proc/sys/vm/drop_caches", "4");
	fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	TEST_ASSERT(fd >= 0, "open(/dev/kmsg) failed, errno: %i", errno);
	TEST_ASSERT(lseek(fd, 0, SEEK_END) >= 0, "lseek(/dev/kmsg) failed, errno: %i", errno);
	return fd;
}

/*
 * What a slow machine says by itself.  KVM, when a VM's fd is used again before the
 * VM has gone (and how often it did not say so), and when the host's TSC is not to be
 * relied on.
 */
static bool is_noise(const char *text)
{
	static const char * const noise[] = {
		"clocksource:", "hrtimer: interrupt took", "sched: RT throttling",
		"perf: interrupt took too long", "crng init done",
		"debugfs: duplicate directory", "kvm_create_vm_debugfs: ",
		"unstable TSC",
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(noise); i++) {
		if (strstr(text, noise[i]))
			return true;
	}
	return false;
}

void gtdp_assert_log_silent(int fd)
{
	char line[8192];
	unsigned int prio;
	int lines = 0;
	ssize_t n;

	while ((n = read(fd, line, sizeof(line) - 1)) > 0 || (n < 0 && errno == EPIPE)) {
		/* EPIPE: so much that some is lost already. */
		if (n < 0)
			snprintf(line, sizeof(line), "0,;lines were lost\n");
		else
			line[n] = 0;
		/* Others may write to /dev/kmsg too, under their own facility. */
		if (sscanf(line, "%u,", &prio) != 1 || prio >> 3 || is_noise(line))
			continue;
		ksft_print_msg("kernel log: %s", line);
		lines++;
	}
	TEST_ASSERT(!lines, "the kernel logged %d lines", lines);
}
