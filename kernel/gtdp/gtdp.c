// SPDX-License-Identifier: GPL-2.0-only
/*
 * Global TDP mappings: the object of a VM, and what the rest of KVM tells it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/capability.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched/mm.h>
#include <linux/userfaultfd_k.h>

#include "gtdp_internal.h"

static char *gtdp_param = "allow";
module_param_named(gtdp, gtdp_param, charp, 0444);
MODULE_PARM_DESC(gtdp, "Global TDP mappings: off, allow (default), force (build every VM)");

enum gtdp_policy gtdp_policy __read_mostly;

static void gtdp_free(struct kref *kref)
{
	struct kvm_gtdp *gtdp = container_of(kref, struct kvm_gtdp, kref);

	WARN_ON_ONCE(atomic64_read(&gtdp->pinned_pages));
	xa_destroy(&gtdp->pins);
	mtree_destroy(&gtdp->built);
	kvfree(gtdp->events);
	kfree(gtdp);
}

void gtdp_put(struct kvm_gtdp *gtdp)
{
	kref_put(&gtdp->kref, gtdp_free);
}

struct kvm_gtdp *gtdp_alloc(struct kvm *kvm)
{
	struct kvm_gtdp *gtdp;

	gtdp = kzalloc(sizeof(*gtdp), GFP_KERNEL_ACCOUNT);
	if (!gtdp)
		return NULL;

	kref_init(&gtdp->kref);
	spin_lock_init(&gtdp->vm_lock);
	gtdp->kvm = kvm;
	init_waitqueue_head(&gtdp->wait);
	mutex_init(&gtdp->built_lock);
	mt_init_flags(&gtdp->built, MT_FLAGS_USE_RCU);
	spin_lock_init(&gtdp->hit_lock);
	seqcount_spinlock_init(&gtdp->hit_seq, &gtdp->hit_lock);
	spin_lock_init(&gtdp->pin_lock);
	spin_lock_init(&gtdp->event_lock);
	xa_init_flags(&gtdp->pins, XA_FLAGS_ACCOUNT);
	gtdp->pin_limit = capable(CAP_IPC_LOCK) ? ULONG_MAX :
						  rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	return gtdp;
}

void __kvm_gtdp_count_fault(struct kvm *kvm, gfn_t gfn, int as_id)
{
	struct kvm_gtdp *gtdp = READ_ONCE(kvm->arch.gtdp);

	if (!gtdp)
		return;
	if (!as_id && gtdp_built_has(gtdp, gfn)) {
		atomic64_inc(&gtdp->faults);
		atomic64_inc(&kvm->stat.gtdp_faults);
	} else {
		atomic64_inc(&gtdp->faults_other);
	}
}

void __kvm_gtdp_flush_slot(struct kvm *kvm, struct kvm_memory_slot *slot)
{
	struct kvm_gtdp *gtdp = kvm->arch.gtdp;
	gfn_t start = slot->base_gfn, end = start + slot->npages;

	if (!gtdp || slot->as_id)
		return;

	/* If this fails, what is left of it shows as a hole. */
	gtdp_built_remove(gtdp, start, end);
	/* No builder is left in the slot: all have seen it go invalid. */
	gtdp_pin_drop(gtdp, kvm, start, end, GTDP_YIELD_SLEEP);
}

/* Leaves of [start, end) are about to go.  Called with mmu_lock held for write. */
void __kvm_gtdp_lose(struct kvm *kvm, gfn_t start, gfn_t end, unsigned int reason,
		     bool can_yield)
{
	struct kvm_gtdp *gtdp = kvm->arch.gtdp;

	if (gtdp)
		gtdp_lose(kvm, gtdp, start, end, reason,
			  can_yield ? GTDP_YIELD_MMU_LOCK : GTDP_YIELD_NONE);
}

/*
 * All roots are about to go.  Called with slots_lock held; mmu_lock only comes and goes,
 * as it is not worth holding everybody up for a number.
 */
void __kvm_gtdp_lose_all(struct kvm *kvm, unsigned int reason)
{
	struct kvm_gtdp *gtdp = kvm->arch.gtdp;

	write_lock(&kvm->mmu_lock);
	gtdp_lose(kvm, gtdp, 0, kvm_mmu_max_gfn() + 1, reason, GTDP_YIELD_MMU_LOCK);
	write_unlock(&kvm->mmu_lock);
}

/* Has dirty logging left the table at @gfn for its global mapping to collapse? */
bool __kvm_gtdp_keeps(struct kvm *kvm, struct kvm_mmu_page *root, gfn_t gfn, int level)
{
	struct kvm_gtdp *gtdp = READ_ONCE(kvm->arch.gtdp);

	return gtdp && root->role.word == gtdp_root_role(kvm).word &&
	       gtdp_is_built(gtdp, gfn, gfn + KVM_PAGES_PER_HPAGE(level));
}

void __kvm_gtdp_flush_all(struct kvm *kvm)
{
	struct kvm_gtdp *gtdp = READ_ONCE(kvm->arch.gtdp);

	if (!gtdp)
		return;

	WRITE_ONCE(gtdp->gone, true);
	gtdp_pin_drop_all(gtdp, kvm);
	wake_up_poll(&gtdp->wait, EPOLLHUP | EPOLLERR);
}

/* Not of the ABI: nothing there that could be built. */
#define KVM_GTDP_BUILD_SKIP	BIT(31)

/*
 * How to build a slot for which nobody asks.  This runs in the VMM's ioctl, with
 * slots_lock held: it must not wait for userfaultfd, which the very same thread
 * may be serving.  Device memory is not ours to map.
 */
static u32 auto_flags(struct kvm *kvm, const struct kvm_memory_slot *slot)
{
	unsigned long start = slot->userspace_addr;
	unsigned long end = start + (slot->npages << PAGE_SHIFT);
	struct vm_area_struct *vma;
	u32 flags = 0;

	/* Nobody has asked for this memory to be there: what is, is good enough. */
	if (gtdp_policy == GTDP_FORCE &&
	    slot->npages + atomic64_read(&kvm->arch.gtdp->pinned_pages) > si_mem_available() / 4)
		flags |= KVM_GTDP_BUILD_PRESENT;

	mmap_read_lock(kvm->mm);
	for (vma = find_vma(kvm->mm, start); vma && vma->vm_start < end;
	     vma = find_vma(kvm->mm, vma->vm_end)) {
		if (vma->vm_flags & (VM_IO | VM_PFNMAP))
			flags |= KVM_GTDP_BUILD_SKIP;
		if (userfaultfd_armed(vma))
			flags |= KVM_GTDP_BUILD_PRESENT;
	}
	mmap_read_unlock(kvm->mm);
	return flags;
}

static void auto_build(struct kvm *kvm, struct kvm_gtdp *gtdp, const struct kvm_memory_slot *slot)
{
	struct kvm_gtdp_range range = {
		.gpa = slot->base_gfn << PAGE_SHIFT,
		.size = (u64)slot->npages << PAGE_SHIFT,
		.flags = auto_flags(kvm, slot),
	};
	int r;

	if (range.flags & KVM_GTDP_BUILD_SKIP)
		return;

	r = gtdp_build(kvm, gtdp, &range, false);

	atomic64_inc(&gtdp->auto_builds);
	if (!r)
		return;

	/* What is missing shows as a hole, and can be built again. */
	gtdp_built_add(gtdp, slot->base_gfn, slot->base_gfn + slot->npages);
	atomic64_inc(&gtdp->auto_errors);
	atomic64_set(&gtdp->auto_last_error, r);
}

void __kvm_gtdp_commit_slot(struct kvm *kvm, const struct kvm_memory_slot *old,
			    const struct kvm_memory_slot *new, enum kvm_mr_change change)
{
	struct kvm_gtdp *gtdp = kvm->arch.gtdp;
	const struct kvm_memory_slot *slot = new ?: old;

	if (!gtdp || slot->as_id)
		return;

	if (change == KVM_MR_FLAGS_ONLY) {
		gtdp_post_slot(gtdp, KVM_GTDP_EVENT_SLOT_FLAGS, new);
		return;
	}
	if (change == KVM_MR_DELETE || change == KVM_MR_MOVE)
		gtdp_post_slot(gtdp, KVM_GTDP_EVENT_SLOT_REMOVED, old);
	if (change == KVM_MR_DELETE)
		return;

	if (gtdp->auto_build && tdp_mmu_enabled && gtdp_is_user_slot(new) &&
	    !(new->flags & KVM_MEM_READONLY))
		auto_build(kvm, gtdp, new);
	/* Told when it is done: nobody wants to build it a second time. */
	gtdp_post_slot(gtdp, KVM_GTDP_EVENT_SLOT_ADDED, new);
}

/* kvm.gtdp=force: a VM is built from its first slot on, with no handle. */
int kvm_gtdp_init_vm(struct kvm *kvm)
{
	struct kvm_gtdp *gtdp;

	if (gtdp_policy != GTDP_FORCE || kvm_arch_has_private_mem(kvm) ||
	    kvm->arch.vm_type != KVM_X86_DEFAULT_VM)
		return 0;

	gtdp = gtdp_alloc(kvm);
	if (!gtdp)
		return -ENOMEM;
	gtdp->forced = true;
	gtdp->auto_build = true;
	kvm->arch.gtdp = gtdp;
	return 0;
}

/*
 * The VM is about to become confidential: its memory is not ours to map.  Returns
 * false if it has a global mapping already.
 */
bool kvm_gtdp_refuse(struct kvm *kvm)
{
	bool ok;

	mutex_lock(&kvm->slots_lock);
	ok = !kvm->arch.gtdp;
	if (ok)
		kvm->arch.gtdp_refused = true;
	mutex_unlock(&kvm->slots_lock);
	return ok;
}
EXPORT_SYMBOL_GPL(kvm_gtdp_refuse);

void kvm_gtdp_destroy_vm(struct kvm *kvm)
{
	struct kvm_gtdp *gtdp = kvm->arch.gtdp;

	if (!gtdp)
		return;

	__kvm_gtdp_flush_all(kvm);

	spin_lock(&gtdp->vm_lock);
	gtdp->kvm = NULL;
	spin_unlock(&gtdp->vm_lock);

	kvm->arch.gtdp = NULL;
	gtdp_put(gtdp);
}

/* Called when a vendor module has set up KVM, and before it takes it down. */
int kvm_gtdp_init(void)
{
	static const char * const names[] = { "off", "allow", "force" };
	int r;

	r = match_string(names, ARRAY_SIZE(names), gtdp_param);
	if (r < 0) {
		pr_err("gtdp=%s: expected off, allow or force\n", gtdp_param);
		return -EINVAL;
	}
	gtdp_policy = r;

	return gtdp_policy == GTDP_OFF ? 0 : gtdp_dev_register();
}

void kvm_gtdp_exit(void)
{
	if (gtdp_policy != GTDP_OFF)
		gtdp_dev_unregister();
}
