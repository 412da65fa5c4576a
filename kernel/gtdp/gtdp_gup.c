// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pin the owner's memory, with as few steps as its backing allows.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/file.h>
#include <linux/hugetlb.h>
#include <linux/memfd.h>
#include <linux/mm.h>

#include "gtdp_internal.h"

/* Is this the first page of a huge page of at least @level? */
static bool is_huge_backing(struct page *page, int level)
{
	struct folio *folio = page_folio(page);

	return folio_nr_pages(folio) >= KVM_PAGES_PER_HPAGE(level) &&
	       !(page_to_pfn(page) & (KVM_PAGES_PER_HPAGE(level) - 1));
}

/*
 * Pin the first page of @nr leaves of @level: one pin holds a whole folio.
 * Returns how many are pinned in a row, or an error if it is none.
 */
static int pin_leaves(struct gtdp_build *b, unsigned long hva, int nr, int level)
{
	struct page **page = b->pages->page;
	int i, r;

	for (i = 0; i < nr; i++, hva += KVM_HPAGE_SIZE(level)) {
		if (page[i])
			continue;
		r = pin_user_pages_fast(hva, 1, b->gup_flags, &page[i]);
		if (r != 1)
			return i ?: (r ?: -EFAULT);
		if (!is_huge_backing(page[i], level)) {
			unpin_user_page(page[i]);
			page[i] = NULL;
			return i ?: -EMLINK;
		}
		__set_bit(i, b->own);
	}
	return nr;
}

/* Pin @nr small pages.  Returns how many are pinned in a row, or an error. */
int gtdp_pin_pages(struct gtdp_build *b, unsigned long hva, int nr)
{
	struct page **page = b->pages->page;
	int i, n, r;

	for (i = 0; i < nr; i += n) {
		n = 1;
		if (page[i])
			continue;
		while (i + n < nr && !page[i + n])
			n++;
		r = pin_user_pages_fast(hva + i * PAGE_SIZE, n, b->gup_flags, &page[i]);
		if (r > 0)
			bitmap_set(b->own, i, r);
		if (r != n) {
			memset(&page[i + max(r, 0)], 0, (n - max(r, 0)) * sizeof(*page));
			i += max(r, 0);
			return i ?: (r ?: -EFAULT);
		}
	}
	return nr;
}

/* The hugetlbfs file behind [hva, hva + size) if it is mapped shared, with a reference. */
static struct file *shared_huge_file(struct mm_struct *mm, unsigned long hva,
				     unsigned long size, int level, loff_t *pos)
{
	struct vm_area_struct *vma;
	struct file *file = NULL;

	mmap_read_lock(mm);
	vma = vma_lookup(mm, hva);
	if (vma && is_vm_hugetlb_page(vma) && vma->vm_end - hva >= size &&
	    (vma->vm_flags & (VM_SHARED | VM_WRITE)) == (VM_SHARED | VM_WRITE) &&
	    huge_page_size(hstate_vma(vma)) == KVM_HPAGE_SIZE(level)) {
		file = get_file(vma->vm_file);
		*pos = ((loff_t)vma->vm_pgoff << PAGE_SHIFT) + (hva - vma->vm_start);
	}
	mmap_read_unlock(mm);
	return file;
}

/*
 * How many of @nr leaves of @level from @hva on, all in one table, the owner has
 * in its page tables.  As host_pfn_mapping_level(), which does this for one, it
 * relies on disabled interrupts to keep the tables, and its answer must not be
 * used before mmu_invalidate_seq has been checked.
 */
static int count_host_leaves(struct mm_struct *mm, unsigned long hva, int nr, int level)
{
	unsigned long flags;
	pgd_t pgd;
	p4d_t p4d;
	pud_t *pudp, pud;
	pmd_t *pmdp, pmd;
	int i = 0;

	local_irq_save(flags);

	pgd = READ_ONCE(*pgd_offset(mm, hva));
	if (pgd_none(pgd))
		goto out;

	p4d = READ_ONCE(*p4d_offset(&pgd, hva));
	if (p4d_none(p4d) || !p4d_present(p4d))
		goto out;

	pudp = pud_offset(&p4d, hva);
	pud = READ_ONCE(*pudp);
	if (level == PG_LEVEL_1G) {
		i = pud_present(pud) && pud_leaf(pud) && pud_write(pud);
		goto out;
	}
	if (pud_none(pud) || !pud_present(pud) || pud_leaf(pud))
		goto out;

	pmdp = pmd_offset(&pud, hva);
	for (; i < nr; i++, pmdp++) {
		pmd = READ_ONCE(*pmdp);
		if (!pmd_present(pmd) || !pmd_leaf(pmd) || !pmd_write(pmd))
			break;
	}
out:
	local_irq_restore(flags);
	return i;
}

/*
 * Pin @nr huge pages by way of the file they come from, instead of one walk of
 * the owner's page tables each.  That they are in the owner's page tables is
 * checked all the same: the owner's mapping is what MMU notifiers speak of, and
 * truncation does not notify of a page that nobody has mapped.  The check holds
 * until mmu_invalidate_seq changes.
 *
 * Returns how many are pinned, 0 if it cannot be done this way.
 */
static int pin_leaves_of_file(struct gtdp_build *b, unsigned long hva, int nr, int level)
{
	struct page **page = b->pages->page;
	struct file *file;
	pgoff_t offset;
	loff_t pos;
	long i, r;

	file = shared_huge_file(b->kvm->mm, hva, nr * KVM_HPAGE_SIZE(level), level, &pos);
	if (!file)
		return 0;

	/* Stay within what is new, and within one of the owner's tables. */
	for (i = 1; i < nr && !page[i]; i++)
		;
	nr = min_t(unsigned long, i, SPTE_ENT_PER_PAGE - SPTE_INDEX(hva, level));
	nr = count_host_leaves(b->kvm->mm, hva, nr, level);

	/* A folio's address is that of its first page. */
	BUILD_BUG_ON(offsetof(struct folio, page));
	r = nr ? memfd_pin_folios(file, pos, pos + nr * KVM_HPAGE_SIZE(level) - 1,
				  (struct folio **)page, nr, &offset) : 0;
	fput(file);

	if (r > 0)
		bitmap_set(b->own, 0, r);
	return max(r, 0L);
}

/*
 * Pin what backs @nr leaves of @level, one pin each.  Returns how many are
 * pinned in a row, -EMLINK if the first has smaller pages, or another error.
 */
int gtdp_pin_leaves(struct gtdp_build *b, unsigned long hva, int nr, int level)
{
	int r = 0;

	if (!b->pages->page[0])
		r = pin_leaves_of_file(b, hva, nr, level);

	return r ?: pin_leaves(b, hva, nr, level);
}
