/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __KVM_X86_MMU_GTDP_H
#define __KVM_X86_MMU_GTDP_H

#include <linux/kvm_host.h>
#include <linux/kvm_gtdp.h>

/*
 * What the rest of KVM calls.  All are no-ops for a VM without a global
 * mapping: kvm->arch.gtdp is NULL.  It changes with slots_lock and mmu_lock
 * (for write) held, and is freed after a grace period of kvm->srcu, so that
 * any of the three protects a reader.
 */
#ifdef CONFIG_X86_64
int kvm_gtdp_init(void);
void kvm_gtdp_exit(void);
int kvm_gtdp_init_vm(struct kvm *kvm);
void kvm_gtdp_destroy_vm(struct kvm *kvm);

void __kvm_gtdp_count_fault(struct kvm *kvm, gfn_t gfn, int as_id);
void __kvm_gtdp_unmap(struct kvm *kvm, struct kvm_gfn_range *range);
void __kvm_gtdp_recheck(struct kvm *kvm, struct kvm_gfn_range *range);
void __kvm_gtdp_lose(struct kvm *kvm, gfn_t start, gfn_t end, unsigned int reason,
		     bool can_yield);
void __kvm_gtdp_lose_all(struct kvm *kvm, unsigned int reason);
bool __kvm_gtdp_keeps(struct kvm *kvm, struct kvm_mmu_page *root, gfn_t gfn, int level);
void __kvm_gtdp_start_dirty_log(struct kvm *kvm, const struct kvm_memory_slot *slot);
void __kvm_gtdp_stop_dirty_log(struct kvm *kvm, const struct kvm_memory_slot *slot);
bool kvm_gtdp_refuse(struct kvm *kvm);
void __kvm_gtdp_flush_slot(struct kvm *kvm, struct kvm_memory_slot *slot);
void __kvm_gtdp_flush_all(struct kvm *kvm);
void __kvm_gtdp_commit_slot(struct kvm *kvm, const struct kvm_memory_slot *old,
			    const struct kvm_memory_slot *new, enum kvm_mr_change change);

static inline bool kvm_gtdp_attached(struct kvm *kvm)
{
	return READ_ONCE(kvm->arch.gtdp);
}
#else
static inline int kvm_gtdp_init(void) { return 0; }
static inline void kvm_gtdp_exit(void) {}
static inline int kvm_gtdp_init_vm(struct kvm *kvm) { return 0; }
static inline void kvm_gtdp_destroy_vm(struct kvm *kvm) {}
static inline void __kvm_gtdp_count_fault(struct kvm *kvm, gfn_t gfn, int as_id) {}
static inline void __kvm_gtdp_unmap(struct kvm *kvm, struct kvm_gfn_range *range) {}
static inline void __kvm_gtdp_recheck(struct kvm *kvm, struct kvm_gfn_range *range) {}
static inline void __kvm_gtdp_lose(struct kvm *kvm, gfn_t start, gfn_t end,
				   unsigned int reason, bool can_yield) {}
static inline void __kvm_gtdp_lose_all(struct kvm *kvm, unsigned int reason) {}
static inline bool __kvm_gtdp_keeps(struct kvm *kvm, struct kvm_mmu_page *root, gfn_t gfn,
				    int level)
{
	return false;
}

static inline void __kvm_gtdp_start_dirty_log(struct kvm *kvm,
					      const struct kvm_memory_slot *slot) {}
static inline void __kvm_gtdp_stop_dirty_log(struct kvm *kvm,
					     const struct kvm_memory_slot *slot) {}
static inline bool kvm_gtdp_refuse(struct kvm *kvm) { return true; }
static inline void __kvm_gtdp_flush_slot(struct kvm *kvm, struct kvm_memory_slot *slot) {}
static inline void __kvm_gtdp_flush_all(struct kvm *kvm) {}
static inline void __kvm_gtdp_commit_slot(struct kvm *kvm,
					  const struct kvm_memory_slot *old,
					  const struct kvm_memory_slot *new,
					  enum kvm_mr_change change) {}
static inline bool kvm_gtdp_attached(struct kvm *kvm) { return false; }
#endif

/* A vCPU took a TDP fault.  Called with kvm->srcu held. */
static inline void kvm_gtdp_count_fault(struct kvm *kvm, gfn_t gfn, int as_id)
{
	if (unlikely(kvm_gtdp_attached(kvm)))
		__kvm_gtdp_count_fault(kvm, gfn, as_id);
}

/*
 * The owner's mapping of a range is about to change.  Called with mmu_lock held for
 * write, which may be dropped and taken again.  Returns whether that has been seen to.
 */
static inline bool kvm_gtdp_unmap(struct kvm *kvm, struct kvm_gfn_range *range)
{
	if (likely(!kvm_gtdp_attached(kvm)) || range->slot->as_id)
		return false;
	__kvm_gtdp_unmap(kvm, range);
	return true;
}

/*
 * Leaves of a range are about to go, for another reason than a notifier.  Called with
 * mmu_lock held for write, which may be dropped and taken again if @can_yield, and with
 * kvm->srcu or slots_lock.
 */
static inline void kvm_gtdp_lose(struct kvm *kvm, gfn_t start, gfn_t end, unsigned int reason,
				 bool can_yield)
{
	if (unlikely(kvm_gtdp_attached(kvm)))
		__kvm_gtdp_lose(kvm, start, end, reason, can_yield);
}

/* All roots are about to go.  Called with slots_lock held. */
static inline void kvm_gtdp_lose_all(struct kvm *kvm, unsigned int reason)
{
	if (unlikely(kvm_gtdp_attached(kvm)))
		__kvm_gtdp_lose_all(kvm, reason);
}

/* Must the table of a root not be dropped when it could be a huge page? */
static inline bool kvm_gtdp_keeps(struct kvm *kvm, struct kvm_mmu_page *root, gfn_t gfn,
				  int level)
{
	return unlikely(kvm_gtdp_attached(kvm)) && __kvm_gtdp_keeps(kvm, root, gfn, level);
}

/* Dirty logging of a slot begins, or is over.  Called with slots_lock held. */
static inline void kvm_gtdp_start_dirty_log(struct kvm *kvm, const struct kvm_memory_slot *slot)
{
	if (unlikely(kvm_gtdp_attached(kvm)))
		__kvm_gtdp_start_dirty_log(kvm, slot);
}

static inline void kvm_gtdp_stop_dirty_log(struct kvm *kvm, const struct kvm_memory_slot *slot)
{
	if (unlikely(kvm_gtdp_attached(kvm)))
		__kvm_gtdp_stop_dirty_log(kvm, slot);
}

/* A slot is invalid, unmapped and flushed.  Called with slots_lock held. */
static inline void kvm_gtdp_flush_slot(struct kvm *kvm, struct kvm_memory_slot *slot)
{
	if (unlikely(kvm_gtdp_attached(kvm)))
		__kvm_gtdp_flush_slot(kvm, slot);
}

/* The owner's address space goes, or the VM.  Nothing is mapped any more. */
static inline void kvm_gtdp_flush_all(struct kvm *kvm)
{
	if (unlikely(kvm_gtdp_attached(kvm)))
		__kvm_gtdp_flush_all(kvm);
}

/* A slot was created, moved, changed or deleted.  Called with slots_lock held. */
static inline void kvm_gtdp_commit_slot(struct kvm *kvm, const struct kvm_memory_slot *old,
					const struct kvm_memory_slot *new,
					enum kvm_mr_change change)
{
	if (unlikely(kvm_gtdp_attached(kvm)))
		__kvm_gtdp_commit_slot(kvm, old, new, change);
}

#endif /* __KVM_X86_MMU_GTDP_H */
