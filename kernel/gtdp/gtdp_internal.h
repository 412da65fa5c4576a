/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __KVM_X86_MMU_GTDP_INTERNAL_H
#define __KVM_X86_MMU_GTDP_INTERNAL_H

#include <linux/kref.h>
#include <linux/maple_tree.h>
#include <linux/seqlock.h>
#include <linux/wait.h>
#include <linux/xarray.h>

#include "mmu.h"
#include "gtdp.h"
#include "mmu_internal.h"
#include "spte.h"

/*
 * The global mapping of one VM, for address space 0 (SMM stays on demand).
 *
 * Two things can hold a reference: the VM (kvm->arch.gtdp) and the handle's
 * file.  The handle holds none to the VM: whoever wants to work on it takes one
 * for as long as that lasts (gtdp_get_vm()).
 *
 * Lock order: slots_lock > kvm->srcu (read) > owner's mmap_lock, built_lock >
 * mmu_lock > pin_lock, event_lock, hit_lock.
 */
struct kvm_gtdp {
	struct kref kref;

	spinlock_t vm_lock;		/* protects kvm, NULL once destroyed */
	struct kvm *kvm;
	bool gone;			/* the owner's address space has gone */
	bool has_handle;		/* under slots_lock */
	bool forced;			/* made by kvm.gtdp=force, outlives handles */
	bool auto_build;
	unsigned long pin_limit;	/* in pages */
	struct module *vendor;		/* pinned by the handle */
	wait_queue_head_t wait;

	/* A ring of events that nobody has read yet; none without a handle. */
	spinlock_t event_lock;
	struct kvm_gtdp_event *events;
	unsigned int event_head;
	unsigned int nr_events;

	/* What was asked to be built: gfn ranges. */
	struct mutex built_lock;	/* serialises writers */
	struct maple_tree built;

	/* The built range that had the last fault, so that most faults look nothing up. */
	spinlock_t hit_lock;
	seqcount_spinlock_t hit_seq;
	gfn_t hit_start;
	gfn_t hit_end;

	/* Pins by gfn, see gtdp_pin.c. */
	spinlock_t pin_lock;		/* protects what the entries point to */
	struct xarray pins;
	atomic64_t pinned_pages;

	atomic64_t lost_bytes[KVM_GTDP_HOLE_REASONS];
	atomic64_t faults;
	atomic64_t faults_other;
	atomic64_t build_ns;
	atomic64_t auto_builds;
	atomic64_t auto_errors;
	atomic64_t auto_last_error;
	atomic64_t split_leaves;
	atomic64_t collapsed_leaves;
	atomic64_t kept_bytes;
	atomic64_t dropped_events;
};

/* Spare page tables, so that nothing is allocated under mmu_lock. */
#define GTDP_SPARES	(PT64_ROOT_MAX_LEVEL)

struct gtdp_spares {
	struct kvm_mmu_page *sp[GTDP_SPARES];
	int nr;
	int nid;
};

struct gtdp_pin_table {
	struct page *page[SPTE_ENT_PER_PAGE];
};

static_assert(sizeof(struct gtdp_pin_table) == PAGE_SIZE);

/* State of one BUILD, on behalf of one thread. */
struct gtdp_build {
	struct kvm_gtdp *gtdp;
	struct kvm *kvm;
	struct gtdp_spares spares;
	struct gtdp_pin_table *pages;	/* what this step has pinned */
	struct gtdp_pin_table *table;	/* spare, for a record of fewer than 512 pages */
	DECLARE_BITMAP(own, SPTE_ENT_PER_PAGE);	/* of these, not yet recorded */
	DECLARE_BITMAP(replaced, SPTE_ENT_PER_PAGE); /* held by smaller pins before */
	void *old_dir;			/* the same, for all of a 1G page */
	int max_level;
	bool pin;
	bool present;			/* pass over what is not there */
	bool interruptible;
};

/* What gtdp_pin_drop() may do between pages. */
enum gtdp_yield {
	GTDP_YIELD_NONE,
	GTDP_YIELD_SLEEP,
	GTDP_YIELD_MMU_LOCK,	/* held for write: drop it if somebody waits */
};

/* gtdp.c */
enum gtdp_policy { GTDP_OFF, GTDP_ALLOW, GTDP_FORCE };

extern enum gtdp_policy gtdp_policy;

struct kvm_gtdp *gtdp_alloc(struct kvm *kvm);
void gtdp_put(struct kvm_gtdp *gtdp);

/* gtdp_dev.c */
int gtdp_dev_register(void);
void gtdp_dev_unregister(void);

/* gtdp_build.c */
int gtdp_build(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_gtdp_range *range,
	       bool interruptible);

/* gtdp_built.c */
int gtdp_built_add(struct kvm_gtdp *gtdp, gfn_t start, gfn_t end);
int gtdp_built_remove(struct kvm_gtdp *gtdp, gfn_t start, gfn_t end);
bool gtdp_is_built(struct kvm_gtdp *gtdp, gfn_t start, gfn_t end);
bool gtdp_built_has(struct kvm_gtdp *gtdp, gfn_t gfn);
u64 gtdp_mapped_pages(struct kvm *kvm, struct kvm_gtdp *gtdp, gfn_t *start, gfn_t *end,
		      enum gtdp_yield yield);
void gtdp_stats(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_gtdp_stats *stats);

/* gtdp_pin.c */
int gtdp_pin_prepare(struct kvm_gtdp *gtdp, gfn_t gfn);
void gtdp_pin_lookup(struct kvm_gtdp *gtdp, gfn_t gfn, int nr, int level, struct page **pages);
int gtdp_pin_record(struct gtdp_build *b, gfn_t gfn, int nr, int level);
struct page *gtdp_pin_peek(struct kvm_gtdp *gtdp, gfn_t gfn, gfn_t end, gfn_t *next,
			   bool *huge);
void gtdp_pin_extend(struct kvm_gtdp *gtdp, gfn_t *start, gfn_t *end);
void gtdp_pin_drop(struct kvm_gtdp *gtdp, struct kvm *kvm, gfn_t start, gfn_t end,
		   enum gtdp_yield yield);
void gtdp_pin_drop_all(struct kvm_gtdp *gtdp, struct kvm *kvm);
void gtdp_pin_undo(struct gtdp_build *b, int nr);

/* gtdp_event.c */
int gtdp_events_alloc(struct kvm_gtdp *gtdp);
void gtdp_post_slot(struct kvm_gtdp *gtdp, u32 type, const struct kvm_memory_slot *slot);
void gtdp_lose(struct kvm *kvm, struct kvm_gtdp *gtdp, gfn_t start, gfn_t end,
	       unsigned int reason, enum gtdp_yield yield);
bool gtdp_has_events(struct kvm_gtdp *gtdp);
ssize_t gtdp_read_events(struct kvm_gtdp *gtdp, char __user *buf, size_t count, bool nonblock);

/* gtdp_notify.c */
void gtdp_pin_release(struct kvm *kvm, struct kvm_gtdp *gtdp, gfn_t start, gfn_t end);

/* gtdp_split.c */
int gtdp_split(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_gtdp_range *range,
	       bool interruptible);
int gtdp_collapse(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_gtdp_range *range,
		  bool interruptible);

/* gtdp_gup.c */
unsigned long gtdp_absent(struct mm_struct *mm, unsigned long hva);
int gtdp_pin_pages(struct gtdp_build *b, unsigned long hva, int nr);
int gtdp_pin_leaves(struct gtdp_build *b, unsigned long hva, int nr, int level, bool *unsure);

/* gtdp_map.c */
int gtdp_spares_top_up(struct gtdp_spares *spares, int nr, int nid);
void gtdp_spares_free(struct gtdp_spares *spares);
int gtdp_map(struct gtdp_build *b, const struct kvm_memory_slot *slot, gfn_t gfn, int nr,
	     int level);
u64 gtdp_leaf_template(struct kvm *kvm, const struct kvm_memory_slot *slot,
		       union kvm_mmu_page_role role, gfn_t gfn, int level);
union kvm_mmu_page_role gtdp_root_role(struct kvm *kvm);
struct kvm_mmu_page *gtdp_get_root(struct kvm *kvm);

static inline bool gtdp_lpage_allowed(const struct kvm_memory_slot *slot, gfn_t gfn, int level)
{
	unsigned long idx = gfn_to_index(gfn, slot->base_gfn, level);

	return !READ_ONCE(slot->arch.lpage_info[level - 2][idx].disallow_lpage);
}

/* The first gfn that a root cannot map: an iterator would wrap there. */
static inline gfn_t gtdp_root_end(struct kvm_mmu_page *root)
{
	return BIT_ULL(root->role.level * SPTE_LEVEL_BITS);
}

/* Is the owner's mapping of a part of the range being changed?  With mmu_lock held. */
static inline bool gtdp_in_progress(struct kvm *kvm, gfn_t start, gfn_t end)
{
	return unlikely(kvm->mmu_invalidate_in_progress) &&
	       start < kvm->mmu_invalidate_range_end && end > kvm->mmu_invalidate_range_start;
}

static inline u32 gtdp_slot_flags(const struct kvm_memory_slot *slot)
{
	return (slot->flags & KVM_MEM_READONLY ? KVM_GTDP_SLOT_READONLY : 0) |
	       (kvm_slot_dirty_track_enabled(slot) ? KVM_GTDP_SLOT_DIRTY_LOG : 0);
}

static inline bool gtdp_is_user_slot(const struct kvm_memory_slot *slot)
{
	return slot->id >= 0 && slot->id < KVM_USER_MEM_SLOTS;
}

#endif /* __KVM_X86_MMU_GTDP_INTERNAL_H */
