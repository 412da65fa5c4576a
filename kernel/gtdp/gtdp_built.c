// SPDX-License-Identifier: GPL-2.0-only
/*
 * What was asked to be built, and what of it is mapped.
 *
 * "Mapped" is read from the page table each time, so it cannot be claimed for
 * memory that has lost its leaf.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "gtdp_internal.h"
#include "tdp_iter.h"
#include "tdp_mmu.h"

/* At most this much is walked with mmu_lock held. */
#define STATS_BATCH	(64UL << 20 >> PAGE_SHIFT)
#define TABLES_BATCH	(64UL << 30 >> PAGE_SHIFT)

/* Ranges that touch become one: a build in steps leaves one range behind. */
int gtdp_built_add(struct kvm_gtdp *gtdp, gfn_t start, gfn_t end)
{
	MA_STATE(mas, &gtdp->built, start, start);
	int r;

	mutex_lock(&gtdp->built_lock);

	mas_lock(&mas);
	if (mas_walk(&mas) && mas.last >= end - 1) {
		mas_unlock(&mas);
		mutex_unlock(&gtdp->built_lock);
		return 0;
	}
	if (start) {
		mas_set(&mas, start - 1);
		if (mas_walk(&mas))
			start = mas.index;
	}
	mas_set(&mas, end);
	if (mas_walk(&mas))
		end = mas.last + 1;
	mas_unlock(&mas);

	r = mtree_store_range(&gtdp->built, start, end - 1, xa_mk_value(1), GFP_KERNEL_ACCOUNT);
	mutex_unlock(&gtdp->built_lock);
	return r;
}

int gtdp_built_remove(struct kvm_gtdp *gtdp, gfn_t start, gfn_t end)
{
	int r;

	mutex_lock(&gtdp->built_lock);
	r = mtree_store_range(&gtdp->built, start, end - 1, NULL, GFP_KERNEL_ACCOUNT);
	mutex_unlock(&gtdp->built_lock);

	spin_lock(&gtdp->hit_lock);
	write_seqcount_begin(&gtdp->hit_seq);
	gtdp->hit_end = 0;
	write_seqcount_end(&gtdp->hit_seq);
	spin_unlock(&gtdp->hit_lock);
	return r;
}

/* Looked up anew with the lock held, so that it cannot have been removed meanwhile. */
static void remember_hit(struct kvm_gtdp *gtdp, gfn_t gfn)
{
	MA_STATE(mas, &gtdp->built, gfn, gfn);

	rcu_read_lock();
	if (mas_walk(&mas)) {
		write_seqcount_begin(&gtdp->hit_seq);
		gtdp->hit_start = mas.index;
		gtdp->hit_end = mas.last + 1;
		write_seqcount_end(&gtdp->hit_seq);
	}
	rcu_read_unlock();
}

/* Is @gfn built?  For vCPUs that fault, most often where they did before. */
bool gtdp_built_has(struct kvm_gtdp *gtdp, gfn_t gfn)
{
	unsigned int seq;
	bool built;

	seq = raw_read_seqcount(&gtdp->hit_seq);
	built = gfn >= READ_ONCE(gtdp->hit_start) && gfn < READ_ONCE(gtdp->hit_end);
	if (likely(built && !(seq & 1) && !read_seqcount_retry(&gtdp->hit_seq, seq)))
		return true;

	built = mtree_load(&gtdp->built, gfn);
	if (built && spin_trylock(&gtdp->hit_lock)) {
		remember_hit(gtdp, gfn);
		spin_unlock(&gtdp->hit_lock);
	}
	return built;
}

/* Is any of it built? */
bool gtdp_is_built(struct kvm_gtdp *gtdp, gfn_t start, gfn_t end)
{
	MA_STATE(mas, &gtdp->built, start, start);
	bool built;

	rcu_read_lock();
	built = mas_find(&mas, end - 1);
	rcu_read_unlock();
	return built;
}

/* Count leaves in [start, end).  Called with mmu_lock held, and with RCU protection. */
static void count_leaves(struct kvm_mmu_page *root, gfn_t start, gfn_t end, bool first,
			 struct kvm_gtdp_stats *stats)
{
	gfn_t lo, hi, done = start;
	struct tdp_iter iter;

	end = min(end, gtdp_root_end(root));
	if (start >= end)
		return;

	for_each_tdp_pte(iter, root, start, end) {
		if (!is_shadow_present_pte(iter.old_spte) ||
		    !is_last_spte(iter.old_spte, iter.level))
			continue;
		/* A leaf that is split here and now comes a second time, in pieces. */
		lo = max(iter.gfn, done);
		hi = min(iter.gfn + KVM_PAGES_PER_HPAGE(iter.level), end);
		if (lo >= hi)
			continue;
		stats->mapped_bytes += (hi - lo) << PAGE_SHIFT;
		/* A leaf that starts before this batch was counted with the last. */
		if (iter.gfn >= start || first)
			stats->leaves[iter.level]++;
		done = hi;
	}
}

/* The leaf that maps @gfn, as a range. */
static void leaf_around(struct kvm *kvm, gfn_t gfn, gfn_t *start, gfn_t *end)
{
	struct kvm_mmu_page *root;
	struct tdp_iter iter;

	root = gtdp_get_root(kvm);
	if (!root)
		return;

	rcu_read_lock();
	for_each_tdp_pte(iter, root, gfn, min(gfn + 1, gtdp_root_end(root))) {
		if (is_shadow_present_pte(iter.old_spte) &&
		    is_last_spte(iter.old_spte, iter.level)) {
			*start = min(*start, iter.gfn);
			*end = max(*end, iter.gfn + KVM_PAGES_PER_HPAGE(iter.level));
		}
	}
	rcu_read_unlock();
	kvm_tdp_mmu_put_root(kvm, root);
}

/* The next range at or after @*start that is built, up to @end. */
static bool next_built(struct kvm_gtdp *gtdp, gfn_t *start, gfn_t end, gfn_t *ret_end)
{
	MA_STATE(mas, &gtdp->built, *start, *start);
	bool found;

	rcu_read_lock();
	found = *start < end && mas_find(&mas, end - 1);
	if (found) {
		*start = max_t(gfn_t, mas.index, *start);
		*ret_end = min_t(gfn_t, mas.last + 1, end);
	}
	rcu_read_unlock();
	return found;
}

/*
 * How many pages of [start, end) are built and mapped, or go with a leaf of it.
 * *@start and *@end become where they lie.  Called with mmu_lock held.
 */
u64 gtdp_mapped_pages(struct kvm *kvm, struct kvm_gtdp *gtdp, gfn_t *start, gfn_t *end,
		      enum gtdp_yield yield)
{
	struct kvm_gtdp_stats stats = {};
	gfn_t gfn, stop, next, last = 0, first = ~0ULL;
	struct kvm_mmu_page *root;
	u64 before;

	if (!tdp_mmu_enabled)
		return 0;

	leaf_around(kvm, *start, start, end);
	leaf_around(kvm, *end - 1, start, end);

	for (gfn = *start; next_built(gtdp, &gfn, *end, &stop); gfn = stop) {
		for (; gfn < stop; gfn = next) {
			next = min_t(gfn_t, ALIGN(gfn + 1, STATS_BATCH), stop);
			root = gtdp_get_root(kvm);
			if (!root)
				goto out;

			before = stats.mapped_bytes;
			rcu_read_lock();
			count_leaves(root, gfn, next, true, &stats);
			rcu_read_unlock();
			kvm_tdp_mmu_put_root(kvm, root);

			if (stats.mapped_bytes != before) {
				first = min(first, gfn);
				last = next;
			}
			if (yield == GTDP_YIELD_MMU_LOCK &&
			    (need_resched() || rwlock_needbreak(&kvm->mmu_lock)))
				cond_resched_rwlock_write(&kvm->mmu_lock);
		}
	}

out:
	if (last) {
		*start = first;
		*end = last;
	}
	return stats.mapped_bytes >> PAGE_SHIFT;
}

static void count_table(u64 *spt, struct kvm_gtdp_stats *stats)
{
	int nid = page_to_nid(virt_to_page(spt));

	if (nid < KVM_GTDP_MAX_NODES)
		stats->table_pages[nid]++;
}

static void count_tables(struct kvm *kvm, gfn_t start, gfn_t end, struct kvm_gtdp_stats *stats)
{
	struct kvm_mmu_page *root;
	struct tdp_iter iter;

	read_lock(&kvm->mmu_lock);
	root = gtdp_get_root(kvm);
	if (!root)
		goto out;

	if (!start)
		count_table(root->spt, stats);

	end = min(end, gtdp_root_end(root));
	rcu_read_lock();
	for_each_tdp_pte_min_level(iter, root, PG_LEVEL_2M, start, end) {
		if (!is_shadow_present_pte(iter.old_spte) ||
		    is_last_spte(iter.old_spte, iter.level) || iter.gfn < start)
			continue;
		count_table(spte_to_child_sp(iter.old_spte)->spt, stats);
	}
	rcu_read_unlock();
	kvm_tdp_mmu_put_root(kvm, root);
out:
	read_unlock(&kvm->mmu_lock);
	cond_resched();
}

static void count_mapped(struct kvm *kvm, gfn_t start, gfn_t end, bool first,
			 struct kvm_gtdp_stats *stats)
{
	struct kvm_mmu_page *root;

	read_lock(&kvm->mmu_lock);
	root = gtdp_get_root(kvm);
	if (root) {
		rcu_read_lock();
		count_leaves(root, start, end, first, stats);
		rcu_read_unlock();
		kvm_tdp_mmu_put_root(kvm, root);
	}
	read_unlock(&kvm->mmu_lock);
	cond_resched();
}

void gtdp_stats(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_gtdp_stats *stats)
{
	gfn_t start, end, next, top = 0;
	bool first;
	int i;

	for (start = 0; next_built(gtdp, &start, ULONG_MAX, &end); start = end) {
		stats->built_bytes += (end - start) << PAGE_SHIFT;
		for (first = true; tdp_mmu_enabled && start < end; start = next, first = false) {
			next = min_t(gfn_t, ALIGN(start + 1, STATS_BATCH), end);
			count_mapped(kvm, start, next, first, stats);
		}
		top = end;
	}

	for (start = 0; tdp_mmu_enabled && start < top; start += TABLES_BATCH)
		count_tables(kvm, start, start + TABLES_BATCH, stats);

	stats->hole_bytes = stats->built_bytes - min(stats->mapped_bytes, stats->built_bytes);
	stats->pinned_bytes = atomic64_read(&gtdp->pinned_pages) << PAGE_SHIFT;
	for (i = 0; i < KVM_GTDP_HOLE_REASONS; i++)
		stats->lost_bytes[i] = atomic64_read(&gtdp->lost_bytes[i]);
	stats->faults = atomic64_read(&gtdp->faults);
	stats->faults_other = atomic64_read(&gtdp->faults_other);
	stats->build_ns = atomic64_read(&gtdp->build_ns);
	stats->auto_builds = atomic64_read(&gtdp->auto_builds);
	stats->auto_errors = atomic64_read(&gtdp->auto_errors);
	stats->auto_last_error = atomic64_read(&gtdp->auto_last_error);
	stats->split_leaves = atomic64_read(&gtdp->split_leaves);
	stats->collapsed_leaves = atomic64_read(&gtdp->collapsed_leaves);
	stats->kept_bytes = atomic64_read(&gtdp->kept_bytes);
	stats->dropped_events = atomic64_read(&gtdp->dropped_events);
}
