// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the fuzzer does to the memory of its VMs, as their owner.  Nothing here
 * touches the memory directly: it may be anything, or not be there.
 */
#include <linux/falloc.h>
#include <sys/wait.h>

#include "gtdp_bed.h"
#include "gtdp_fuzz.h"
#include "gtdp_keep.h"

#define SLOT_OFFSET(slot)	((u64)(slot) * FUZZ_SLOT_MAX)

static int mmap_fixed(void *mem, u64 size, int prot, int flags, int fd, u64 offset)
{
	return mmap(mem, size, prot, flags | MAP_FIXED, fd, offset) == MAP_FAILED ? -errno : 0;
}

/* Other memory in the place of what is there, which goes. */
int fuzz_map(struct fuzz_worker *w, int vm, int slot, u32 backing, u64 size)
{
	const int rw = PROT_READ | PROT_WRITE;
	/* Sometimes the same part of the file as another slot. */
	u64 offset = SLOT_OFFSET(fuzz_percent(w, 90) ? slot : gtdp_below(&w->rng, FUZZ_SLOTS));
	u64 whole = (size + SZ_2M - 1) / SZ_2M * SZ_2M;
	void *mem = fuzz_mem(vm, slot);
	int ret = -EINVAL;

	switch (backing) {
	case FUZZ_MEMFD:
		ret = mmap_fixed(mem, size, rw, MAP_SHARED, fuzz_mem_fd(vm, false), offset);
		break;
	case FUZZ_MEMFD_PRIVATE:
		ret = mmap_fixed(mem, size, rw, MAP_PRIVATE, fuzz_mem_fd(vm, false), offset);
		break;
	case FUZZ_HUGETLB:
		ret = mmap_fixed(mem, whole, rw, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
		break;
	case FUZZ_HUGETLB_MEMFD:
		ret = mmap_fixed(mem, whole, rw, MAP_SHARED, fuzz_mem_fd(vm, true), offset);
		break;
	}
	/* Also when the huge pages are all taken. */
	if (ret)
		ret = mmap_fixed(mem, size, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!ret && backing == FUZZ_THP)
		madvise(mem, size, MADV_HUGEPAGE);
	return ret;
}

/* A part of a slot's memory, or all of it. */
static void *random_part(struct fuzz_worker *w, int vm, int *slot, u64 *size)
{
	u64 off = 0, unit = fuzz_percent(w, 50) ? SZ_2M : PAGE_SIZE;

	*slot = fuzz_pick_slot(w, vm);
	*size = fuzz->vms[vm].slots[*slot].size ?: PAGE_SIZE;
	if (fuzz_percent(w, 70)) {
		off = fuzz_u64(w) % *size / unit * unit;
		*size = fuzz_u64(w) % (*size - off) / unit * unit ?: PAGE_SIZE;
	}
	w->now->arg[0] = *slot;
	w->now->arg[1] = off;
	w->now->arg[2] = *size;
	return fuzz_mem(vm, *slot) + off;
}

int fuzz_discard(struct fuzz_worker *w, int vm)
{
	u64 size;
	int slot;
	void *mem = random_part(w, vm, &slot, &size);

	return madvise(mem, size, fuzz_percent(w, 80) ? MADV_DONTNEED : MADV_REMOVE) ? -errno : 0;
}

int fuzz_punch(struct fuzz_worker *w, int vm)
{
	u64 size;
	int slot;
	void *mem = random_part(w, vm, &slot, &size);
	u64 offset = SLOT_OFFSET(slot) + (mem - fuzz_mem(vm, slot));

	return fallocate(fuzz_mem_fd(vm, fuzz_percent(w, 50)),
			 FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size) ? -errno : 0;
}

/*
 * An munmap() would let others have the place, and us destroy what they keep there.
 * Mapping nothing over it is the same to KVM.
 */
int fuzz_remap(struct fuzz_worker *w, int vm)
{
	int slot = fuzz_pick_slot(w, vm);
	u64 size = fuzz->vms[vm].slots[slot].size ?: SZ_2M;

	w->now->arg[0] = slot;
	if (fuzz_percent(w, 30))
		return mmap_fixed(fuzz_mem(vm, slot), FUZZ_SLOT_MAX, PROT_NONE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return fuzz_map(w, vm, slot, gtdp_below(&w->rng, FUZZ_NR_BACKINGS), size);
}

int fuzz_protect(struct fuzz_worker *w, int vm)
{
	u64 size;
	int slot, ret;
	void *mem = random_part(w, vm, &slot, &size);

	ret = mprotect(mem, size, fuzz_percent(w, 50) ? PROT_READ : PROT_NONE) ? -errno : 0;
	if (fuzz_percent(w, 90)) {
		usleep(gtdp_below(&w->rng, 1000));
		mprotect(mem, size, PROT_READ | PROT_WRITE);
	}
	return ret;
}

int fuzz_advise(struct fuzz_worker *w, int vm)
{
	static const int advice[] = {
		MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLLAPSE, MADV_MERGEABLE, MADV_UNMERGEABLE,
		MADV_COLD, MADV_PAGEOUT, MADV_FREE, MADV_WILLNEED, MADV_POPULATE_READ,
		MADV_DONTFORK, MADV_DOFORK, MADV_WIPEONFORK, MADV_KEEPONFORK,
	};
	u64 size;
	int slot, i = gtdp_below(&w->rng, ARRAY_SIZE(advice));
	void *mem = random_part(w, vm, &slot, &size);

	w->now->arg[3] = advice[i];
	return madvise(mem, size, advice[i]) ? -errno : 0;
}

int fuzz_touch(struct fuzz_worker *w, int vm)
{
	u64 size;
	int slot;
	void *mem = random_part(w, vm, &slot, &size);

	return madvise(mem, size, MADV_POPULATE_WRITE) ? -errno : 0;
}

/* A child that has all memory, too, takes some for itself, and goes. */
int fuzz_fork(struct fuzz_worker *w, int vm)
{
	u64 size;
	int slot;
	void *mem = random_part(w, vm, &slot, &size);
	pid_t pid;

	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		madvise(mem, size, MADV_POPULATE_WRITE);
		_exit(0);
	}
	return waitpid(pid, NULL, 0) == pid ? 0 : -errno;
}

#define NX_HUGE_PAGES	"/sys/module/kvm/parameters/nx_huge_pages"

/* What an administrator may do: it is for all VMs. */
int fuzz_host(struct fuzz_worker *w, int vm)
{
	switch (gtdp_below(&w->rng, 4)) {
	case 0:
		return gtdp_write_file("/proc/sys/vm/compact_memory", "1");
	case 1:
		return gtdp_write_file(NX_HUGE_PAGES, "force");
	default:
		return gtdp_write_file(NX_HUGE_PAGES, "off");
	}
}

void fuzz_restore_host(void)
{
	gtdp_write_file(NX_HUGE_PAGES, "auto");
}
