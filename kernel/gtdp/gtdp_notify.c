// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a global mapping does when the owner's mapping of its memory changes.
 *
 * An MMU notifier announces a change before it is made, and many announced changes
 * are not made to a page that is pinned: migration, compaction, KSM and the
 * copy-on-write of a fork see the pin only after the announcement, and give up, and so
 * does the reclaim of shared memory, which leaves the page in its file.  So
 * what is pinned stays mapped while the change is made: a pinned page is nobody
 * else's, whatever happens to the owner's page tables.  When the change is over,
 * but before anybody may map the range anew, the owner's page tables tell what has
 * become of it.  What is as it was before stays, the rest is unmapped, counted as a
 * hole, and only then unpinned.
 *
 * Migration and reclaim unmap a page first, and see the pin when the notifier is over:
 * such a page, too, is mapped only because it is pinned.
 *
 * Three rules make that hold:
 * - nobody lets go of a pin, unless the owner has the page mapped and no change is in
 *   progress, or the range has been unmapped (gtdp_pin_release(), take());
 * - nobody maps or records a pin in a range that is being changed (stale() in
 *   gtdp_build.c);
 * - a pinned huge page is unmapped and unpinned as a whole.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/mm.h>
#include <linux/swap.h>
#include <linux/swapops.h>
#include <linux/userfaultfd_k.h>

#include "gtdp_internal.h"

/* Changes that a pin may turn into none.  The others always take the page away. */
static bool may_be_kept(enum mmu_notifier_event event)
{
	return event == MMU_NOTIFY_CLEAR || event == MMU_NOTIFY_PROTECTION_VMA ||
	       event == MMU_NOTIFY_PROTECTION_PAGE;
}

/* Unmap and unpin.  The TLBs are flushed before the pins go. */
static void take(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_gfn_range *range,
		 gfn_t start, gfn_t end)
{
	enum gtdp_yield yield = range->may_block ? GTDP_YIELD_MMU_LOCK : GTDP_YIELD_NONE;
	struct kvm_gfn_range part = *range;

	/* What goes with the range must stay unmapped as long as it does. */
	gtdp_pin_extend(gtdp, &start, &end);
	kvm_mmu_invalidate_range_add(kvm, start, end);
	gtdp_lose(kvm, gtdp, start, end, KVM_GTDP_HOLE_NOTIFIER, yield);

	part.start = start;
	part.end = end;
	if (__kvm_unmap_gfn_range(kvm, &part))
		kvm_flush_remote_tlbs(kvm);

	gtdp_pin_drop(gtdp, kvm, start, end, yield);
}

/* If somebody waits, take what is found so far, [first, gfn), and let him. */
static gfn_t make_way(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_gfn_range *range,
		      gfn_t first, gfn_t gfn)
{
	if (!range->may_block || (!need_resched() && !rwlock_needbreak(&kvm->mmu_lock)))
		return first;

	if (first < gfn)
		take(kvm, gtdp, range, first, gfn);
	cond_resched_rwlock_write(&kvm->mmu_lock);
	return gfn;
}

/* A change is announced.  Called with mmu_lock held for write. */
void __kvm_gtdp_unmap(struct kvm *kvm, struct kvm_gfn_range *range)
{
	struct kvm_gtdp *gtdp = kvm->arch.gtdp;
	gfn_t gfn, next, first = range->start;
	bool huge;

	lockdep_assert_held_write(&kvm->mmu_lock);

	/* [first, gfn) is not pinned. */
	for (gfn = first; may_be_kept(range->arg.event) && gfn < range->end; gfn = next) {
		first = make_way(kvm, gtdp, range, first, gfn);
		if (!gtdp_pin_peek(gtdp, gfn, range->end, &next, &huge))
			continue;
		if (first < gfn)
			take(kvm, gtdp, range, first, gfn);
		first = next;
	}
	if (first < range->end)
		take(kvm, gtdp, range, first, range->end);
}

/* An entry of the owner's page tables, of any level, and the page that was there. */
struct host_entry {
	struct page *page;
	u64 val;
	unsigned long pfn;
	bool present;
	bool writable;
	bool protnone;
};

/* Does the file of a shared mapping have the page, which nobody has mapped any more? */
static bool in_file(struct vm_area_struct *vma, unsigned long hva, struct page *page)
{
	struct folio *folio = page_folio(page);

	return vma->vm_flags & VM_SHARED && vma->vm_file && !is_vm_hugetlb_page(vma) &&
	       !PageHWPoison(page) && READ_ONCE(folio->mapping) == vma->vm_file->f_mapping &&
	       folio->index + folio_page_idx(folio, page) == linear_page_index(vma, hva);
}

/*
 * Will the owner find the page at @hva, and be able to write to it, when it takes a
 * fault there?  Whoever changes VMAs holds mmap_lock for write.
 */
static bool same_after_fault(struct mm_struct *mm, unsigned long hva, struct page *page,
			     bool mapped)
{
	struct vm_area_struct *vma;
	bool same;

	if (!mmap_read_trylock(mm))
		return false;

	vma = vma_lookup(mm, hva);
	same = vma && vma->vm_flags & VM_WRITE && !userfaultfd_armed(vma);
	if (same && mapped)
		same = vma->vm_flags & VM_SHARED || (PageAnon(page) && PageAnonExclusive(page));
	else if (same)
		same = in_file(vma, hva, page);

	mmap_read_unlock(mm);
	return same;
}

/* Who asks for the owner's page tables, and so what counts as mapped. */
enum ask {
	ASK_NOW,		/* present, right now */
	ASK_RECLAIM,		/* after a notifier of reclaim, which unmaps what it cannot take */
	ASK_PROTECTION,		/* of one that unmaps nothing: what is not there was not before */
	ASK_OTHER,		/* of any other */
};

/* Does the entry map @pfn so that the owner can write to it, if only after a fault? */
static bool entry_same(struct mm_struct *mm, unsigned long hva, struct host_entry e,
		       unsigned long pfn, enum ask ask)
{
	bool hinted = e.protnone;
	swp_entry_t swp;

	if (ask == ASK_NOW)
		return e.present && e.pfn == pfn;

	if (!e.val)
		return ask != ASK_OTHER && same_after_fault(mm, hva, e.page, false);

	if (!e.present) {
		/* Under migration, which the pin will make fail? */
		swp = pte_to_swp_entry(__pte(e.val));
		if (!is_migration_entry(swp))
			return false;
		e.pfn = swp_offset_pfn(swp);
		e.writable = is_writable_migration_entry(swp);
		hinted = !e.writable;
	}
	if (e.pfn != pfn)
		return false;

	/* NUMA balancing wants to see who uses the page, or did before a migration. */
	return hinted ? same_after_fault(mm, hva, pfn_to_page(pfn), true) : e.writable;
}

/*
 * How many of the @nr pages from @page on does the owner have mapped at @hva, writable
 * as they must have been when they were pinned?
 *
 * If none is, *@gone are not.
 *
 * This looks at no page but at its number only.  The page tables stay: whoever has
 * changed them, and waits for the end of this notifier, holds mmap_lock, the VMA's lock
 * or those of its reverse map, all of which must be taken to free them.  Tables that a
 * huge page replaces are freed after a grace period or wait for an interrupt.
 */
static unsigned long still_mapped(struct mm_struct *mm, unsigned long hva, struct page *page,
				  unsigned long nr, enum ask ask, unsigned long *gone)
{
	unsigned long pfn = page_to_pfn(page), size = PUD_SIZE, flags, n = 0;
	struct host_entry e = { .page = page };
	pud_t *pudp, pud;
	pgd_t *pgdp;
	p4d_t *p4dp;
	pmd_t pmd;
	pte_t *ptep, pte;

	local_irq_save(flags);

	pgdp = pgd_offset(mm, hva);
	if (pgd_none(READ_ONCE(*pgdp)))
		goto out;
	p4dp = p4d_offset(pgdp, hva);
	if (p4d_none(READ_ONCE(*p4dp)))
		goto out;

	pudp = pud_offset(p4dp, hva);
	pud = READ_ONCE(*pudp);
	if (pud_none(pud))
		goto out;
	if (!pud_present(pud) || pud_leaf(pud)) {
		e.val = pud_val(pud);
		e.pfn = pud_pfn(pud);
		e.present = pud_present(pud);
		e.writable = pud_write(pud);
		goto leaf;
	}

	size = PMD_SIZE;
	pmd = READ_ONCE(*pmd_offset(&pud, hva));
	/* A table that processes share may have been taken away. */
	if (pud_val(READ_ONCE(*pudp)) != pud_val(pud))
		goto out;
	if (!pmd_present(pmd) || pmd_leaf(pmd)) {
		e.val = pmd_val(pmd);
		e.pfn = pmd_pfn(pmd);
		e.present = pmd_present(pmd);
		e.writable = pmd_write(pmd);
		e.protnone = pmd_protnone(pmd);
		goto leaf;
	}

	size = PAGE_SIZE;
	ptep = pte_offset_kernel(&pmd, hva);
	for (; n < nr; n++, ptep++, hva += PAGE_SIZE) {
		if (n && !(hva & ~PMD_MASK))
			break;
		pte = ptep_get(ptep);
		e.page = page + n;
		e.val = pte_val(pte);
		e.pfn = pte_pfn(pte);
		e.present = pte_present(pte);
		e.writable = pte_write(pte);
		e.protnone = pte_protnone(pte);
		if (!entry_same(mm, hva, e, pfn + n, ask))
			break;
	}
	goto out;
leaf:
	if (entry_same(mm, hva, e, pfn - ((hva & (size - 1)) >> PAGE_SHIFT), ask))
		n = min(nr, (ALIGN(hva + 1, size) - hva) >> PAGE_SHIFT);
	/* What was asked is about this folio only. */
	if (n && !e.val)
		n = min_t(unsigned long, n, folio_nr_pages(page_folio(page)) -
					    folio_page_idx(page_folio(page), page));
out:
	local_irq_restore(flags);
	if (!n)
		*gone = min(nr, (ALIGN(hva + 1, size) - hva) >> PAGE_SHIFT);
	return n;
}

/*
 * A change is over, but still counts as in progress.  Called with mmu_lock held for
 * write, which may be dropped and taken again: the VM may lose its global mapping
 * meanwhile, but not before the end of kvm->srcu's section.
 */
void __kvm_gtdp_recheck(struct kvm *kvm, struct kvm_gfn_range *range)
{
	struct kvm_gtdp *gtdp = kvm->arch.gtdp;
	gfn_t gfn, next, first = range->start;
	enum ask ask = ASK_OTHER;
	unsigned long n, gone;
	struct page *page;
	bool huge;

	if (!gtdp || range->slot->as_id)
		return;

	if (range->arg.event != MMU_NOTIFY_CLEAR)
		ask = ASK_PROTECTION;
	else if (current->flags & PF_MEMALLOC)
		ask = ASK_RECLAIM;

	/* [first, gfn) was pinned, and is no longer what it was. */
	for (gfn = first; gfn < range->end; gfn = next) {
		first = make_way(kvm, gtdp, range, first, gfn);
		page = gtdp_pin_peek(gtdp, gfn, range->end, &next, &huge);
		if (page) {
			n = still_mapped(kvm->mm, __gfn_to_hva_memslot(range->slot, gfn), page,
					 next - gfn, ask, &gone);
			if (!n) {
				next = huge ? next : gfn + gone;
				continue;
			}
			/* A huge page that is kept in part goes as a whole. */
			if (!huge || gfn + n == next) {
				atomic64_add(n << PAGE_SHIFT, &gtdp->kept_bytes);
				atomic64_add(n, &kvm->stat.gtdp_kept_pages);
			}
			next = gfn + n;
		}
		if (first < gfn)
			take(kvm, gtdp, range, first, gfn);
		first = next;
	}
	if (first < range->end)
		take(kvm, gtdp, range, first, range->end);
}

/* Does the owner have all that is pinned in [start, end) mapped, right now? */
static bool all_mapped(struct kvm *kvm, struct kvm_gtdp *gtdp,
		       const struct kvm_memory_slot *slot, gfn_t start, gfn_t end)
{
	gfn_t gfn, next;
	struct page *page;
	unsigned long n, gone;
	bool huge;

	for (gfn = start; gfn < end; gfn = next) {
		page = gtdp_pin_peek(gtdp, gfn, end, &next, &huge);
		if (!page)
			continue;
		n = still_mapped(kvm->mm, __gfn_to_hva_memslot(slot, gfn), page, next - gfn,
				 ASK_NOW, &gone);
		if (!n)
			return false;
		next = gfn + n;
	}
	return true;
}

static void unmap_for_release(struct kvm *kvm, struct kvm_gtdp *gtdp,
			      struct kvm_memory_slot *slot, gfn_t start, gfn_t end)
{
	struct kvm_gfn_range range = {
		.slot = slot,
		.start = start,
		.end = end,
		.may_block = true,
	};

	kvm_mmu_invalidate_begin(kvm);
	kvm_mmu_invalidate_range_add(kvm, start, end);
	/* What goes along with a huge page, and is still built. */
	if (READ_ONCE(gtdp->has_handle))
		gtdp_lose(kvm, gtdp, start, end, KVM_GTDP_HOLE_REQUEST, GTDP_YIELD_NONE);
	if (__kvm_unmap_gfn_range(kvm, &range))
		kvm_flush_remote_tlbs(kvm);
	gtdp_pin_drop(gtdp, kvm, start, end, GTDP_YIELD_NONE);
	kvm_mmu_invalidate_end(kvm);
}

/* Let pins go where the owner has everything mapped.  Called with mmap_lock held. */
static bool release_mapped(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_memory_slot *slot,
			   gfn_t start, gfn_t end)
{
	bool mapped;

	read_lock(&kvm->mmu_lock);
	gtdp_pin_extend(gtdp, &start, &end);
	mapped = !gtdp_in_progress(kvm, start, end) && all_mapped(kvm, gtdp, slot, start, end);
	if (mapped)
		gtdp_pin_drop(gtdp, kvm, start, end, GTDP_YIELD_NONE);
	read_unlock(&kvm->mmu_lock);
	return mapped;
}

static void release_unmap(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_memory_slot *slot,
			  gfn_t start, gfn_t end)
{
	write_lock(&kvm->mmu_lock);
	gtdp_pin_extend(gtdp, &start, &end);
	unmap_for_release(kvm, gtdp, slot, start, end);
	write_unlock(&kvm->mmu_lock);
}

/* How much is released with mmu_lock held, and how much of it is unmapped if it must be. */
#define RELEASE_BATCH	(16UL << 20 >> PAGE_SHIFT)
#define UNMAP_BATCH	KVM_PAGES_PER_HPAGE(PG_LEVEL_2M)

static void release_batch(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_memory_slot *slot,
			  gfn_t start, gfn_t end, bool alive)
{
	gfn_t gfn, next;

	if (alive && release_mapped(kvm, gtdp, slot, start, end))
		return;

	for (gfn = start; gfn < end; gfn = next) {
		next = min(end, ALIGN(gfn + 1, UNMAP_BATCH));
		if (!alive || !release_mapped(kvm, gtdp, slot, gfn, next))
			release_unmap(kvm, gtdp, slot, gfn, next);
	}
}

/*
 * Let the pins of [start, end) go while the VM runs: its leaves stay.  But where the pin
 * is all that keeps the page, they must not: the owner's mapping is being changed, or the
 * page is under migration or reclaim, which have unmapped it and are yet to see the pin.
 * No notifier would tell when they go on.  Called with slots_lock or kvm->srcu held.
 */
void gtdp_pin_release(struct kvm *kvm, struct kvm_gtdp *gtdp, gfn_t start, gfn_t end)
{
	struct mm_struct *mm = kvm->mm;
	bool alive = mmget_not_zero(mm);
	struct kvm_memslot_iter iter;
	gfn_t gfn, next, stop;

	if (!atomic64_read(&gtdp->pinned_pages))
		goto out;

	kvm_for_each_memslot_in_gfn_range(&iter, kvm_memslots(kvm), start, end) {
		if (!gtdp_is_user_slot(iter.slot))
			continue;
		stop = min(end, iter.slot->base_gfn + iter.slot->npages);
		for (gfn = max(start, iter.slot->base_gfn); gfn < stop; gfn = next) {
			next = min(stop, ALIGN(gfn + 1, RELEASE_BATCH));
			/* Keeps the owner's page tables, which a dying owner may not have. */
			if (alive)
				mmap_read_lock(mm);
			release_batch(kvm, gtdp, iter.slot, gfn, next, alive);
			if (alive)
				mmap_read_unlock(mm);
			cond_resched();
		}
	}
out:
	if (alive)
		mmput_async(mm);
}
