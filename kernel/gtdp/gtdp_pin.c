// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pins of a global mapping, by gfn.
 *
 * A pin record says: this page is what the owner has mapped at the gfn's hva, or
 * will have again, and it is pinned.  It is true while it is there and no change of
 * the owner's mapping is in progress, because every change goes through an MMU
 * notifier, which drops the record in the end if the page has gone (gtdp_notify.c).
 *
 * The records have the shape of page tables: an xarray by 1 GiB of directories,
 * with an entry per 2 MiB that is one pinned huge page (tagged) or a table of
 * 512 pinned small pages.  The table is the array that pin_user_pages_fast()
 * filled, so recording a batch costs one store.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/mm.h>

#include "gtdp_internal.h"

#define PIN_HUGE	1UL
#define DIR_SHIFT	18
#define DIR_GFNS	BIT(DIR_SHIFT)

struct gtdp_pin_dir {
	unsigned long ent[SPTE_ENT_PER_PAGE];
};

static_assert(sizeof(struct gtdp_pin_dir) == PAGE_SIZE);

static inline unsigned int dir_index(gfn_t gfn)
{
	return (gfn >> 9) & (SPTE_ENT_PER_PAGE - 1);
}

static void account(struct kvm_gtdp *gtdp, struct kvm *kvm, long nr)
{
	atomic64_add(nr, &gtdp->pinned_pages);
	atomic64_add(nr, &kvm->stat.gtdp_pinned_pages);
	atomic64_add(nr, &kvm->mm->pinned_vm);
}

/* Make room for the record of @gfn, so that recording it cannot fail. */
int gtdp_pin_prepare(struct kvm_gtdp *gtdp, gfn_t gfn)
{
	void *dir;
	int r;

	if (xa_load(&gtdp->pins, gfn >> DIR_SHIFT))
		return 0;

	dir = (void *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
	if (!dir)
		return -ENOMEM;

	r = xa_insert(&gtdp->pins, gfn >> DIR_SHIFT, dir, GFP_KERNEL_ACCOUNT);
	if (r)
		free_page((unsigned long)dir);
	return r == -EBUSY ? 0 : r;
}

/* Fill in pages[] what is recorded for @nr leaves of @level, NULL elsewhere. */
void gtdp_pin_lookup(struct kvm_gtdp *gtdp, gfn_t gfn, int nr, int level, struct page **pages)
{
	struct gtdp_pin_table *table;
	struct gtdp_pin_dir *dir;
	unsigned long ent;
	int i;

	memset(pages, 0, nr * sizeof(*pages));

	spin_lock(&gtdp->pin_lock);
	dir = xa_load(&gtdp->pins, gfn >> DIR_SHIFT);
	if (!dir)
		goto out;

	if (xa_pointer_tag(dir)) {
		struct page *page = xa_untag_pointer(dir);
		gfn_t base = gfn & ~(DIR_GFNS - 1);

		for (i = 0; i < nr; i++)
			pages[i] = page + (gfn + i * KVM_PAGES_PER_HPAGE(level) - base);
		goto out;
	}

	if (level == PG_LEVEL_1G)
		goto out;

	if (level == PG_LEVEL_2M) {
		for (i = 0; i < nr; i++) {
			ent = dir->ent[dir_index(gfn) + i];
			if (ent & PIN_HUGE)
				pages[i] = (struct page *)(ent & ~PIN_HUGE);
		}
		goto out;
	}

	ent = dir->ent[dir_index(gfn)];
	if (ent & PIN_HUGE) {
		struct page *page = (struct page *)(ent & ~PIN_HUGE);

		for (i = 0; i < nr; i++)
			pages[i] = page + (gfn & (SPTE_ENT_PER_PAGE - 1)) + i;
	} else if (ent) {
		table = (struct gtdp_pin_table *)ent;
		memcpy(pages, &table->page[gfn & (SPTE_ENT_PER_PAGE - 1)], nr * sizeof(*pages));
	}
out:
	spin_unlock(&gtdp->pin_lock);
}

/* The record that covers @gfn: an entry of the directory, or the directory itself. */
static unsigned long pin_entry(struct kvm_gtdp *gtdp, gfn_t gfn, int *level)
{
	void *dir = xa_load(&gtdp->pins, gfn >> DIR_SHIFT);

	*level = PG_LEVEL_1G;
	if (!dir)
		return 0;
	if (xa_pointer_tag(dir))
		return (unsigned long)xa_untag_pointer(dir) | PIN_HUGE;

	*level = PG_LEVEL_2M;
	return ((struct gtdp_pin_dir *)dir)->ent[dir_index(gfn)];
}

/*
 * The pinned page at @gfn, or NULL.  What is said of it holds up to *@next, at most
 * @end: consecutive pages, of one pinned huge page if *@huge, or nothing pinned.
 */
struct page *gtdp_pin_peek(struct kvm_gtdp *gtdp, gfn_t gfn, gfn_t end, gfn_t *next, bool *huge)
{
	struct gtdp_pin_table *table;
	struct page *page = NULL;
	unsigned long ent, first;
	int level, i;

	spin_lock(&gtdp->pin_lock);
	ent = pin_entry(gtdp, gfn, &level);
	first = gfn & (KVM_PAGES_PER_HPAGE(level) - 1);
	*next = gfn - first + KVM_PAGES_PER_HPAGE(level);
	*huge = ent & PIN_HUGE;

	if (*huge) {
		page = (struct page *)(ent & ~PIN_HUGE) + first;
	} else if (ent) {
		table = (struct gtdp_pin_table *)ent;
		page = table->page[first];
		for (i = 1; first + i < SPTE_ENT_PER_PAGE; i++) {
			if (table->page[first + i] != (page ? page + i : NULL))
				break;
		}
		*next = gfn + i;
	}
	spin_unlock(&gtdp->pin_lock);

	*next = min(*next, end);
	return page;
}

/* Make the range end where pinned huge pages do. */
void gtdp_pin_extend(struct kvm_gtdp *gtdp, gfn_t *start, gfn_t *end)
{
	unsigned long ent;
	int level;

	spin_lock(&gtdp->pin_lock);
	ent = pin_entry(gtdp, *start, &level);
	if (ent & PIN_HUGE)
		*start = ALIGN_DOWN(*start, KVM_PAGES_PER_HPAGE(level));
	ent = pin_entry(gtdp, *end - 1, &level);
	if (ent & PIN_HUGE)
		*end = ALIGN(*end, KVM_PAGES_PER_HPAGE(level));
	spin_unlock(&gtdp->pin_lock);
}

/* Unpin the pages of a table and free it.  Returns how many there were. */
static long table_free(struct gtdp_pin_table *table)
{
	long nr = 0;
	int i, n;

	for (i = 0; i < SPTE_ENT_PER_PAGE; i += n) {
		n = 1;
		if (!table->page[i])
			continue;
		while (i + n < SPTE_ENT_PER_PAGE && table->page[i + n])
			n++;
		unpin_user_pages(&table->page[i], n);
		nr += n;
	}
	free_page((unsigned long)table);
	return nr;
}

static long ent_free(unsigned long ent)
{
	if (ent & PIN_HUGE) {
		unpin_user_page((struct page *)(ent & ~PIN_HUGE));
		return KVM_PAGES_PER_HPAGE(PG_LEVEL_2M);
	}
	return ent ? table_free((struct gtdp_pin_table *)ent) : 0;
}

/* How the unpinning of much memory makes way for others. */
static void make_way(struct kvm *kvm, enum gtdp_yield yield)
{
	if (yield == GTDP_YIELD_SLEEP)
		cond_resched();
	else if (yield == GTDP_YIELD_MMU_LOCK &&
		 (need_resched() || rwlock_needbreak(&kvm->mmu_lock)))
		cond_resched_rwlock_write(&kvm->mmu_lock);
}

/* Unpin all of a directory that nobody can find any more. */
static long dir_free(struct kvm *kvm, void *entry, enum gtdp_yield yield)
{
	struct gtdp_pin_dir *dir = entry;
	long nr = 0;
	int i;

	if (!entry)
		return 0;

	if (xa_pointer_tag(entry)) {
		unpin_user_page(xa_untag_pointer(entry));
		return DIR_GFNS;
	}

	for (i = 0; i < SPTE_ENT_PER_PAGE; i++) {
		nr += ent_free(dir->ent[i]);
		make_way(kvm, yield);
	}
	free_page((unsigned long)dir);
	return nr;
}

/*
 * What a larger pin replaces stays in b->old_dir and b->pages, to be unpinned by
 * gtdp_pin_undo() with no lock held.
 */
static int record_1g(struct gtdp_build *b, gfn_t gfn)
{
	struct kvm_gtdp *gtdp = b->gtdp;
	void *old;

	spin_lock(&gtdp->pin_lock);
	old = xa_load(&gtdp->pins, gfn >> DIR_SHIFT);
	/* Replaces an entry, so it allocates nothing and cannot fail. */
	if (old && !xa_pointer_tag(old)) {
		xa_store(&gtdp->pins, gfn >> DIR_SHIFT,
			 xa_tag_pointer(b->pages->page[0], 1), GFP_NOWAIT);
		b->old_dir = old;
		__clear_bit(0, b->own);
		account(gtdp, b->kvm, DIR_GFNS);
	}
	spin_unlock(&gtdp->pin_lock);
	return old ? 0 : -EAGAIN;
}

static void record_2m(struct gtdp_build *b, struct gtdp_pin_dir *dir, gfn_t gfn, int nr)
{
	unsigned long i, old;
	long delta = 0;

	for_each_set_bit(i, b->own, nr) {
		old = dir->ent[dir_index(gfn) + i];
		if (old & PIN_HUGE)
			continue;
		dir->ent[dir_index(gfn) + i] = (unsigned long)b->pages->page[i] | PIN_HUGE;
		__clear_bit(i, b->own);
		delta += KVM_PAGES_PER_HPAGE(PG_LEVEL_2M);
		if (old) {
			b->pages->page[i] = (struct page *)old;
			__set_bit(i, b->replaced);
		}
	}
	account(b->gtdp, b->kvm, delta);
}

static void record_4k(struct gtdp_build *b, struct gtdp_pin_dir *dir, gfn_t gfn, int nr)
{
	unsigned long first = gfn & (SPTE_ENT_PER_PAGE - 1);
	unsigned long *ent = &dir->ent[dir_index(gfn)];
	struct gtdp_pin_table *table;
	unsigned long i;
	long delta = 0;

	if (*ent & PIN_HUGE)
		return;

	/* Most often: a whole table, and nothing there. */
	if (!*ent && nr == SPTE_ENT_PER_PAGE && bitmap_full(b->own, nr)) {
		*ent = (unsigned long)b->pages;
		b->pages = NULL;
		bitmap_zero(b->own, nr);
		account(b->gtdp, b->kvm, nr);
		return;
	}

	if (!*ent) {
		*ent = (unsigned long)b->table;
		b->table = NULL;
	}

	table = (struct gtdp_pin_table *)*ent;
	for_each_set_bit(i, b->own, nr) {
		if (table->page[first + i])
			continue;
		table->page[first + i] = b->pages->page[i];
		__clear_bit(i, b->own);
		delta++;
	}
	account(b->gtdp, b->kvm, delta);
}

/* Is what this step has found recorded, and so has not pinned itself, still there? */
static bool still_recorded(struct gtdp_build *b, gfn_t gfn, int nr, int level)
{
	gfn_t step = KVM_PAGES_PER_HPAGE(level);
	struct gtdp_pin_table *table;
	unsigned long i, ent;
	struct page *page;
	int at;

	for_each_clear_bit(i, b->own, nr) {
		ent = pin_entry(b->gtdp, gfn + i * step, &at);
		if (ent & PIN_HUGE) {
			page = (struct page *)(ent & ~PIN_HUGE) +
			       ((gfn + i * step) & (KVM_PAGES_PER_HPAGE(at) - 1));
		} else {
			table = (struct gtdp_pin_table *)ent;
			page = ent && level == PG_LEVEL_4K ?
			       table->page[(gfn + i) & (SPTE_ENT_PER_PAGE - 1)] : NULL;
		}
		if (page != b->pages->page[i])
			return false;
	}
	return true;
}

/*
 * Record the pins of @nr leaves, called with mmu_lock held, so that a notifier
 * that comes later finds them.  What stays in b->own was recorded by somebody
 * else before, and is for the caller to undo.
 *
 * Returns -EAGAIN if the directory was taken away since gtdp_pin_prepare(), or a pin
 * that was there since gtdp_pin_lookup().
 */
int gtdp_pin_record(struct gtdp_build *b, gfn_t gfn, int nr, int level)
{
	struct kvm_gtdp *gtdp = b->gtdp;
	bool same = true;
	void *dir;

	lockdep_assert_held(&b->kvm->mmu_lock);

	if (!bitmap_full(b->own, nr)) {
		spin_lock(&gtdp->pin_lock);
		same = still_recorded(b, gfn, nr, level);
		spin_unlock(&gtdp->pin_lock);
	}
	if (!same)
		return -EAGAIN;
	if (bitmap_empty(b->own, nr))
		return 0;
	if (level == PG_LEVEL_1G)
		return record_1g(b, gfn);

	spin_lock(&gtdp->pin_lock);
	dir = xa_load(&gtdp->pins, gfn >> DIR_SHIFT);
	if (dir && !xa_pointer_tag(dir)) {
		if (level == PG_LEVEL_2M)
			record_2m(b, dir, gfn, nr);
		else
			record_4k(b, dir, gfn, nr);
	}
	spin_unlock(&gtdp->pin_lock);
	return dir ? 0 : -EAGAIN;
}

/* Unpin what this step has pinned and nobody has recorded, and what it replaced. */
void gtdp_pin_undo(struct gtdp_build *b, int nr)
{
	unsigned long i;

	if (b->old_dir) {
		account(b->gtdp, b->kvm,
			-dir_free(b->kvm, b->old_dir, GTDP_YIELD_SLEEP));
		b->old_dir = NULL;
	}
	if (!b->pages)
		return;

	for_each_set_bit(i, b->own, nr)
		unpin_user_page(b->pages->page[i]);
	bitmap_zero(b->own, SPTE_ENT_PER_PAGE);

	for_each_set_bit(i, b->replaced, nr) {
		account(b->gtdp, b->kvm, -ent_free((unsigned long)b->pages->page[i]));
		cond_resched();
	}
	bitmap_zero(b->replaced, SPTE_ENT_PER_PAGE);
}

static long drop_in_table(unsigned long *ent, gfn_t start, gfn_t end)
{
	struct gtdp_pin_table *table = (struct gtdp_pin_table *)*ent;
	long nr = 0;
	gfn_t gfn;

	for (gfn = start; gfn < end; gfn++) {
		struct page **page = &table->page[gfn & (SPTE_ENT_PER_PAGE - 1)];

		if (!*page)
			continue;
		unpin_user_page(*page);
		*page = NULL;
		nr++;
	}
	return nr;
}

/* Drop within the directory of one 1 GiB, an entry at a time. */
static long drop_in_dir(struct kvm_gtdp *gtdp, struct kvm *kvm, unsigned long index,
			gfn_t start, gfn_t end, enum gtdp_yield yield)
{
	struct gtdp_pin_dir *dir;
	unsigned long *ent, old;
	long nr = 0;
	gfn_t gfn, next;

	for (gfn = start; gfn < end; gfn = next) {
		next = min(end, ALIGN(gfn + 1, SPTE_ENT_PER_PAGE));
		old = 0;

		spin_lock(&gtdp->pin_lock);
		dir = xa_load(&gtdp->pins, index);
		if (dir && !xa_pointer_tag(dir)) {
			ent = &dir->ent[dir_index(gfn)];
			/* A huge page is pinned, and let go, as a whole. */
			if ((*ent & PIN_HUGE) || next - gfn == SPTE_ENT_PER_PAGE)
				swap(old, *ent);
			else if (*ent)
				nr += drop_in_table(ent, gfn, next);
		}
		spin_unlock(&gtdp->pin_lock);
		nr += ent_free(old);
		make_way(kvm, yield);
	}
	return nr;
}

/*
 * Let the pins of [start, end) go.  A builder that is at work in the range may
 * add its own afterwards; callers that must not let that happen hold mmu_lock
 * for write, or have made sure that there is none.
 *
 * A pin may be the last reference to its page: where leaves have been taken away, the
 * TLBs are flushed by now.
 */
void gtdp_pin_drop(struct kvm_gtdp *gtdp, struct kvm *kvm, gfn_t start, gfn_t end,
		   enum gtdp_yield yield)
{
	unsigned long index;
	long nr = 0;
	void *dir;

	if (!atomic64_read(&gtdp->pinned_pages))
		return;

	xa_for_each_range(&gtdp->pins, index, dir, start >> DIR_SHIFT, (end - 1) >> DIR_SHIFT) {
		gfn_t lo = max_t(gfn_t, start, (gfn_t)index << DIR_SHIFT);
		gfn_t hi = min_t(gfn_t, end, ((gfn_t)index + 1) << DIR_SHIFT);

		spin_lock(&gtdp->pin_lock);
		dir = xa_load(&gtdp->pins, index);
		if (dir && (xa_pointer_tag(dir) || hi - lo == DIR_GFNS)) {
			xa_erase(&gtdp->pins, index);
			spin_unlock(&gtdp->pin_lock);
			nr += dir_free(kvm, dir, yield);
			continue;
		}
		spin_unlock(&gtdp->pin_lock);
		nr += drop_in_dir(gtdp, kvm, index, lo, hi, yield);
	}

	account(gtdp, kvm, -nr);
}

/* Let all pins go, and the records.  Nobody builds any more. */
void gtdp_pin_drop_all(struct kvm_gtdp *gtdp, struct kvm *kvm)
{
	unsigned long index;
	long nr = 0;
	void *dir;

	xa_for_each(&gtdp->pins, index, dir) {
		spin_lock(&gtdp->pin_lock);
		dir = xa_erase(&gtdp->pins, index);
		spin_unlock(&gtdp->pin_lock);
		nr += dir_free(kvm, dir, GTDP_YIELD_SLEEP);
	}

	account(gtdp, kvm, -nr);
}
