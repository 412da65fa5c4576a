// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ways to have the kernel go after the memory of a process, and to know that it
 * did.  Each returns NULL, or why this host cannot do it.
 */
#include <sys/stat.h>

#include "gtdp_bed.h"
#include "gtdp_keep.h"

#define KSM		"/sys/kernel/mm/ksm/"
#define KHUGEPAGED	"/sys/kernel/mm/transparent_hugepage/khugepaged/"
#define CGROUP		"/sys/fs/cgroup/"
#define CGROUP_TEST	CGROUP "gtdp-test/"

#define WAIT_MSECS	60000

static bool wait_number(const char *path, u64 want)
{
	int msecs;

	for (msecs = 0; msecs < WAIT_MSECS; msecs += 20) {
		if (gtdp_read_number(path) >= want)
			return true;
		usleep(20 * 1000);
	}
	return false;
}

/* Memory of its own, which nobody pins, shows that the scanner was there. */
static void *control_memory(u64 size, int advice)
{
	void *mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	TEST_ASSERT(mem != MAP_FAILED, "mmap() failed, errno: %i", errno);
	memset(mem, 0x77, size);
	TEST_ASSERT(!madvise(mem, size, advice), "madvise() failed: %i", errno);
	return mem;
}

/* A page is merged in the second scan that finds it unchanged. */
const char *gtdp_run_ksm(void)
{
	u64 scans, sharing;
	void *mem;
	bool done;

	if (gtdp_write_file(KSM "pages_to_scan", "100000"))
		return "no KSM in this kernel";

	mem = control_memory(SZ_1M, MADV_MERGEABLE);
	gtdp_write_file(KSM "sleep_millisecs", "10");
	gtdp_write_file(KSM "smart_scan", "0");
	gtdp_write_file(KSM "max_page_sharing", "100000");
	scans = gtdp_read_number(KSM "full_scans");
	gtdp_write_file(KSM "run", "1");
	done = wait_number(KSM "full_scans", scans + 4);
	sharing = gtdp_read_number(KSM "pages_sharing");
	gtdp_write_file(KSM "run", "0");
	munmap(mem, SZ_1M);

	TEST_ASSERT(done, "KSM does not scan");
	TEST_ASSERT(sharing, "KSM merged nothing");
	return NULL;
}

const char *gtdp_run_khugepaged(void)
{
	u64 scans = gtdp_read_number(KHUGEPAGED "full_scans");
	bool done;

	if (gtdp_write_file(KHUGEPAGED "scan_sleep_millisecs", "10"))
		return "no THP in this kernel";
	gtdp_write_file(KHUGEPAGED "alloc_sleep_millisecs", "10");
	gtdp_write_file(KHUGEPAGED "pages_to_scan", "65536");
	done = wait_number(KHUGEPAGED "full_scans", scans + 3);
	gtdp_write_file(KHUGEPAGED "scan_sleep_millisecs", "10000");
	TEST_ASSERT(done, "khugepaged does not scan");
	return NULL;
}

/*
 * Every other page of some memory is given back, so that there are holes to fill.
 * Whether pages have to be moved for that is up to the kernel.
 */
static int compact(u64 size)
{
	u64 i;
	u8 *mem;
	int ret;

	mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TEST_ASSERT(mem != MAP_FAILED, "mmap() failed, errno: %i", errno);
	madvise(mem, size, MADV_NOHUGEPAGE);
	memset(mem, 1, size);
	for (i = 0; i < size; i += 2 * PAGE_SIZE)
		madvise(mem + i, PAGE_SIZE, MADV_DONTNEED);

	ret = gtdp_write_file("/proc/sys/vm/compact_memory", "1");
	munmap(mem, size);
	return ret;
}

const char *gtdp_run_compaction(void)
{
	u64 scanned = gtdp_vmstat("compact_migrate_scanned");
	u64 moved = gtdp_vmstat("pgmigrate_success");
	u64 size;

	for (size = SZ_64M; size <= SZ_256M; size *= 2) {
		if (compact(size))
			return "no compaction in this kernel";
		if (gtdp_vmstat("pgmigrate_success") > moved)
			break;
	}
	TEST_ASSERT(gtdp_vmstat("compact_migrate_scanned") > scanned,
		    "compaction did not look at any page");
	return NULL;
}

/*
 * A control group for what this process allocates from now on: only that can be
 * reclaimed by it.
 */
const char *gtdp_cgroup_enter(void)
{
	char pid[16];

	gtdp_write_file(CGROUP "cgroup.subtree_control", "+memory");
	if (mkdir(CGROUP_TEST, 0755) && errno != EEXIST)
		return "no control groups";
	snprintf(pid, sizeof(pid), "%d", getpid());
	if (access(CGROUP_TEST "memory.reclaim", W_OK) ||
	    gtdp_write_file(CGROUP_TEST "cgroup.procs", pid)) {
		rmdir(CGROUP_TEST);
		return "no memory.reclaim";
	}
	return NULL;
}

/* As much of the group's memory as can be had, which may be less. */
void gtdp_cgroup_reclaim(u64 size)
{
	char text[32];
	int ret;

	snprintf(text, sizeof(text), "%lu", size);
	ret = gtdp_write_file(CGROUP_TEST "memory.reclaim", text);
	TEST_ASSERT(!ret || ret == -EAGAIN, "memory.reclaim: %i", ret);
}

void gtdp_cgroup_leave(void)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	TEST_ASSERT(!gtdp_write_file(CGROUP "cgroup.procs", pid),
		    "cannot go back to the root group");
	rmdir(CGROUP_TEST);
}
