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

#include <linux/delay.h>
#include <linux/hugetlb.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "gtdp_internal.h"

/* How often a batch that lost a race is tried again before the caller is told. */
#define MAX_RETRIES	16

static bool stale(struct kvm *kvm, unsigned long seq, gfn_t start, gfn_t end)
{
	return gtdp_in_progress(kvm, start, end) || kvm->mmu_invalidate_seq != seq;
}

/* Would the pages of this batch that are not pinned yet be too many? */
static bool over_limit(struct gtdp_build *b, int nr, int level)
{
	long missing = 0;
	int i;

	if (!b->pin || b->gtdp->pin_limit == ULONG_MAX)
		return false;

	for (i = 0; i < nr; i++)
		missing += !b->pages->page[i];
	missing *= KVM_PAGES_PER_HPAGE(level);
	return missing && atomic64_read(&b->kvm->mm->pinned_vm) + missing > b->gtdp->pin_limit;
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
		r = gtdp_pin_record(b, gfn, r, level) ?: r;
	read_unlock(&kvm->mmu_lock);
out:
	gtdp_pin_undo(b, nr);
	return r;
}

static int ready_batch(struct gtdp_build *b, gfn_t gfn, int nr, int level, unsigned long *seq)
{
	int r;

	*seq = b->kvm->mmu_invalidate_seq;
	/* Before the pins and the pages are looked up, see mmu_invalidate_retry(). */
	smp_rmb();

	if (!b->pages) {
		b->pages = (void *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
		if (!b->pages)
			return -ENOMEM;
	}
	if (b->pin) {
		r = gtdp_pin_prepare(b->gtdp, gfn);
		if (r)
			return r;
		if (level == PG_LEVEL_4K && !b->table) {
			b->table = (void *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
			if (!b->table)
				return -ENOMEM;
		}
	}

	gtdp_pin_lookup(b->gtdp, gfn, nr, level, b->pages->page);
	return over_limit(b, nr, level) ? -ENOMEM : 0;
}

/* Returns gfns done, -EMLINK if it takes smaller leaves, or another error. */
static long build_large(struct gtdp_build *b, const struct kvm_memory_slot *slot, gfn_t gfn,
			int nr, int level)
{
	unsigned long seq;
	bool unsure;
	int r;

	r = ready_batch(b, gfn, nr, level, &seq);
	if (r)
		return r;

	r = gtdp_pin_leaves(b, __gfn_to_hva_memslot(slot, gfn), nr, level, &unsure);
	if (r > 0)
		r = map_pinned(b, slot, gfn, r, level, seq, unsure);
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
	int level = slot_level(b, slot, gfn, npages);
	gfn_t n;
	long r;

	for (; level > PG_LEVEL_4K; level--) {
		n = min(npages, ALIGN(gfn + 1, KVM_PAGES_PER_HPAGE(level + 1)) - gfn);
		n = level == PG_LEVEL_1G ? 1 : n / KVM_PAGES_PER_HPAGE(level);
		r = build_large(b, slot, gfn, n, level);
		if (r != -EMLINK)
			return r;
	}

	n = min(npages, ALIGN(gfn + 1, SPTE_ENT_PER_PAGE) - gfn);
	return build_small(b, slot, gfn, n);
}

/* How many pages to pass over, where a PRESENT build finds nothing. */
static long absent(struct gtdp_build *b, const struct kvm_memory_slot *slot, gfn_t gfn,
		   gfn_t npages)
{
	unsigned long n = gtdp_absent(b->kvm->mm, __gfn_to_hva_memslot(slot, gfn));

	return n ? min(npages, n) : -EFAULT;
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
		r = absent(b, slot, gfn, npages);
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
	int idx;
	long r;

	if (!mmget_not_zero(mm))
		return -ESRCH;

	idx = srcu_read_lock(&b->kvm->srcu);
	r = build_batch_locked(b, gfn, npages);
	srcu_read_unlock(&b->kvm->srcu, idx);

	/* Whoever puts the last reference tears the address space down: not here. */
	mmput_async(mm);
	return r;
}

static bool interrupted(struct gtdp_build *b)
{
	return b->interruptible ? signal_pending(current) : fatal_signal_pending(current);
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
		if (r == -EAGAIN && ++retries < MAX_RETRIES) {
			/* It may take as long as a fork or an munmap. */
			if (retries > MAX_RETRIES / 2)
				usleep_range(100, 500);
			continue;
		}
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
	free_page((unsigned long)b->table);
	return r < 0 ? r : 0;
}

/* Build from any process.  Uninterruptible builds stop for a fatal signal only. */
int gtdp_build(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_gtdp_range *range,
	       bool interruptible)
{
	struct gtdp_build b = {
		.gtdp = gtdp,
		.kvm = kvm,
		.max_level = range->max_level ?: PG_LEVEL_1G,
		.pin = !(range->flags & KVM_GTDP_BUILD_NOPIN),
		.present = range->flags & KVM_GTDP_BUILD_PRESENT,
		.interruptible = interruptible,
	};
	ktime_t start = ktime_get();
	struct mem_cgroup *memcg, *old;
	int r;

	/* Page tables are the VM's, so its cgroup pays for them, whoever builds. */
	memcg = get_mem_cgroup_from_mm(kvm->mm);
	old = set_active_memcg(memcg);
	r = build_range(&b, range);
	set_active_memcg(old);
	mem_cgroup_put(memcg);

	atomic64_add(ktime_to_ns(ktime_sub(ktime_get(), start)), &gtdp->build_ns);
	return r;
}
