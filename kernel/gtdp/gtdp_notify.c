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
 * Three rules make that hold:
 * - nobody lets go of a pin in a range that is being changed, unless the range has
 *   been unmapped (gtdp_pin_release(), gtdp_unmap_in_progress(), take());
 * - nobody maps or records a pin in such a range (stale() in gtdp_build.c);
 * - a pinned huge page is unmapped and unpinned as a whole.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/mm.h>
#include <linux/mmu_notifier.h>
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

	gtdp_pin_extend(gtdp, &start, &end);
	gtdp_lose(kvm, gtdp, start, end, KVM_GTDP_HOLE_NOTIFIER, yield);

	part.start = start;
	part.end = end;
	if (__kvm_unmap_gfn_range(kvm, &part))
		kvm_flush_remote_tlbs(kvm);

	gtdp_pin_drop(gtdp, kvm, start, end, yield);
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

/*
 * Is it shared memory that the owner will find writable at @hva when it faults, and, if
 * the page is asked for, will it be the same?  Whoever changes VMAs holds mmap_lock for
 * write.
 */
static bool shared_same(struct mm_struct *mm, unsigned long hva, struct page *page)
{
	struct vm_area_struct *vma;
	struct folio *folio;
	bool same;

	if (!mmap_read_trylock(mm))
		return false;

	vma = vma_lookup(mm, hva);
	same = vma && (vma->vm_flags & (VM_SHARED | VM_WRITE)) == (VM_SHARED | VM_WRITE) &&
	       !userfaultfd_armed(vma);
	if (same && page) {
		folio = page_folio(page);
		same = vma->vm_file && !is_vm_hugetlb_page(vma) && !PageHWPoison(page) &&
		       READ_ONCE(folio->mapping) == vma->vm_file->f_mapping &&
		       folio->index + folio_page_idx(folio, page) == linear_page_index(vma, hva);
	}

	mmap_read_unlock(mm);
	return same;
}

/* Does the entry map @pfn so that the owner can write to it, if only after a fault? */
static bool entry_same(struct mm_struct *mm, unsigned long hva, struct host_entry e,
		       unsigned long pfn)
{
	bool hinted = e.protnone;
	swp_entry_t swp;

	/* Reclaim unmaps a page before it sees that there is no point in it. */
	if (!e.val)
		return current->flags & PF_MEMALLOC && shared_same(mm, hva, e.page);

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
	return hinted ? shared_same(mm, hva, NULL) : e.writable;
}

/*
 * How many of the @nr pages from @page on does the owner have mapped at @hva, writable
 * as they must have been when they were pinned?
 *
 * This looks at no page but at its number only.  The page tables stay: whoever has
 * changed them, and waits for the end of this notifier, holds mmap_lock, the VMA's lock
 * or those of its reverse map, all of which must be taken to free them.  Tables that a
 * huge page replaces are freed after a grace period or wait for an interrupt.
 */
static unsigned long still_mapped(struct mm_struct *mm, unsigned long hva, struct page *page,
				  unsigned long nr)
{
	unsigned long pfn = page_to_pfn(page), size, flags, n = 0;
	struct host_entry e = { .page = page };
	pgd_t *pgdp;
	p4d_t *p4dp;
	pud_t pud;
	pmd_t pmd;
	pte_t *ptep, pte;

	local_irq_save(flags);

	pgdp = pgd_offset(mm, hva);
	if (pgd_none(READ_ONCE(*pgdp)))
		goto out;
	p4dp = p4d_offset(pgdp, hva);
	if (p4d_none(READ_ONCE(*p4dp)))
		goto out;

	pud = READ_ONCE(*pud_offset(p4dp, hva));
	if (pud_none(pud))
		goto out;
	if (!pud_present(pud) || pud_leaf(pud)) {
		size = PUD_SIZE;
		e.val = pud_val(pud);
		e.pfn = pud_pfn(pud);
		e.present = pud_present(pud);
		e.writable = pud_write(pud);
		goto leaf;
	}

	pmd = READ_ONCE(*pmd_offset(&pud, hva));
	if (!pmd_present(pmd) || pmd_leaf(pmd)) {
		size = PMD_SIZE;
		e.val = pmd_val(pmd);
		e.pfn = pmd_pfn(pmd);
		e.present = pmd_present(pmd);
		e.writable = pmd_write(pmd);
		e.protnone = pmd_protnone(pmd);
		goto leaf;
	}

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
		if (!entry_same(mm, hva, e, pfn + n))
			break;
	}
	goto out;
leaf:
	if (entry_same(mm, hva, e, pfn - ((hva & (size - 1)) >> PAGE_SHIFT)))
		n = min(nr, (ALIGN(hva + 1, size) - hva) >> PAGE_SHIFT);
	/* What was asked is about this folio only. */
	if (n && !e.val)
		n = min_t(unsigned long, n, folio_nr_pages(page_folio(page)) -
					    folio_page_idx(page_folio(page), page));
out:
	local_irq_restore(flags);
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
	unsigned long n;
	struct page *page;
	bool huge;

	if (!gtdp || range->slot->as_id)
		return;

	/* [first, gfn) was pinned, and is no longer what it was. */
	for (gfn = first; gfn < range->end; gfn = next) {
		page = gtdp_pin_peek(gtdp, gfn, range->end, &next, &huge);
		if (page) {
			n = still_mapped(kvm->mm, __gfn_to_hva_memslot(range->slot, gfn), page,
					 next - gfn);
			if (!n) {
				next = huge ? next : gfn + 1;
				continue;
			}
			next = gfn + n;
			atomic64_add(n << PAGE_SHIFT, &gtdp->kept_bytes);
			atomic64_add(n, &kvm->stat.gtdp_kept_pages);
		}
		if (first < gfn)
			take(kvm, gtdp, range, first, gfn);
		first = next;

		if (range->may_block && (need_resched() || rwlock_needbreak(&kvm->mmu_lock)))
			cond_resched_rwlock_write(&kvm->mmu_lock);
	}
	if (first < range->end)
		take(kvm, gtdp, range, first, range->end);
}

/*
 * The VM loses its global mapping: what is mapped only because it is pinned must not
 * outlive the pins.  Called with slots_lock, and with mmu_lock held for write.
 */
void gtdp_unmap_in_progress(struct kvm *kvm, struct kvm_gtdp *gtdp)
{
	gfn_t start = kvm->mmu_invalidate_range_start, end = kvm->mmu_invalidate_range_end;
	struct kvm_memslot_iter iter;

	if (!kvm->mmu_invalidate_in_progress || start >= end)
		return;

	gtdp_pin_extend(gtdp, &start, &end);
	kvm_for_each_memslot_in_gfn_range(&iter, kvm_memslots(kvm), start, end) {
		struct kvm_gfn_range range = {
			.slot = iter.slot,
			.start = max(start, iter.slot->base_gfn),
			.end = min(end, iter.slot->base_gfn + iter.slot->npages),
		};

		if (__kvm_unmap_gfn_range(kvm, &range))
			kvm_flush_remote_tlbs(kvm);
	}
}
