// SPDX-License-Identifier: GPL-2.0-only
/*
 * Split large leaves into tables, and collapse tables into large leaves, in place:
 * at no time is anything unmapped, so vCPUs do not fault.
 *
 * Both hold mmu_lock for read, as a vCPU's fault does.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "gtdp_internal.h"
#include "tdp_iter.h"
#include "tdp_mmu.h"

/* How much is done in one go, with the lock held: one table of the level above. */
#define BATCH_GFNS	KVM_PAGES_PER_HPAGE(PG_LEVEL_1G)

/* A vCPU may have mapped device memory, which has no node and no struct page. */
static int spte_nid(u64 spte)
{
	kvm_pfn_t pfn = spte_to_pfn(spte);

	return pfn_valid(pfn) ? page_to_nid(pfn_to_page(pfn)) : numa_mem_id();
}

/* Split until @spares run out.  Returns -EAGAIN then, with *@nid where the next go. */
static int split_locked(struct kvm *kvm, struct kvm_gtdp *gtdp, gfn_t start, gfn_t end,
			int level, struct gtdp_spares *spares, int *nid)
{
	struct kvm_mmu_page *root, *sp;
	struct tdp_iter iter;
	int r = 0, done = 0;

	root = gtdp_get_root(kvm);
	if (!root)
		return 0;
	end = min(end, gtdp_root_end(root));
	if (start >= end)
		goto out;

	rcu_read_lock();
	for_each_tdp_pte_min_level(iter, root, level + 1, start, end) {
retry:
		if (!is_shadow_present_pte(iter.old_spte) || !is_large_pte(iter.old_spte))
			continue;

		*nid = spte_nid(iter.old_spte);
		if (!spares->nr || spares->nid != *nid ||
		    (done && (need_resched() || rwlock_needbreak(&kvm->mmu_lock)))) {
			r = -EAGAIN;
			break;
		}

		sp = spares->sp[spares->nr - 1];
		kvm_tdp_mmu_init_child_sp(sp, &iter);
		if (kvm_tdp_mmu_split_huge_page(kvm, &iter, sp))
			goto retry;
		spares->nr--;
		done++;
		atomic64_inc(&gtdp->split_leaves);
		atomic64_inc(&kvm->stat.gtdp_split_leaves);
	}
	rcu_read_unlock();
out:
	kvm_tdp_mmu_put_root(kvm, root);
	return r;
}

static bool interrupted(bool interruptible)
{
	return interruptible ? signal_pending(current) : fatal_signal_pending(current);
}

/* Leaves of [start, end) become no larger than @level. */
static int split_batch(struct kvm *kvm, struct kvm_gtdp *gtdp, gfn_t start, gfn_t end,
		       int level, struct gtdp_spares *spares, bool interruptible)
{
	int r, nid = NUMA_NO_NODE;

	for (;;) {
		read_lock(&kvm->mmu_lock);
		r = split_locked(kvm, gtdp, start, end, level, spares, &nid);
		read_unlock(&kvm->mmu_lock);
		if (r != -EAGAIN)
			return r;

		if (interrupted(interruptible))
			return -EINTR;
		cond_resched();

		r = gtdp_spares_top_up(spares, GTDP_SPARES, nid);
		if (r)
			return r;
	}
}

/*
 * Could the table at @iter be one leaf?  It must be full, of consecutive pages that the
 * owner maps writable by a leaf of that size.  Returns the pfn, or 0.
 */
static kvm_pfn_t collapsible(struct kvm *kvm, const struct kvm_memory_slot *slot,
			     struct tdp_iter *iter)
{
	struct kvm_mmu_page *sp = spte_to_child_sp(iter->old_spte);
	kvm_pfn_t pfn, step = KVM_PAGES_PER_HPAGE(iter->level - 1);
	u64 spte;
	int i;

	/* NX huge page mitigation: something is executed there. */
	if (sp->nx_huge_page_disallowed)
		return 0;

	pfn = spte_to_pfn(READ_ONCE(sp->spt[0]));
	if (!pfn || pfn & (KVM_PAGES_PER_HPAGE(iter->level) - 1))
		return 0;

	/* The template is for memory.  A device's is of another type. */
	if (!pfn_valid(pfn) || PageReserved(pfn_to_page(pfn)))
		return 0;

	for (i = 0; i < SPTE_ENT_PER_PAGE; i++) {
		spte = READ_ONCE(sp->spt[i]);
		if (!is_shadow_present_pte(spte) || !is_last_spte(spte, iter->level - 1) ||
		    !(spte & shadow_host_writable_mask) || spte_to_pfn(spte) != pfn + i * step)
			return 0;
	}

	if (kvm_mmu_max_mapping_level(kvm, slot, iter->gfn, iter->level) < iter->level)
		return 0;
	return pfn;
}

/* A table that a leaf has taken the place of, and that vCPUs may still walk. */
struct replaced {
	gfn_t gfn;
	u64 old_spte;
	u64 new_spte;
};

#define MAX_REPLACED	32

/* Flush, so that nobody is in the tables any more, and only then take them apart. */
static void free_replaced(struct kvm *kvm, struct kvm_gtdp *gtdp, struct replaced *replaced,
			  int nr, int level)
{
	gfn_t size = KVM_PAGES_PER_HPAGE(level);
	int i;

	if (!nr)
		return;

	kvm_flush_remote_tlbs_range(kvm, replaced[0].gfn,
				    replaced[nr - 1].gfn + size - replaced[0].gfn);
	for (i = 0; i < nr; i++)
		kvm_tdp_mmu_table_replaced(kvm, replaced[i].gfn, replaced[i].old_spte,
					   replaced[i].new_spte, level);
	atomic64_add(nr, &gtdp->collapsed_leaves);
	atomic64_add(nr, &kvm->stat.gtdp_collapsed_leaves);
}

/*
 * Collapse tables below entries of @level.  Called with kvm->srcu held, so that the slot
 * is what it says.  Returns false if it has to be tried again.
 */
static bool collapse_level(struct kvm *kvm, struct kvm_gtdp *gtdp,
			   const struct kvm_memory_slot *slot, gfn_t start, gfn_t end, int level)
{
	struct replaced replaced[MAX_REPLACED];
	gfn_t size = KVM_PAGES_PER_HPAGE(level);
	union kvm_mmu_page_role role;
	struct kvm_mmu_page *root;
	struct tdp_iter iter;
	kvm_pfn_t pfn;
	bool done;
	u64 spte;
	int nr = 0;

	start = ALIGN(start, size);
	end = ALIGN_DOWN(end, size);
	if (start >= end)
		return true;

	read_lock(&kvm->mmu_lock);
	root = gtdp_get_root(kvm);
	/* What is being changed may be mapped only because it is pinned. */
	done = !gtdp_in_progress(kvm, start, end);
	if (!done || !root || end > gtdp_root_end(root))
		goto out;

	role = gtdp_root_role(kvm);
	role.level = level;

	rcu_read_lock();
	for_each_tdp_pte_min_level(iter, root, level, start, end) {
		if (iter.level != level || !is_shadow_present_pte(iter.old_spte) ||
		    is_last_spte(iter.old_spte, level))
			continue;

		pfn = collapsible(kvm, slot, &iter);
		if (!pfn)
			continue;

		replaced[nr].gfn = iter.gfn;
		replaced[nr].old_spte = iter.old_spte;
		spte = gtdp_leaf_template(kvm, slot, role, iter.gfn, level) | pfn << PAGE_SHIFT;
		replaced[nr].new_spte = spte;
		/* Whoever was faster has seen to it. */
		if (kvm_tdp_mmu_replace_table(&iter, spte))
			continue;
		if (++nr == MAX_REPLACED) {
			free_replaced(kvm, gtdp, replaced, nr, level);
			nr = 0;
		}
	}
	free_replaced(kvm, gtdp, replaced, nr, level);
	rcu_read_unlock();
out:
	if (root)
		kvm_tdp_mmu_put_root(kvm, root);
	read_unlock(&kvm->mmu_lock);
	cond_resched();
	return done;
}

/* As collapse_level(), but what is being changed gets a while, of *@waits, to be over. */
static void collapse(struct kvm *kvm, struct kvm_gtdp *gtdp, const struct kvm_memory_slot *slot,
		     gfn_t start, gfn_t end, int level, int *waits)
{
	while (!collapse_level(kvm, gtdp, slot, start, end, level) && --*waits > 0)
		usleep_range(100, 500);
}

/* Give leaves back the write access that dirty logging has taken from them. */
static void make_writable(struct kvm *kvm, gfn_t start, gfn_t end)
{
	struct kvm_mmu_page *root;
	struct tdp_iter iter;
	u64 old;

	read_lock(&kvm->mmu_lock);
	root = gtdp_get_root(kvm);
	if (root) {
		rcu_read_lock();
		for_each_tdp_pte(iter, root, start, min(end, gtdp_root_end(root))) {
			old = iter.old_spte;
			if (!is_shadow_present_pte(old) || !is_last_spte(old, iter.level) ||
			    is_access_track_spte(old) || is_writable_pte(old) ||
			    !is_mmu_writable_spte(old))
				continue;
			/* If it has changed, its next write finds out. */
			try_cmpxchg64(rcu_dereference(iter.sptep), &old,
				      old | PT_WRITABLE_MASK | spte_shadow_dirty_mask(old));
		}
		rcu_read_unlock();
		kvm_tdp_mmu_put_root(kvm, root);
	}
	read_unlock(&kvm->mmu_lock);
	cond_resched();
}

static void collapse_in_slot(struct kvm *kvm, struct kvm_gtdp *gtdp,
			     const struct kvm_memory_slot *slot, gfn_t start, gfn_t end,
			     int max_level, int *waits)
{
	int top = min_t(int, max_level, kvm_mmu_get_max_leaf_level());
	gfn_t gfn, next;

	if (!gtdp_is_user_slot(slot) || slot->flags & (KVM_MEMSLOT_INVALID | KVM_MEM_READONLY) ||
	    kvm_slot_dirty_track_enabled(slot))
		return;

	/* From small to large; few tables at a time, not to hold the lock for long. */
	for (gfn = start; gfn < end; gfn = next) {
		next = min(end, ALIGN(gfn + 1, 64 * KVM_PAGES_PER_HPAGE(PG_LEVEL_2M)));
		if (top >= PG_LEVEL_2M)
			collapse(kvm, gtdp, slot, gfn, next, PG_LEVEL_2M, waits);
		make_writable(kvm, gfn, next);
	}
	if (top >= PG_LEVEL_1G)
		collapse(kvm, gtdp, slot, start, end, PG_LEVEL_1G, waits);
}

static void collapse_batch(struct kvm *kvm, struct kvm_gtdp *gtdp, gfn_t start, gfn_t end,
			   int max_level, int *waits)
{
	struct kvm_memslot_iter iter;
	int idx;

	idx = srcu_read_lock(&kvm->srcu);
	kvm_for_each_memslot_in_gfn_range(&iter, kvm_memslots(kvm), start, end)
		collapse_in_slot(kvm, gtdp, iter.slot, max(start, iter.slot->base_gfn),
				 min(end, iter.slot->base_gfn + iter.slot->npages), max_level,
				 waits);
	srcu_read_unlock(&kvm->srcu, idx);
}

int gtdp_split(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_gtdp_range *range,
	       bool interruptible)
{
	int level = range->max_level ?: PG_LEVEL_4K;
	struct gtdp_spares spares = {};
	struct mem_cgroup *memcg, *old;
	gfn_t gfn, next;
	int r = 0;

	/* Page tables are the VM's, so its cgroup pays for them. */
	memcg = get_mem_cgroup_from_mm(kvm->mm);
	old = set_active_memcg(memcg);

	while (range->size && !r) {
		gfn = range->gpa >> PAGE_SHIFT;
		next = min(gfn + (range->size >> PAGE_SHIFT), ALIGN(gfn + 1, BATCH_GFNS));

		if (interrupted(interruptible))
			r = -EINTR;
		else
			r = split_batch(kvm, gtdp, gfn, next, level, &spares, interruptible);
		if (r)
			break;
		range->gpa += (next - gfn) << PAGE_SHIFT;
		range->size -= (next - gfn) << PAGE_SHIFT;
		cond_resched();
	}

	gtdp_spares_free(&spares);
	set_active_memcg(old);
	mem_cgroup_put(memcg);
	return r;
}

int gtdp_collapse(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_gtdp_range *range,
		  bool interruptible)
{
	int max_level = range->max_level ?: PG_LEVEL_1G;
	struct mm_struct *mm = kvm->mm;
	int waits = 64;
	gfn_t gfn, next;

	/* The owner's page tables are looked at. */
	if (!mmget_not_zero(mm))
		return -ESRCH;

	while (range->size && !interrupted(interruptible)) {
		gfn = range->gpa >> PAGE_SHIFT;
		next = min(gfn + (range->size >> PAGE_SHIFT), ALIGN(gfn + 1, BATCH_GFNS));
		collapse_batch(kvm, gtdp, gfn, next, max_level, &waits);
		range->gpa += (next - gfn) << PAGE_SHIFT;
		range->size -= (next - gfn) << PAGE_SHIFT;
		cond_resched();
	}
	mmput_async(mm);
	return range->size ? -EINTR : 0;
}

/* Dirty logging begins: do what KVM is about to, but with tables on their nodes. */
void __kvm_gtdp_start_dirty_log(struct kvm *kvm, const struct kvm_memory_slot *slot)
{
	struct kvm_gtdp *gtdp = kvm->arch.gtdp;
	struct kvm_gtdp_range range = {
		.gpa = slot->base_gfn << PAGE_SHIFT,
		.size = (u64)slot->npages << PAGE_SHIFT,
	};

	/* What is left to do is done by KVM, then or on a write. */
	if (gtdp && tdp_mmu_enabled && !slot->as_id)
		gtdp_split(kvm, gtdp, &range, false);
}

/* Dirty logging is over: large leaves again, where KVM would only drop the small ones. */
void __kvm_gtdp_stop_dirty_log(struct kvm *kvm, const struct kvm_memory_slot *slot)
{
	struct kvm_gtdp *gtdp = kvm->arch.gtdp;
	struct kvm_gtdp_range range = {
		.gpa = slot->base_gfn << PAGE_SHIFT,
		.size = (u64)slot->npages << PAGE_SHIFT,
	};

	if (gtdp && tdp_mmu_enabled && !slot->as_id)
		gtdp_collapse(kvm, gtdp, &range, false);
}
