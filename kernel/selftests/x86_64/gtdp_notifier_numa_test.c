// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test what moves memory between nodes: asked for by the owner, by another, and
 * by NUMA balancing.  A pin prevents it, without a hole; what is not pinned is
 * moved, and the guest goes with it.
 */
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

#include "gtdp_bed.h"

#define SIZE	GTDP_BED_SIZE
#define GPA	((u64)GTDP_TEST_GPA)

#define BALANCING	"/proc/sys/kernel/numa_balancing"
#define BALANCING_DEBUG	"/sys/kernel/debug/sched/numa_balancing/"
#define BALANCING_SECS	40

static bool is_pinned(struct gtdp_bed *bed)
{
	return !(bed->build_flags & KVM_GTDP_BUILD_NOPIN);
}

static const char *needs_nodes(void)
{
	u64 cpu = gtdp_read_number("/sys/devices/system/node/node1/cpulist");

	return cpu == -1ull ? "needs two nodes" : NULL;
}

/* The node of a page, by the only call that tells. */
static int node_of(void *page)
{
	int status = -1;

	TEST_ASSERT(!syscall(__NR_move_pages, 0, 1ul, &page, NULL, &status, 0),
		    "move_pages() failed, errno: %i", errno);
	return status;
}

static u64 pages_on(struct gtdp_bed *bed, int node)
{
	u64 i, nr = 0;

	for (i = 0; i < SIZE; i += PAGE_SIZE)
		nr += node_of(bed->mem + i) == node;
	return nr;
}

/* Pinned: not one page went.  Otherwise at least most did. */
static void check_moved(struct gtdp_bed *bed, int from, bool announced)
{
	struct kvm_gtdp_stats now = gtdp_stats(bed->fd);
	u64 left = pages_on(bed, from);

	if (is_pinned(bed)) {
		TEST_ASSERT_EQ(left, SIZE / PAGE_SIZE);
		if (announced)
			TEST_ASSERT(now.kept_bytes > bed->before.kept_bytes,
				    "nothing was announced: is this a test?");
		gtdp_bed_assert_kept(bed);
	} else {
		TEST_ASSERT(left < SIZE / PAGE_SIZE / 4,
			    "%lu pages of %lu are still on node %d", left,
			    (u64)(SIZE / PAGE_SIZE), from);
		gtdp_bed_assert_some_lost(bed);
		gtdp_bed_coherent(bed, 0, SIZE);
		gtdp_bed_heal(bed, 0);
	}
	gtdp_bed_mark(bed);
}

static void run_on_node(int node)
{
	cpu_set_t cpus;
	char path[64];
	u64 cpu;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist",
		 node);
	cpu = gtdp_read_number(path);
	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	TEST_ASSERT(!sched_setaffinity(0, sizeof(cpus), &cpus),
		    "cannot run on node %d, errno: %i", node, errno);
}

/* Whoever builds, and wherever he runs: the VM's memory decides. */
static const char *test_tables(void)
{
	struct kvm_gtdp_stats stats;
	unsigned long mask;
	cpu_set_t before;
	struct kvm_vm *vm;
	int node, fd;
	u8 *mem;

	if (needs_nodes())
		return needs_nodes();

	sched_getaffinity(0, sizeof(before), &before);
	for (node = 0; node < 2; node++) {
		mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		TEST_ASSERT(mem != MAP_FAILED, "mmap() failed: %i", errno);
		mask = 1ul << node;
		TEST_ASSERT(!syscall(__NR_mbind, mem, SIZE, MPOL_BIND, &mask,
				     8ul, 0), "mbind() failed: %i", errno);
		run_on_node(!node);
		vm = vm_create(1);
		vm_set_user_memory_region(vm, GTDP_TEST_SLOT, 0, GPA, SIZE,
					  mem);
		fd = gtdp_attach(vm, 0);
		gtdp_build_ok(fd, GPA, SIZE, 0, PG_LEVEL_4K);
		TEST_ASSERT_EQ(node_of(mem), node);
		stats = gtdp_stats(fd);
		TEST_ASSERT(stats.table_pages[node] >= SIZE / SZ_2M &&
			    stats.table_pages[!node] <= 4,
			    "tables: %llu on node %d, %llu on the other",
			    stats.table_pages[node], node,
			    stats.table_pages[!node]);
		close(fd);
		kvm_vm_free(vm);
		munmap(mem, SIZE);
		sched_setaffinity(0, sizeof(before), &before);
	}
	return NULL;
}

static const char *check_move_pages(struct gtdp_bed *bed)
{
	u64 i, nr = SIZE / bed->leaf;
	int from = node_of(bed->mem), *nodes, *status;
	void **pages;

	pages = calloc(nr, sizeof(*pages));
	nodes = calloc(nr, sizeof(*nodes));
	status = calloc(nr, sizeof(*status));
	for (i = 0; i < nr; i++) {
		pages[i] = bed->mem + i * bed->leaf;
		nodes[i] = !from;
	}
	TEST_ASSERT(syscall(__NR_move_pages, 0, nr, pages, nodes, status,
			    MPOL_MF_MOVE) >= 0,
		    "move_pages() failed, errno: %i", errno);
	free(pages);
	free(nodes);
	free(status);
	check_moved(bed, from, true);
	return NULL;
}

static const char *check_mbind(struct gtdp_bed *bed)
{
	int from = node_of(bed->mem);
	unsigned long mask = 1ul << !from;
	long ret;

	ret = syscall(__NR_mbind, bed->mem, SIZE, MPOL_BIND, &mask, 8ul,
		      MPOL_MF_MOVE);
	TEST_ASSERT(!ret || errno == EIO, "mbind() failed, errno: %i", errno);
	check_moved(bed, from, true);
	return NULL;
}

/* As an administrator does it to a process. */
static const char *check_migrate_pages(struct gtdp_bed *bed)
{
	int from = node_of(bed->mem);
	unsigned long old = 1ul << from, new = 1ul << !from;

	TEST_ASSERT(syscall(__NR_migrate_pages, 0, 8ul, &old, &new) >= 0,
		    "migrate_pages() failed, errno: %i", errno);
	check_moved(bed, from, true);
	return NULL;
}

static void tune_balancing(const char *value)
{
	gtdp_write_file(BALANCING_DEBUG "scan_delay_ms", value);
	gtdp_write_file(BALANCING_DEBUG "scan_period_min_ms", value);
	gtdp_write_file(BALANCING_DEBUG "scan_period_max_ms", value);
}

static u64 marked_pages(void)
{
	return gtdp_vmstat("numa_pte_updates");
}

/*
 * The owner uses its memory from the other node.  NUMA balancing takes the memory
 * from its page tables, to see that, and would move it.
 */
static const char *check_balancing(struct gtdp_bed *bed)
{
	time_t end = time(NULL) + BALANCING_SECS;
	u64 i, marked = marked_pages(), faults = gtdp_vmstat("numa_hint_faults");
	struct kvm_gtdp_stats now;
	cpu_set_t before;
	bool seen = false;

	sched_getaffinity(0, sizeof(before), &before);
	if (gtdp_write_file(BALANCING, "1"))
		return "no NUMA balancing in this kernel";
	tune_balancing("100");
	run_on_node(!node_of(bed->mem));
	while (!seen && time(NULL) < end) {
		for (i = 0; i < SIZE; i += PAGE_SIZE)
			READ_ONCE(*(u64 *)(bed->mem + i));
		now = gtdp_stats(bed->fd);
		seen = is_pinned(bed) ?
		       now.kept_bytes >= bed->before.kept_bytes + SIZE :
		       now.lost_bytes[KVM_GTDP_HOLE_NOTIFIER] >
		       bed->before.lost_bytes[KVM_GTDP_HOLE_NOTIFIER];
	}
	gtdp_write_file(BALANCING, "0");
	tune_balancing("1000");
	sched_setaffinity(0, sizeof(before), &before);
	ksft_print_msg("%lu pages were marked, %lu hint faults taken\n",
		       marked_pages() - marked,
		       gtdp_vmstat("numa_hint_faults") - faults);
	TEST_ASSERT(seen, "NUMA balancing did not come by in %d s",
		    BALANCING_SECS);

	if (is_pinned(bed)) {
		gtdp_bed_assert_kept(bed);
	} else {
		gtdp_bed_assert_some_lost(bed);
		gtdp_bed_coherent(bed, 0, SIZE);
		gtdp_bed_heal(bed, 0);
	}
	return NULL;
}

static const char *both(u32 kinds, const char *(*fn)(struct gtdp_bed *bed))
{
	const char *why = needs_nodes();

	why = why ?: gtdp_bed_each(kinds, 0, fn);
	return why ?: gtdp_bed_each(kinds, KVM_GTDP_BUILD_NOPIN, fn);
}

static const char *test_move_pages(void)
{
	return both(GTDP_MEM_ANY, check_move_pages);
}

static const char *test_mbind(void)
{
	return both(GTDP_MEM_ANY, check_mbind);
}

static const char *test_migrate_pages(void)
{
	return both(GTDP_MEM_ANY, check_migrate_pages);
}

static const char *test_balancing(void)
{
	return both(GTDP_MEM_ANY_ANON | GTDP_MEM_ANY_MEMFD, check_balancing);
}

static const struct gtdp_case cases[] = {
	{ "property 6: page tables are on the memory's node", test_tables },
	{ "move_pages", test_move_pages },
	{ "mbind", test_mbind },
	{ "migrate_pages", test_migrate_pages },
	{ "numa_balancing", test_balancing },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
