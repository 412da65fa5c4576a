// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fill the TDP MMU's own page tables, a table at a time.
 *
 * A missing table is filled before it is linked with one compare-exchange, the
 * way tdp_mmu_split_huge_page() does it; in an existing one each entry is set by
 * a compare-exchange of its own, as a vCPU's fault would.  Either way mmu_lock is
 * held for read, and vCPUs and other builders may be at work in the same tables.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "gtdp_internal.h"
#include "tdp_iter.h"
#include "tdp_mmu.h"

static void spare_free(struct kvm_mmu_page *sp)
{
	free_page((unsigned long)sp->spt);
	kmem_cache_free(mmu_page_header_cache, sp);
}

void gtdp_spares_free(struct gtdp_spares *spares)
{
	while (spares->nr)
		spare_free(spares->sp[--spares->nr]);
}

/* Have @nr page tables at hand, on the node of the memory they will map. */
int gtdp_spares_top_up(struct gtdp_spares *spares, int nr, int nid)
{
	struct kvm_mmu_page *sp;
	struct page *page;

	if (spares->nid != nid)
		gtdp_spares_free(spares);
	spares->nid = nid;

	while (spares->nr < nr) {
		sp = kmem_cache_zalloc(mmu_page_header_cache, GFP_KERNEL_ACCOUNT);
		if (!sp)
			return -ENOMEM;
		page = alloc_pages_node(nid, GFP_KERNEL_ACCOUNT, 0);
		if (!page) {
			kmem_cache_free(mmu_page_header_cache, sp);
			return -ENOMEM;
		}
		sp->spt = page_address(page);
		spares->sp[spares->nr++] = sp;
	}
	return 0;
}

/* The role of the root that vCPUs outside of SMM and of nested guests share. */
union kvm_mmu_page_role gtdp_root_role(struct kvm *kvm)
{
	union kvm_mmu_page_role role = {0};
	struct kvm_vcpu *vcpu = kvm_get_vcpu(kvm, 0);

	role.access = ACC_ALL;
	role.cr0_wp = true;
	role.efer_nx = true;
	role.ad_disabled = !kvm_ad_enabled();
	role.level = kvm_mmu_get_vm_tdp_level(vcpu);
	role.direct = true;
	return role;
}

/* Returns the root with a reference, or NULL if there is none yet. */
struct kvm_mmu_page *gtdp_get_root(struct kvm *kvm)
{
	return kvm_tdp_mmu_get_vm_root(kvm, gtdp_root_role(kvm), NULL);
}

/*
 * All that an SPTE of this slot has but its pfn: what make_spte() makes for a
 * write fault.  Memory that can be pinned for long is never MMIO.
 */
u64 gtdp_leaf_template(struct kvm *kvm, const struct kvm_memory_slot *slot,
		       union kvm_mmu_page_role role, gfn_t gfn, int level)
{
	u64 spte = SPTE_MMU_PRESENT_MASK;

	if (role.ad_disabled)
		spte |= SPTE_TDP_AD_DISABLED;

	spte |= shadow_present_mask | spte_shadow_accessed_mask(spte);
	spte |= shadow_user_mask | shadow_host_writable_mask | shadow_me_value;

	if (level > PG_LEVEL_4K) {
		spte |= PT_PAGE_SIZE_MASK;
		spte |= is_nx_huge_page_enabled(kvm) ? shadow_nx_mask : shadow_x_mask;
	} else {
		spte |= shadow_x_mask;
	}

	if (shadow_memtype_mask)
		spte |= kvm_x86_call(get_mt_mask)(kvm, gfn, false);

	/* Under dirty logging the first write must be seen: it only sets W and D. */
	spte |= shadow_mmu_writable_mask;
	if (!kvm_slot_dirty_track_enabled(slot))
		spte |= PT_WRITABLE_MASK | spte_shadow_dirty_mask(spte);

	return spte;
}

/* Could a gfn be write-tracked, or have shadow pages that must go out of sync? */
static bool may_be_tracked(struct kvm *kvm)
{
	if (kvm_memslots_have_rmaps(kvm))
		return true;
#ifdef CONFIG_KVM_EXTERNAL_WRITE_TRACKING
	return kvm->arch.external_write_tracking_enabled;
#else
	return false;
#endif
}

static u64 leaf_spte(struct kvm *kvm, const struct kvm_memory_slot *slot, u64 template,
		     gfn_t gfn, struct page *page, bool tracked)
{
	u64 spte = template | ((u64)page_to_pfn(page) << PAGE_SHIFT);

	if (unlikely(tracked) && mmu_try_to_unsync_pages(kvm, slot, gfn, true, false)) {
		spte &= ~(PT_WRITABLE_MASK | shadow_mmu_writable_mask);
		if (!(template & SPTE_TDP_AD_DISABLED))
			spte &= ~shadow_dirty_mask;
	}
	return spte;
}

struct fill {
	struct kvm *kvm;
	const struct kvm_memory_slot *slot;
	struct page **pages;
	u64 template;
	gfn_t gfn;
	int nr;
	int level;
	bool tracked;
};

/* Fill a table that nobody else can see yet. */
static void fill_new(struct fill *f, u64 *spt)
{
	int first = SPTE_INDEX(f->gfn << PAGE_SHIFT, f->level);
	gfn_t gfn = f->gfn;
	int i;

	memset64(spt, SHADOW_NONPRESENT_VALUE, first);
	memset64(spt + first + f->nr, SHADOW_NONPRESENT_VALUE,
		 SPTE_ENT_PER_PAGE - first - f->nr);

	spt += first;
	if (likely(!f->tracked)) {
		for (i = 0; i < f->nr; i++)
			spt[i] = f->template | ((u64)page_to_pfn(f->pages[i]) << PAGE_SHIFT);
		return;
	}

	for (i = 0; i < f->nr; i++, gfn += KVM_PAGES_PER_HPAGE(f->level))
		spt[i] = leaf_spte(f->kvm, f->slot, f->template, gfn, f->pages[i], true);
}

/*
 * Put a large leaf in the place of a table of smaller ones, as a fault would.
 * Returns -EMLINK if the NX huge page mitigation wants to keep the table.
 */
static int replace_table(struct fill *f, struct tdp_iter *iter, int i, u64 old, u64 new)
{
	struct tdp_iter it = *iter;
	int r;

	if (spte_to_child_sp(old)->nx_huge_page_disallowed)
		return -EMLINK;

	it.gfn = f->gfn + i * KVM_PAGES_PER_HPAGE(f->level);
	it.sptep = iter->sptep + i;
	it.old_spte = old;
	r = kvm_tdp_mmu_replace_table(&it, new);
	if (r)
		return -EAGAIN;
	kvm_flush_remote_tlbs_gfn(f->kvm, it.gfn, f->level);
	kvm_tdp_mmu_table_replaced(f->kvm, it.gfn, old, new, f->level);
	return 0;
}

/* Set entries of a table that is in use.  Returns how many are as wanted, or an error. */
static int fill_existing(struct fill *f, struct tdp_iter *iter)
{
	u64 *spt = rcu_dereference(iter->sptep);
	gfn_t gfn = f->gfn;
	int i, r = 0, added = 0;
	u64 old, new;

	for (i = 0; i < f->nr; i++, gfn += KVM_PAGES_PER_HPAGE(f->level)) {
		new = leaf_spte(f->kvm, f->slot, f->template, gfn, f->pages[i], f->tracked);
		old = READ_ONCE(spt[i]);

		if (is_frozen_spte(old)) {
			r = -EAGAIN;
			break;
		}
		if (!is_shadow_present_pte(old)) {
			if (!try_cmpxchg64(&spt[i], &old, new)) {
				r = -EAGAIN;
				break;
			}
			added++;
			continue;
		}
		if (!is_last_spte(old, f->level)) {
			r = replace_table(f, iter, i, old, new);
			if (r)
				break;
			continue;
		}
		if (spte_to_pfn(old) != spte_to_pfn(new)) {
			r = -EAGAIN;
			break;
		}
		/* Made by a read, or being watched for accesses: would fault again. */
		if ((is_access_track_spte(old) ||
		     (!is_writable_pte(old) && is_writable_pte(new))) &&
		    !try_cmpxchg64(&spt[i], &old, new)) {
			r = -EAGAIN;
			break;
		}
	}

	if (added)
		kvm_update_page_stats(f->kvm, f->level, added);
	return i ?: r;
}

/* Spare a larger leaf that is write-protected for no reason the fault of a write. */
static bool make_writable(struct fill *f, struct tdp_iter *iter)
{
	u64 old = iter->old_spte, new = old;

	if (is_access_track_spte(new))
		new = restore_acc_track_spte(new);
	if (is_mmu_writable_spte(new) && !kvm_slot_dirty_track_enabled(f->slot))
		new |= PT_WRITABLE_MASK | spte_shadow_dirty_mask(new);

	return new == old || try_cmpxchg64(rcu_dereference(iter->sptep), &old, new);
}

static void init_empty(u64 *spt)
{
	memset64(spt, SHADOW_NONPRESENT_VALUE, SPTE_ENT_PER_PAGE);
}

static int fill_from_root(struct gtdp_build *b, struct fill *f, struct kvm_mmu_page *root)
{
	struct gtdp_spares *spares = &b->spares;
	struct kvm_mmu_page *sp;
	struct tdp_iter iter;
	bool leaf_table;

	for_each_tdp_pte_min_level(iter, root, f->level, f->gfn, f->gfn + 1) {
		if (is_frozen_spte(iter.old_spte))
			return -EAGAIN;

		if (iter.level == f->level)
			return fill_existing(f, &iter);

		if (is_shadow_present_pte(iter.old_spte)) {
			if (!is_large_pte(iter.old_spte))
				continue;
			/* Mapped already, by a larger leaf than was asked for. */
			if (!make_writable(f, &iter))
				return -EAGAIN;
			return min_t(gfn_t, f->nr,
				     (iter.gfn + KVM_PAGES_PER_HPAGE(iter.level) - f->gfn) /
				     KVM_PAGES_PER_HPAGE(f->level));
		}

		if (WARN_ON_ONCE(!spares->nr))
			return -ENOMEM;
		sp = spares->sp[spares->nr - 1];
		kvm_tdp_mmu_init_child_sp(sp, &iter);

		leaf_table = iter.level == f->level + 1;
		if (leaf_table)
			fill_new(f, sp->spt);
		else
			init_empty(sp->spt);

		if (kvm_tdp_mmu_link_sp(f->kvm, &iter, sp))
			return -EAGAIN;
		spares->nr--;

		if (leaf_table) {
			kvm_update_page_stats(f->kvm, f->level, f->nr);
			return f->nr;
		}
	}

	return -EAGAIN;
}

/* Huge leaves are allowed until somebody shadows or write-tracks a part of them. */
static int count_allowed(const struct kvm_memory_slot *slot, gfn_t gfn, int nr, int level)
{
	int i;

	if (level == PG_LEVEL_4K)
		return nr;

	for (i = 0; i < nr; i++, gfn += KVM_PAGES_PER_HPAGE(level)) {
		if (!gtdp_lpage_allowed(slot, gfn, level))
			break;
	}
	return i;
}

/*
 * Map @nr leaves of @level from @gfn on, all in one page table, to b->pages.
 * Without b->present all pages are there.  Called with mmu_lock held for read,
 * after mmu_invalidate_seq has been checked.
 *
 * Returns how many are mapped, -EAGAIN if something was in the way for now, or
 * -EMLINK if the first cannot be a leaf of this level.
 */
int gtdp_map(struct gtdp_build *b, const struct kvm_memory_slot *slot, gfn_t gfn, int nr,
	     int level)
{
	union kvm_mmu_page_role role = gtdp_root_role(b->kvm);
	struct kvm_mmu_page *root, *spare = NULL;
	struct fill f = {
		.kvm = b->kvm,
		.slot = slot,
		.pages = b->pages->page,
		.gfn = gfn,
		.level = level,
	};
	int r;

	lockdep_assert_held_read(&b->kvm->mmu_lock);

	/* Out of reach of this VM's vCPUs: the iterator would wrap. */
	if ((gfn + nr * KVM_PAGES_PER_HPAGE(level) - 1) >> (role.level * SPTE_LEVEL_BITS))
		return -ERANGE;

	f.nr = count_allowed(slot, gfn, nr, level);
	if (!f.nr)
		return -EMLINK;

	root = kvm_tdp_mmu_get_vm_root(b->kvm, role, NULL);
	if (unlikely(!root)) {
		if (WARN_ON_ONCE(!b->spares.nr))
			return -ENOMEM;
		spare = b->spares.sp[--b->spares.nr];
		init_empty(spare->spt);
		root = kvm_tdp_mmu_get_vm_root(b->kvm, role, &spare);
		if (spare)
			b->spares.sp[b->spares.nr++] = spare;
	}

	role.level = level;
	f.template = gtdp_leaf_template(b->kvm, slot, role, gfn, level);
	f.tracked = may_be_tracked(b->kvm);

	rcu_read_lock();
	r = fill_from_root(b, &f, root);
	rcu_read_unlock();

	kvm_tdp_mmu_put_root(b->kvm, root);
	return r;
}
