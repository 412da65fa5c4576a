// SPDX-License-Identifier: GPL-2.0-only
/*
 * Build a range: pin a batch of the owner's memory, then map it.
 *
 * A batch is what one page table maps.  Each batch is a whole of its own: it
 * takes kvm->srcu and the owner's address space, and lets both go, so neither a
 * slot deletion nor the end of the owner ever waits for more than one batch, and
 * an error leaves everything up to there in place.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hugetlb.h>
#include <linux/kthread.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "gtdp_internal.h"

/* How often a batch that lost a race is tried again before the caller is told. */
#define MAX_RETRIES	16

/* How much a caller from outside faults in before it tries to build again. */
#define FAULT_IN_PAGES	(256UL << 20 >> PAGE_SHIFT)

/* The owner's pages at a gfn: a hint, the pages themselves are checked later. */
static unsigned long backing_page_size(struct mm_struct *mm, unsigned long hva)
{
	struct vm_area_struct *vma;
	unsigned long size = PAGE_SIZE;

	mmap_read_lock(mm);
	vma = vma_lookup(mm, hva);
	if (vma)
		size = vma_kernel_pagesize(vma);
	mmap_read_unlock(mm);
	return size;
}

static bool stale(struct kvm *kvm, unsigned long seq, gfn_t start, gfn_t end)
{
	if (unlikely(kvm->mmu_invalidate_in_progress) &&
	    start < kvm->mmu_invalidate_range_end &&
	    end > kvm->mmu_invalidate_range_start)
		return true;
	return kvm->mmu_invalidate_seq != seq;
}

static bool over_limit(struct gtdp_build *b, long nr)
{
	return b->pin && atomic64_read(&b->gtdp->pinned_pages) + nr > b->gtdp->pin_limit;
}

/*
 * Map the @nr leaves that were pinned.  Returns how many were mapped, and takes
 * care of all pins.
 */
static int map_pinned(struct gtdp_build *b, const struct kvm_memory_slot *slot, gfn_t gfn,
		      int nr, int level, unsigned long seq, bool check_host_level)
{
	struct kvm *kvm = b->kvm;
	int r;

	r = gtdp_spares_top_up(&b->spares, kvm_mmu_get_max_tdp_level() - level + 1,
			       page_to_nid(b->pages->page[0]));
	if (r)
		goto out;

	read_lock(&kvm->mmu_lock);
	if (stale(kvm, seq, gfn, gfn + nr * KVM_PAGES_PER_HPAGE(level)))
		r = -EAGAIN;
	else if (check_host_level && kvm_mmu_max_mapping_level(kvm, slot, gfn, level) < level)
		r = -EMLINK;
	else
		r = gtdp_map(b, slot, gfn, nr, level);
	if (r > 0 && b->pin)
		gtdp_pin_record(b, gfn, r, level);
	read_unlock(&kvm->mmu_lock);
out:
	if (b->pages)
		gtdp_pin_undo(b, nr);
	return r;
}

static int ready_batch(struct gtdp_build *b, gfn_t gfn, int nr, int level, unsigned long *seq)
{
	int r;

	if (!b->pages) {
		b->pages = (void *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
		if (!b->pages)
			return -ENOMEM;
	}
	if (b->pin) {
		r = gtdp_pin_prepare(b->gtdp, gfn);
		if (r)
			return r;
	}
	if (over_limit(b, nr * KVM_PAGES_PER_HPAGE(level)))
		return -ENOMEM;

	*seq = b->kvm->mmu_invalidate_seq;
	smp_rmb();	/* before the pages are looked up, see mmu_invalidate_retry() */

	gtdp_pin_lookup(b->gtdp, gfn, nr, level, b->pages->page);
	return 0;
}

/* Returns gfns done, -EMLINK if it takes smaller leaves, or another error. */
static long build_large(struct gtdp_build *b, const struct kvm_memory_slot *slot, gfn_t gfn,
			int nr, int level, bool check_host_level)
{
	unsigned long seq;
	int r;

	r = ready_batch(b, gfn, nr, level, &seq);
	if (r)
		return r;

	r = gtdp_pin_leaves(b, __gfn_to_hva_memslot(slot, gfn), nr, level);
	if (r > 0)
		r = map_pinned(b, slot, gfn, r, level, seq, check_host_level);
	return r < 0 ? r : (long)r * KVM_PAGES_PER_HPAGE(level);
}

static long build_small(struct gtdp_build *b, const struct kvm_memory_slot *slot, gfn_t gfn,
			int nr)
{
	unsigned long seq;
	int r;

	r = ready_batch(b, gfn, nr, PG_LEVEL_4K, &seq);
	if (r)
		return r;

	r = gtdp_pin_pages(b, __gfn_to_hva_memslot(slot, gfn), nr);
	if (r > 0)
		r = map_pinned(b, slot, gfn, r, PG_LEVEL_4K, seq, false);
	return r;
}

/* The largest leaf that slot and range allow at @gfn. */
static int slot_level(struct gtdp_build *b, const struct kvm_memory_slot *slot, gfn_t gfn,
		      gfn_t npages)
{
	int level = min_t(int, b->max_level, kvm_mmu_get_max_leaf_level());

	if (kvm_slot_dirty_track_enabled(slot))
		return PG_LEVEL_4K;

	for (; level > PG_LEVEL_4K; level--) {
		gfn_t n = KVM_PAGES_PER_HPAGE(level);

		if (!(gfn & (n - 1)) && npages >= n && gtdp_lpage_allowed(slot, gfn, level))
			break;
	}
	return level;
}

/* Build what one page table maps, at most @npages.  Returns gfns done or an error. */
static long build_in_slot(struct gtdp_build *b, const struct kvm_memory_slot *slot, gfn_t gfn,
			  gfn_t npages)
{
	unsigned long hva = __gfn_to_hva_memslot(slot, gfn);
	unsigned long backing = backing_page_size(b->kvm->mm, hva);
	int level = slot_level(b, slot, gfn, npages);
	gfn_t n;
	long r;

	if (level == PG_LEVEL_1G && backing >= KVM_HPAGE_SIZE(PG_LEVEL_1G)) {
		r = build_large(b, slot, gfn, 1, PG_LEVEL_1G, false);
		if (r != -EMLINK)
			return r;
	}

	if (level >= PG_LEVEL_2M && backing >= KVM_HPAGE_SIZE(PG_LEVEL_2M)) {
		n = min(npages, ALIGN(gfn + 1, KVM_PAGES_PER_HPAGE(PG_LEVEL_1G)) - gfn);
		r = build_large(b, slot, gfn, n / KVM_PAGES_PER_HPAGE(PG_LEVEL_2M),
				PG_LEVEL_2M, false);
		if (r != -EMLINK)
			return r;
	} else if (level >= PG_LEVEL_2M) {
		/* Perhaps a transparent huge page. */
		r = build_large(b, slot, gfn, 1, PG_LEVEL_2M, true);
		if (r > 0 || r == -EAGAIN)
			return r;
	}

	n = min(npages, ALIGN(gfn + 1, SPTE_ENT_PER_PAGE) - gfn);
	return build_small(b, slot, gfn, n);
}

/* One batch, with kvm->srcu held. */
static long build_batch_locked(struct gtdp_build *b, gfn_t gfn, gfn_t npages)
{
	struct kvm_memory_slot *slot = gfn_to_memslot(b->kvm, gfn);
	long r;

	if (READ_ONCE(b->gtdp->gone))
		return -ESRCH;
	if (!slot || !gtdp_is_user_slot(slot))
		return -ENOENT;
	if (slot->flags & KVM_MEMSLOT_INVALID)
		return -EAGAIN;

	npages = min(npages, slot->base_gfn + slot->npages - gfn);
	if (slot->flags & KVM_MEM_READONLY)
		return npages;

	r = build_in_slot(b, slot, gfn, npages);
	if (r == -EFAULT && b->present)
		r = 1;
	if (r > 0) {
		int err = gtdp_built_add(b->gtdp, gfn, gfn + r);

		if (err)
			return err;
	}
	return r;
}

static long build_batch(struct gtdp_build *b, gfn_t gfn, gfn_t npages)
{
	struct mm_struct *mm = b->kvm->mm;
	bool foreign = current->mm != mm;
	int idx;
	long r;

	if (foreign) {
		if (!mmget_not_zero(mm))
			return -ESRCH;
		kthread_use_mm(mm);
	}

	idx = srcu_read_lock(&b->kvm->srcu);
	r = build_batch_locked(b, gfn, npages);
	srcu_read_unlock(&b->kvm->srcu, idx);

	if (foreign) {
		kthread_unuse_mm(mm);
		/* Whoever puts the last reference tears the address space down. */
		mmput_async(mm);
	}
	return r;
}

static bool interrupted(struct gtdp_build *b)
{
	if (READ_ONCE(b->stop) || fatal_signal_pending(current))
		return true;
	return b->interruptible && signal_pending(current);
}

static int build_range(struct gtdp_build *b, struct kvm_gtdp_range *range)
{
	int retries = 0;
	long r = 0;

	while (range->size) {
		if (interrupted(b)) {
			r = -EINTR;
			break;
		}
		cond_resched();

		r = build_batch(b, range->gpa >> PAGE_SHIFT, range->size >> PAGE_SHIFT);
		if (r == -EAGAIN && ++retries < MAX_RETRIES)
			continue;
		if (r == -EMLINK)
			r = -EAGAIN;
		if (r < 0)
			break;

		retries = 0;
		range->gpa += (u64)r << PAGE_SHIFT;
		range->size -= (u64)r << PAGE_SHIFT;
	}

	gtdp_spares_free(&b->spares);
	free_page((unsigned long)b->pages);
	b->pages = NULL;
	return r < 0 ? r : 0;
}

static void build_init(struct gtdp_build *b, struct kvm *kvm, struct kvm_gtdp *gtdp,
		       const struct kvm_gtdp_range *range)
{
	*b = (struct gtdp_build) {
		.gtdp = gtdp,
		.kvm = kvm,
		.gup_flags = FOLL_WRITE | FOLL_LONGTERM,
		.max_level = range->max_level ?: PG_LEVEL_1G,
		.pin = !(range->flags & KVM_GTDP_BUILD_NOPIN),
		.present = range->flags & KVM_GTDP_BUILD_PRESENT,
	};
	if (b->present)
		b->gup_flags |= FOLL_NOFAULT;
}

/* Build from a thread of the owner. */
int gtdp_build(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_gtdp_range *range,
	       bool interruptible)
{
	struct gtdp_build b;
	ktime_t start = ktime_get();
	int r;

	build_init(&b, kvm, gtdp, range);
	b.interruptible = interruptible;
	r = build_range(&b, range);
	atomic64_add(ktime_to_ns(ktime_sub(ktime_get(), start)), &gtdp->build_ns);
	return r;
}

struct foreign_build {
	struct gtdp_build b;
	struct kvm_gtdp_range *range;
	struct mem_cgroup *memcg;
	struct completion done;
	int r;
};

static int foreign_thread(void *data)
{
	struct foreign_build *f = data;
	struct mem_cgroup *old;

	/* Page tables are the VM's, so its cgroup pays for them. */
	old = set_active_memcg(f->memcg);
	f->r = build_range(&f->b, f->range);
	set_active_memcg(old);

	kthread_complete_and_exit(&f->done, 0);
}

/*
 * Run a build in a kernel thread that adopts the owner's address space, because
 * that is what lets it use the fast way to pin pages.  It never faults memory in:
 * such a fault may wait for others, and nobody could interrupt it.
 */
static int build_in_thread(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_gtdp_range *range)
{
	struct foreign_build f = { .range = range };
	struct task_struct *task;

	build_init(&f.b, kvm, gtdp, range);
	f.b.gup_flags |= FOLL_NOFAULT;
	init_completion(&f.done);

	task = kthread_create_on_node(foreign_thread, &f, numa_node_id(), "kvm-gtdp/%d",
				      task_pid_nr(current));
	if (IS_ERR(task))
		return PTR_ERR(task);
	set_cpus_allowed_ptr(task, current->cpus_ptr);
	f.memcg = get_mem_cgroup_from_mm(kvm->mm);

	wake_up_process(task);
	if (wait_for_completion_interruptible(&f.done)) {
		WRITE_ONCE(f.b.stop, true);
		wait_for_completion(&f.done);
	}

	mem_cgroup_put(f.memcg);
	return f.r;
}

/* Make the owner's memory at @gfn present.  Returns how many pages were. */
static long fault_in_page(struct kvm *kvm, gfn_t gfn)
{
	struct mm_struct *mm = kvm->mm;
	unsigned long hva, size = PAGE_SIZE;
	struct vm_area_struct *vma;
	bool unlocked = false;
	int idx, r;

	idx = srcu_read_lock(&kvm->srcu);
	hva = gfn_to_hva(kvm, gfn);
	srcu_read_unlock(&kvm->srcu, idx);
	if (kvm_is_error_hva(hva))
		return -EFAULT;

	if (!mmget_not_zero(mm))
		return -ESRCH;
	mmap_read_lock(mm);
	r = fixup_user_fault(mm, hva, FAULT_FLAG_WRITE, &unlocked);
	if (!r) {
		vma = vma_lookup(mm, hva);
		if (vma)
			size = vma_kernel_pagesize(vma);
	}
	mmap_read_unlock(mm);
	mmput_async(mm);

	return r ?: (ALIGN(hva + 1, size) - hva) >> PAGE_SHIFT;
}

static int fault_in(struct kvm *kvm, gfn_t gfn, gfn_t npages)
{
	gfn_t end = gfn + min_t(gfn_t, npages, FAULT_IN_PAGES);
	gfn_t start = gfn;
	long n;

	while (gfn < end) {
		if (signal_pending(current))
			return -EINTR;
		cond_resched();
		n = fault_in_page(kvm, gfn);
		/* What is wrong further on is for the build to find. */
		if (n < 0)
			return gfn == start ? n : 0;
		gfn += n;
	}
	return 0;
}

/* Build from another process. */
int gtdp_build_foreign(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_gtdp_range *range)
{
	ktime_t start = ktime_get();
	u64 stuck = ~0ULL;
	int r;

	for (;;) {
		r = build_in_thread(kvm, gtdp, range);
		if (r != -EFAULT || range->gpa == stuck)
			break;
		stuck = range->gpa;
		r = fault_in(kvm, range->gpa >> PAGE_SHIFT, range->size >> PAGE_SHIFT);
		if (r)
			break;
	}
	if (r == -EINTR && !signal_pending(current))
		r = -EAGAIN;

	atomic64_add(ktime_to_ns(ktime_sub(ktime_get(), start)), &gtdp->build_ns);
	return r;
}
