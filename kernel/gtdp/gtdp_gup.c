// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pin the owner's memory for long, from any process.
 *
 * What the owner has mapped writable is pinned straight from its page tables, by
 * the rules of FOLL_PIN | FOLL_LONGTERM | FOLL_WRITE in mm/gup.c's fast path.
 * That path itself cannot be used: it works on current->mm only, and spends some
 * 260 instructions on a small page where a whole batch has the same answers.
 * Unlike it, this holds the owner's mmap_lock: the flush that comes before tables
 * are freed interrupts only CPUs that run the owner.
 * All else (not present, write-protected, a zone or file that forbids it) is left
 * to pin_user_pages_remote(), which knows best, and says no where it must.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fs.h>
#include <linux/hugetlb.h>
#include <linux/mm.h>
#include <linux/page_ref.h>
#include <linux/pagemap.h>
#include <linux/sched/coredump.h>
#include <linux/shmem_fs.h>
#include <linux/userfaultfd_k.h>
#include <linux/vmstat.h>

#include "gtdp_internal.h"

/* A batch of pins of one address space, interrupts disabled. */
struct walk {
	struct mm_struct *mm;
	struct page **page;
	unsigned long hva;
	int nr;			/* units left in this walk */
	int level;		/* of a unit */
	int nid;		/* of the pins not yet in the node's statistics */
	long pins;
	struct address_space *shmem;	/* the last file that was found good */
};

static void flush_stat(struct walk *w)
{
	if (w->pins)
		mod_node_page_state(NODE_DATA(w->nid), NR_FOLL_PIN_ACQUIRED, w->pins);
	w->pins = 0;
}

/* See gup_fast_folio_allowed(): files that need writeback tracking are not for us. */
static bool may_pin(struct walk *w, struct folio *folio)
{
	struct address_space *mapping;

	/* Memory that must stay movable, or is a device's. */
	if (folio_zonenum(folio) >= ZONE_MOVABLE)
		return false;

	if (folio_test_hugetlb(folio))
		return true;

	mapping = READ_ONCE(folio->mapping);
	if (!mapping)
		return false;
	if ((unsigned long)mapping & PAGE_MAPPING_FLAGS)
		return (unsigned long)mapping & PAGE_MAPPING_ANON;
	if (mapping != w->shmem) {
		if (!shmem_mapping(mapping))
			return false;
		w->shmem = mapping;
	}
	return true;
}

static void unpin(struct folio *folio, int nr)
{
	if (folio_test_large(folio))
		atomic_sub(nr, &folio->_pincount);
	else
		nr *= GUP_PIN_COUNTING_BIAS;
	folio_put_refs(folio, nr);
}

/*
 * Take @nr pins of the folio of @page.  The atomic operations here are full
 * barriers, so whoever unmaps the page either sees the pin or is seen by the
 * check of the page table entry that comes next, in keep().
 */
static __always_inline struct folio *pin(struct page *page, int nr)
{
	struct folio *folio = page_folio(page);

	/* As in try_get_folio(): there are too many references already. */
	if (WARN_ON_ONCE(folio_ref_count(folio) < 0))
		return NULL;

	if (!folio_ref_try_add(folio, nr * GUP_PIN_COUNTING_BIAS))
		return NULL;

	/* Until there was a reference, it could become another folio. */
	if (unlikely(page_folio(page) != folio)) {
		folio_put_refs(folio, nr * GUP_PIN_COUNTING_BIAS);
		return NULL;
	}

	if (folio_test_large(folio)) {
		atomic_add(nr, &folio->_pincount);
		folio_ref_sub(folio, nr * (GUP_PIN_COUNTING_BIAS - 1));
	}
	return folio;
}

/*
 * Keep the pins, or let them go if the entry has changed or the page is not one
 * to pin.  Only now that it is known to be the owner's can it be looked at.
 */
static __always_inline bool keep(struct walk *w, struct folio *folio, int nr, bool same)
{
	int nid;

	if (unlikely(!same || !may_pin(w, folio))) {
		unpin(folio, nr);
		return false;
	}

	nid = folio_nid(folio);
	if (unlikely(nid != w->nid)) {
		flush_stat(w);
		w->nid = nid;
	}
	w->pins += nr;
	return true;
}

/* Advance by @n units, whose first pages are @page, @page + one unit, ... */
static void advance(struct walk *w, struct page *page, int n)
{
	int i, step = KVM_PAGES_PER_HPAGE(w->level);

	for (i = 0; i < n; i++, page += step)
		w->page[i] = page;
	w->page += n;
	w->nr -= n;
	w->hva += n * KVM_HPAGE_SIZE(w->level);
}

/* How many units there are before the end of a mapping of @size around hva. */
static int units_within(struct walk *w, unsigned long size)
{
	return min_t(unsigned long, w->nr,
		     (ALIGN(w->hva + 1, size) - w->hva) / KVM_HPAGE_SIZE(w->level));
}

#define PTE_WANTED	(_PAGE_PRESENT | _PAGE_RW)
#define PTE_UNWANTED	(_PAGE_SPECIAL | _PAGE_DEVMAP)

static bool pinnable_pte(pteval_t val)
{
	return (val & (PTE_WANTED | PTE_UNWANTED)) == PTE_WANTED;
}

static void walk_ptes(struct walk *w, pmd_t *pmdp, pmd_t pmd)
{
	int n = units_within(w, PMD_SIZE);
	pte_t *ptep = pte_offset_kernel(&pmd, w->hva);
	struct folio *folio;
	struct page *page;
	pte_t pte;
	bool same;

	for (; n; n--, ptep++) {
		pte = ptep_get_lockless(ptep);
		if (!pinnable_pte(pte_val(pte)))
			return;

		page = pte_page(pte);
		folio = pin(page, 1);
		if (!folio)
			return;
		/* The table itself may have been replaced by a huge page. */
		same = pmd_val(pmd) == pmd_val(READ_ONCE(*pmdp)) &&
		       pte_val(pte) == pte_val(ptep_get(ptep));
		if (!keep(w, folio, 1, same))
			return;

		*w->page++ = page;
		w->nr--;
		w->hva += PAGE_SIZE;
	}
}

/* Returns false if the walk ends here. */
static bool walk_pmd(struct walk *w, pud_t pud)
{
	pmd_t *pmdp = pmd_offset(&pud, w->hva);
	pmd_t pmd = READ_ONCE(*pmdp);
	struct folio *folio;
	struct page *page;
	int n;

	if (!pmd_present(pmd) || pmd_devmap(pmd))
		return false;

	if (!pmd_leaf(pmd)) {
		if (w->level > PG_LEVEL_4K)
			return false;
		n = w->nr;
		walk_ptes(w, pmdp, pmd);
		return w->nr < n && !(w->hva & ~PMD_MASK);
	}

	if (!pinnable_pte(pmd_val(pmd)))
		return false;

	n = units_within(w, PMD_SIZE);
	page = pmd_page(pmd) + ((w->hva & ~PMD_MASK) >> PAGE_SHIFT);
	folio = pin(page, n);
	if (!folio || !keep(w, folio, n, pmd_val(pmd) == pmd_val(READ_ONCE(*pmdp))))
		return false;
	advance(w, page, n);
	return true;
}

static bool walk_pud(struct walk *w)
{
	pgd_t pgd = READ_ONCE(*pgd_offset(w->mm, w->hva));
	struct folio *folio;
	struct page *page;
	p4d_t p4d;
	pud_t *pudp, pud;
	int n;

	if (pgd_none(pgd))
		return false;
	p4d = READ_ONCE(*p4d_offset(&pgd, w->hva));
	if (p4d_none(p4d) || !p4d_present(p4d))
		return false;

	pudp = pud_offset(&p4d, w->hva);
	pud = READ_ONCE(*pudp);
	if (!pud_present(pud) || pud_devmap(pud))
		return false;

	if (!pud_leaf(pud)) {
		bool more;

		if (w->level > PG_LEVEL_2M)
			return false;
		do {
			more = walk_pmd(w, pud);
		} while (more && w->nr && (w->hva & ~PUD_MASK));
		return more;
	}

	if (!pinnable_pte(pud_val(pud)))
		return false;

	n = units_within(w, PUD_SIZE);
	page = pud_page(pud) + ((w->hva & ~PUD_MASK) >> PAGE_SHIFT);
	folio = pin(page, n);
	if (!folio || !keep(w, folio, n, pud_val(pud) == pud_val(READ_ONCE(*pudp))))
		return false;
	advance(w, page, n);
	return true;
}

/* Returns how many units were pinned. */
static int walk(struct walk *w)
{
	struct page **page = w->page;
	unsigned long flags;
	unsigned int seq;
	int nr = w->nr;

	if (!test_bit(MMF_HAS_PINNED, &w->mm->flags))
		set_bit(MMF_HAS_PINNED, &w->mm->flags);

	/* A fork write-protects what it copies, and must not miss a pin. */
	seq = raw_read_seqcount(&w->mm->write_protect_seq);
	if (seq & 1)
		return 0;

	/* Keeps huge pages from being split, and tables that are not used from going. */
	local_irq_save(flags);
	while (w->nr && walk_pud(w))
		;
	flush_stat(w);
	local_irq_restore(flags);

	nr -= w->nr;
	if (unlikely(read_seqcount_retry(&w->mm->write_protect_seq, seq))) {
		unpin_user_pages(page, nr);
		memset(page, 0, nr * sizeof(*page));
		return 0;
	}
	return nr;
}

/*
 * Pin @nr units of @level from @hva on as far as the owner has them mapped,
 * writable, by leaves of at least @level.  Returns how many are pinned.
 */
static int pin_mapped(struct mm_struct *mm, unsigned long hva, int nr, int level,
		      struct page **page)
{
	struct address_space *shared = NULL;
	struct vm_area_struct *vma;
	struct walk w = {
		.mm = mm,
		.page = page,
		.hva = hva,
		.level = level,
		.nid = NUMA_NO_NODE,
	};
	int r = 0;

	/* Whether memory in CMA may be pinned is not for modules to know. */
	if (IS_ENABLED(CONFIG_CMA) || !mmap_read_trylock(mm))
		return 0;

	vma = vma_lookup(mm, hva);
	if (!vma || vma->vm_flags & (VM_IO | VM_PFNMAP))
		goto out;

	/* Tables that processes share can be taken away with this lock alone. */
	if (is_vm_hugetlb_page(vma) && vma->vm_flags & VM_MAYSHARE) {
		shared = vma->vm_file->f_mapping;
		if (!i_mmap_trylock_read(shared))
			goto out;
	}

	w.nr = min_t(unsigned long, nr, (vma->vm_end - hva) / KVM_HPAGE_SIZE(level));
	r = walk(&w);

	if (shared)
		i_mmap_unlock_read(shared);
out:
	mmap_read_unlock(mm);
	return r;
}

/* What EFAULT at @hva means: nothing there, or memory that cannot be pinned for long. */
static int fault_reason(struct mm_struct *mm, unsigned long hva)
{
	struct vm_area_struct *vma;
	struct file *file;
	int r = -EFAULT;

	mmap_read_lock(mm);
	vma = vma_lookup(mm, hva);
	if (vma) {
		file = vma->vm_flags & VM_SHARED ? vma->vm_file : NULL;
		if (vma->vm_flags & (VM_IO | VM_PFNMAP))
			r = -EOPNOTSUPP;
		else if (file && vma->vm_flags & VM_WRITE &&
			 !shmem_mapping(file->f_mapping) && !is_file_hugepages(file))
			r = -EOPNOTSUPP;
	}
	mmap_read_unlock(mm);
	return r;
}

/* Pin what is not simply there, faulting it in unless the build is PRESENT. */
static int pin_slow(struct gtdp_build *b, unsigned long hva, int nr, struct page **page)
{
	unsigned int flags = FOLL_WRITE | FOLL_LONGTERM;
	struct mm_struct *mm = b->kvm->mm;
	int locked = 1;
	long r;

	if (b->present)
		flags |= FOLL_NOFAULT;
	else if (b->interruptible)
		flags |= FOLL_INTERRUPTIBLE;

	r = mmap_read_lock_killable(mm);
	if (r)
		return r;
	r = pin_user_pages_remote(mm, hva, nr, flags, page, &locked);
	if (locked)
		mmap_read_unlock(mm);
	return r && r != -EFAULT ? r : fault_reason(mm, hva);
}

/* Memory of a file that is there, mapped by its owner or not. */
static bool is_cached(struct vm_area_struct *vma, unsigned long hva)
{
	struct folio *folio;

	folio = filemap_get_folio(vma->vm_file->f_mapping, linear_page_index(vma, hva));
	if (IS_ERR_OR_NULL(folio))
		return false;
	folio_put(folio);
	return true;
}

/*
 * Shared memory whose owner may fault it in without further ado.  It stays that for as
 * long as mmap_lock is held: no fault here lets it go.
 */
static bool may_fault_in(struct vm_area_struct *vma)
{
	return (vma->vm_flags & (VM_SHARED | VM_WRITE)) == (VM_SHARED | VM_WRITE) &&
	       (is_vm_hugetlb_page(vma) ||
		(vma->vm_file && shmem_mapping(vma->vm_file->f_mapping))) &&
	       !(vma->vm_flags & (VM_IO | VM_PFNMAP)) && !userfaultfd_armed(vma);
}

/*
 * Fill the owner's page tables at @hva, where one fault does that for many pages or
 * for a huge one, so that the walk finds them.  That is how memory looks which the
 * owner has mapped but somebody else has populated.  A read of a shared file maps
 * what is around it, too; of private memory it would map the zero page.  A PRESENT
 * build does so where the file has the page: that allocates nothing, and waits for
 * nobody.
 *
 * Returns 1 if it is worth another walk, 0 if not, or an error.
 */
static int fault_in(struct gtdp_build *b, unsigned long hva)
{
	struct mm_struct *mm = b->kvm->mm;
	struct vm_area_struct *vma;
	int r;

	r = mmap_read_lock_killable(mm);
	if (r)
		return r;

	vma = vma_lookup(mm, hva);
	/* A wait for userfaultfd must be interruptible, which this is not. */
	if (vma && may_fault_in(vma) && (!b->present || is_cached(vma, hva)))
		r = fixup_user_fault(mm, hva,
				     is_vm_hugetlb_page(vma) ? FAULT_FLAG_WRITE : 0,
				     NULL) ?: 1;
	mmap_read_unlock(mm);
	return r == -EFAULT ? 0 : r;
}

/* Pin from the page tables, once they have been filled if they must be. */
static int pin_fast(struct gtdp_build *b, unsigned long hva, int nr, int level,
		    struct page **page)
{
	int r = pin_mapped(b->kvm->mm, hva, nr, level, page);

	if (r)
		return r;

	r = fault_in(b, hva);
	return r > 0 ? pin_mapped(b->kvm->mm, hva, nr, level, page) : r;
}

/* Pin @nr small pages.  Returns how many are pinned in a row, or an error. */
int gtdp_pin_pages(struct gtdp_build *b, unsigned long hva, int nr)
{
	struct page **page = b->pages->page;
	int i, n, r;

	for (i = 0; i < nr; i += r) {
		r = 1;
		if (page[i])
			continue;
		for (n = 1; i + n < nr && !page[i + n]; n++)
			;
		r = pin_fast(b, hva + i * PAGE_SIZE, n, PG_LEVEL_4K, &page[i]);
		if (!r)
			r = pin_slow(b, hva + i * PAGE_SIZE, n, &page[i]);
		if (r < 0)
			return i ?: r;
		bitmap_set(b->own, i, r);
	}
	return nr;
}

/* How many pages there are from @hva to the next that the file has. */
static unsigned long absent_in_file(struct vm_area_struct *vma, unsigned long hva)
{
	unsigned long size = vma_kernel_pagesize(vma);
	unsigned long first = linear_page_index(vma, hva);
	unsigned long step = linear_page_index(vma, hva + size) - first;
	unsigned long index = first + step;

	if (!xa_find(&vma->vm_file->f_mapping->i_pages, &index, ULONG_MAX, XA_PRESENT))
		return ULONG_MAX;
	return (index - first) / step * (size >> PAGE_SHIFT);
}

/* How many pages there are from @hva to the next that the page tables could map. */
static unsigned long absent_in_tables(struct mm_struct *mm, unsigned long hva)
{
	unsigned long size, n = 1;
	pud_t *pudp, pud;
	pte_t *ptep;
	pgd_t pgd;
	p4d_t p4d;
	pmd_t pmd;

	/* With mmap_lock held, tables that are not shared go by RCU only. */
	rcu_read_lock();
	size = PGDIR_SIZE;
	pgd = READ_ONCE(*pgd_offset(mm, hva));
	if (pgd_none(pgd))
		goto none;
	size = P4D_SIZE;
	p4d = READ_ONCE(*p4d_offset(&pgd, hva));
	if (p4d_none(p4d))
		goto none;
	size = PUD_SIZE;
	pudp = pud_offset(&p4d, hva);
	pud = READ_ONCE(*pudp);
	if (pud_none(pud))
		goto none;
	size = PMD_SIZE;
	if (!pud_present(pud) || pud_leaf(pud))
		goto none;
	pmd = READ_ONCE(*pmd_offset(&pud, hva));
	if (pmd_none(pmd) || !pmd_present(pmd) || pmd_leaf(pmd) ||
	    pud_val(READ_ONCE(*pudp)) != pud_val(pud))
		goto none;

	ptep = pte_offset_kernel(&pmd, hva);
	while ((hva + n * PAGE_SIZE) & ~PMD_MASK && pte_none(ptep_get(ptep + n)))
		n++;
	rcu_read_unlock();
	return n;
none:
	rcu_read_unlock();
	return (ALIGN(hva + 1, size) - hva) >> PAGE_SHIFT;
}

/*
 * How many pages from @hva on a PRESENT build passes over, as there is nothing that it
 * could map.  0 if there is no VMA.
 */
unsigned long gtdp_absent(struct mm_struct *mm, unsigned long hva)
{
	struct vm_area_struct *vma;
	unsigned long n = 0, size;

	mmap_read_lock(mm);
	vma = vma_lookup(mm, hva);
	if (vma) {
		size = vma_kernel_pagesize(vma);
		if (may_fault_in(vma))
			n = absent_in_file(vma, ALIGN_DOWN(hva, size));
		else
			n = absent_in_tables(mm, hva);
		if (size > PAGE_SIZE)
			n = max(n, size >> PAGE_SHIFT) - ((hva & (size - 1)) >> PAGE_SHIFT);
		n = min(n, (vma->vm_end - hva) >> PAGE_SHIFT);
	}
	mmap_read_unlock(mm);
	return n;
}

/* Is this the first page of a huge page of at least @level? */
static bool is_huge_backing(struct page *page, int level)
{
	return folio_nr_pages(page_folio(page)) >= KVM_PAGES_PER_HPAGE(level) &&
	       !(page_to_pfn(page) & (KVM_PAGES_PER_HPAGE(level) - 1));
}

/*
 * Pin what backs @nr leaves of @level, one pin each: it holds a whole folio.
 * Returns how many are pinned in a row, -EMLINK if the first has smaller pages,
 * or another error.  *@unsure is set if the owner may map the pages by smaller
 * leaves than @level: then there is but one.
 */
int gtdp_pin_leaves(struct gtdp_build *b, unsigned long hva, int nr, int level, bool *unsure)
{
	struct page **page = b->pages->page;
	int i, n, r;

	*unsure = false;
	for (i = 0; i < nr; i += r, hva += r * KVM_HPAGE_SIZE(level)) {
		r = 1;
		if (page[i])
			continue;
		for (n = 1; i + n < nr && !page[i + n]; n++)
			;
		r = pin_fast(b, hva, n, level, &page[i]);
		if (r > 0) {
			bitmap_set(b->own, i, r);
			continue;
		}
		if (i || r < 0)
			return i ?: r;

		r = pin_slow(b, hva, 1, page);
		if (r < 0)
			return r;
		if (!is_huge_backing(page[0], level)) {
			unpin_user_page(page[0]);
			page[0] = NULL;
			return -EMLINK;
		}
		__set_bit(0, b->own);
		*unsure = true;
		return 1;
	}
	return nr;
}
