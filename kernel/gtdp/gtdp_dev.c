// SPDX-License-Identifier: GPL-2.0-only
/*
 * Global TDP mappings: /dev/kvm-gtdp, and the handle that it gives out for a VM.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/hugetlb.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "gtdp_internal.h"
#include "mmutrace.h"
#include "cpuid.h"
#include "x86.h"

static_assert(sizeof(struct kvm_gtdp_info) == 56);
static_assert(sizeof(struct kvm_gtdp_attach) == 32);
static_assert(sizeof(struct kvm_gtdp_slot) == 48);
static_assert(sizeof(struct kvm_gtdp_slots) == 32);
static_assert(sizeof(struct kvm_gtdp_range) == 40);
static_assert(sizeof(struct kvm_gtdp_stats) == 752);
static_assert(sizeof(struct kvm_gtdp_event) == 32);

/* The handle's VM, with a reference, or NULL if it has gone. */
static struct kvm *gtdp_get_vm(struct kvm_gtdp *gtdp)
{
	struct kvm *kvm;

	spin_lock(&gtdp->vm_lock);
	kvm = gtdp->kvm;
	if (kvm && !kvm_get_kvm_safe(kvm))
		kvm = NULL;
	spin_unlock(&gtdp->vm_lock);
	return kvm;
}

/* How much RELEASE does before it looks up. */
#define RELEASE_GFNS	KVM_PAGES_PER_HPAGE(PG_LEVEL_1G)

static int range_check(const struct kvm_gtdp_range *range, u32 flags, bool level)
{
	u64 end;

	if (range->flags & ~flags || memchr_inv(range->reserved, 0, sizeof(range->reserved)))
		return -EINVAL;
	if (!PAGE_ALIGNED(range->gpa) || !PAGE_ALIGNED(range->size) || !range->size)
		return -EINVAL;
	if (check_add_overflow(range->gpa, range->size, &end) ||
	    (end - 1) >> PAGE_SHIFT > kvm_mmu_max_gfn())
		return -EINVAL;
	if (range->max_level > PG_LEVEL_1G || (!level && range->max_level))
		return -EINVAL;
	return 0;
}

static int gtdp_ioctl_build(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_gtdp_range *range)
{
	int r;

	r = range_check(range, KVM_GTDP_BUILD_NOPIN | KVM_GTDP_BUILD_PRESENT, true);
	if (r)
		return r;
	if (!tdp_mmu_enabled)
		return -EOPNOTSUPP;
	return gtdp_build(kvm, gtdp, range, true);
}

static int gtdp_ioctl_release(struct kvm *kvm, struct kvm_gtdp *gtdp,
			      struct kvm_gtdp_range *range)
{
	gfn_t start, end;
	int r, idx;

	r = range_check(range, 0, false);
	if (r)
		return r;

	while (range->size) {
		if (fatal_signal_pending(current))
			return -EINTR;

		start = range->gpa >> PAGE_SHIFT;
		end = min(start + (range->size >> PAGE_SHIFT), ALIGN(start + 1, RELEASE_GFNS));

		r = gtdp_built_remove(gtdp, start, end);
		if (r)
			return r;
		idx = srcu_read_lock(&kvm->srcu);
		gtdp_pin_release(kvm, gtdp, start, end);
		srcu_read_unlock(&kvm->srcu, idx);

		range->gpa += (end - start) << PAGE_SHIFT;
		range->size -= (end - start) << PAGE_SHIFT;
	}
	return 0;
}

static int gtdp_ioctl_split(struct kvm *kvm, struct kvm_gtdp *gtdp, struct kvm_gtdp_range *range)
{
	int r;

	r = range_check(range, 0, true);
	if (r)
		return r;
	if (range->max_level > PG_LEVEL_2M)
		return -EINVAL;
	return tdp_mmu_enabled ? gtdp_split(kvm, gtdp, range, true) : -EOPNOTSUPP;
}

static int gtdp_ioctl_collapse(struct kvm *kvm, struct kvm_gtdp *gtdp,
			       struct kvm_gtdp_range *range)
{
	int r;

	r = range_check(range, 0, true);
	if (r)
		return r;
	return tdp_mmu_enabled ? gtdp_collapse(kvm, gtdp, range, true) : -EOPNOTSUPP;
}

static long gtdp_handle_range(struct kvm *kvm, struct kvm_gtdp *gtdp, void __user *arg,
			      const char *op,
			      int (*fn)(struct kvm *kvm, struct kvm_gtdp *gtdp,
					struct kvm_gtdp_range *range))
{
	struct kvm_gtdp_range range;
	u64 gpa;
	int r;

	if (copy_from_user(&range, arg, sizeof(range)))
		return -EFAULT;

	gpa = range.gpa;
	r = fn(kvm, gtdp, &range);
	trace_kvm_gtdp_range(op, gpa, range.gpa, r);

	if (range.gpa != gpa && copy_to_user(arg, &range, sizeof(range)))
		return -EFAULT;
	return r;
}

static u64 slot_page_size(struct mm_struct *mm, unsigned long hva)
{
	struct vm_area_struct *vma;
	u64 size = PAGE_SIZE;

	mmap_read_lock(mm);
	vma = vma_lookup(mm, hva);
	if (vma)
		size = vma_kernel_pagesize(vma);
	mmap_read_unlock(mm);
	return size;
}

/* Returns the number of slots, filling in at most @room. */
static u32 collect_slots(struct kvm *kvm, struct kvm_gtdp_slot *slot, u32 room)
{
	struct kvm_memslots *slots;
	struct kvm_memslot_iter iter;
	u32 n = 0;
	int idx;

	idx = srcu_read_lock(&kvm->srcu);
	slots = kvm_memslots(kvm);
	kvm_for_each_memslot_in_gfn_range(&iter, slots, 0, kvm_mmu_max_gfn() + 1) {
		struct kvm_memory_slot *s = iter.slot;

		if (!gtdp_is_user_slot(s) || (s->flags & KVM_MEMSLOT_INVALID))
			continue;
		if (n++ >= room)
			continue;
		*slot++ = (struct kvm_gtdp_slot) {
			.gpa = s->base_gfn << PAGE_SHIFT,
			.size = (u64)s->npages << PAGE_SHIFT,
			.hva = s->userspace_addr,
			.flags = gtdp_slot_flags(s),
			.id = s->id,
			.page_size = slot_page_size(kvm->mm, s->userspace_addr),
		};
	}
	srcu_read_unlock(&kvm->srcu, idx);
	return n;
}

static long gtdp_ioctl_get_slots(struct kvm *kvm, void __user *arg)
{
	struct kvm_gtdp_slot *slot = NULL;
	struct kvm_gtdp_slots slots;
	u32 room, n;
	long r = 0;

	if (copy_from_user(&slots, arg, sizeof(slots)))
		return -EFAULT;
	if (slots.reserved32 || memchr_inv(slots.reserved, 0, sizeof(slots.reserved)))
		return -EINVAL;

	if (!mmget_not_zero(kvm->mm))
		return -ESRCH;

	room = min_t(u32, slots.count, KVM_USER_MEM_SLOTS);
	if (room) {
		slot = kvcalloc(room, sizeof(*slot), GFP_KERNEL_ACCOUNT);
		if (!slot) {
			mmput_async(kvm->mm);
			return -ENOMEM;
		}
	}

	n = collect_slots(kvm, slot, room);
	mmput_async(kvm->mm);

	if (n > room)
		r = -E2BIG;
	else if (n && copy_to_user(u64_to_user_ptr(slots.slots), slot, n * sizeof(*slot)))
		r = -EFAULT;

	slots.count = n;
	if (r != -EFAULT && copy_to_user(arg, &slots, sizeof(slots)))
		r = -EFAULT;
	kvfree(slot);
	return r;
}

static long gtdp_ioctl_stats(struct kvm *kvm, struct kvm_gtdp *gtdp, void __user *arg)
{
	struct kvm_gtdp_stats *stats;
	long r = 0;

	stats = kzalloc(sizeof(*stats), GFP_KERNEL_ACCOUNT);
	if (!stats)
		return -ENOMEM;

	gtdp_stats(kvm, gtdp, stats);
	if (copy_to_user(arg, stats, sizeof(*stats)))
		r = -EFAULT;
	kfree(stats);
	return r;
}

static long gtdp_handle_ioctl(struct file *file, unsigned int cmd, unsigned long argp)
{
	struct kvm_gtdp *gtdp = file->private_data;
	void __user *arg = (void __user *)argp;
	struct kvm *kvm;
	long r;

	kvm = gtdp_get_vm(gtdp);
	if (!kvm)
		return -ESRCH;
	if (READ_ONCE(gtdp->gone)) {
		r = -ESRCH;
		goto out;
	}
	if (kvm->vm_dead) {
		r = -EIO;
		goto out;
	}

	switch (cmd) {
	case KVM_GTDP_GET_SLOTS:
		r = gtdp_ioctl_get_slots(kvm, arg);
		break;
	case KVM_GTDP_BUILD:
		r = gtdp_handle_range(kvm, gtdp, arg, "build", gtdp_ioctl_build);
		break;
	case KVM_GTDP_RELEASE:
		r = gtdp_handle_range(kvm, gtdp, arg, "release", gtdp_ioctl_release);
		break;
	case KVM_GTDP_SPLIT:
		r = gtdp_handle_range(kvm, gtdp, arg, "split", gtdp_ioctl_split);
		break;
	case KVM_GTDP_COLLAPSE:
		r = gtdp_handle_range(kvm, gtdp, arg, "collapse", gtdp_ioctl_collapse);
		break;
	case KVM_GTDP_STATS:
		r = gtdp_ioctl_stats(kvm, gtdp, arg);
		break;
	default:
		r = -ENOTTY;
	}
out:
	kvm_put_kvm(kvm);
	return r;
}

static __poll_t gtdp_handle_poll(struct file *file, poll_table *wait)
{
	struct kvm_gtdp *gtdp = file->private_data;

	poll_wait(file, &gtdp->wait, wait);
	return (gtdp_has_events(gtdp) ? EPOLLIN | EPOLLRDNORM : 0) |
	       (READ_ONCE(gtdp->gone) ? EPOLLHUP | EPOLLERR : 0);
}

static ssize_t gtdp_handle_read(struct file *file, char __user *buf, size_t count, loff_t *ppos)
{
	return gtdp_read_events(file->private_data, buf, count, file->f_flags & O_NONBLOCK);
}

/* Take the mapping off the VM: the pins go, the leaves stay. */
static void gtdp_detach(struct kvm *kvm, struct kvm_gtdp *gtdp)
{
	mutex_lock(&kvm->slots_lock);
	gtdp->has_handle = false;
	if (!gtdp->forced) {
		/* Nobody builds any more. */
		gtdp_pin_release(kvm, gtdp, 0, kvm_mmu_max_gfn() + 1);
		write_lock(&kvm->mmu_lock);
		WRITE_ONCE(kvm->arch.gtdp, NULL);
		write_unlock(&kvm->mmu_lock);
	}
	mutex_unlock(&kvm->slots_lock);

	if (!gtdp->forced) {
		synchronize_srcu(&kvm->srcu);
		gtdp_pin_drop_all(gtdp, kvm);
		spin_lock(&gtdp->vm_lock);
		gtdp->kvm = NULL;
		spin_unlock(&gtdp->vm_lock);
		gtdp_put(gtdp);
	}
}

static int gtdp_handle_release(struct inode *inode, struct file *file)
{
	struct kvm_gtdp *gtdp = file->private_data;
	struct module *vendor = gtdp->vendor;
	struct kvm *kvm;

	kvm = gtdp_get_vm(gtdp);
	if (kvm) {
		gtdp_detach(kvm, gtdp);
		kvm_put_kvm(kvm);
	}
	gtdp_put(gtdp);
	module_put(vendor);
	return 0;
}

static const struct file_operations gtdp_handle_fops = {
	.owner = THIS_MODULE,
	.release = gtdp_handle_release,
	.unlocked_ioctl = gtdp_handle_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.poll = gtdp_handle_poll,
	.read = gtdp_handle_read,
	.llseek = noop_llseek,
};

/* Give the VM a global mapping, or take over the one that force made. */
static struct kvm_gtdp *gtdp_claim(struct kvm *kvm, u32 flags)
{
	struct kvm_gtdp *gtdp, *new;

	new = gtdp_alloc(kvm);
	if (!new)
		return ERR_PTR(-ENOMEM);
	if (gtdp_events_alloc(new)) {
		gtdp_put(new);
		return ERR_PTR(-ENOMEM);
	}

	mutex_lock(&kvm->slots_lock);
	gtdp = kvm->arch.gtdp;
	if (kvm->arch.gtdp_refused || (gtdp && gtdp->has_handle)) {
		mutex_unlock(&kvm->slots_lock);
		gtdp_put(new);
		return ERR_PTR(kvm->arch.gtdp_refused ? -EOPNOTSUPP : -EBUSY);
	}
	if (!gtdp) {
		gtdp = new;
		new = NULL;
		gtdp->auto_build = flags & KVM_GTDP_ATTACH_AUTO;
		write_lock(&kvm->mmu_lock);
		WRITE_ONCE(kvm->arch.gtdp, gtdp);
		write_unlock(&kvm->mmu_lock);
	}
	gtdp->has_handle = true;
	kref_get(&gtdp->kref);
	if (new) {
		gtdp->pin_limit = new->pin_limit;
		/* What came before this handle is not its business. */
		spin_lock(&gtdp->event_lock);
		swap(gtdp->events, new->events);
		gtdp->nr_events = 0;
		spin_unlock(&gtdp->event_lock);
	}
	mutex_unlock(&kvm->slots_lock);

	if (new)
		gtdp_put(new);
	return gtdp;
}

static int gtdp_attach_file(struct file *vm_file, u32 flags)
{
	struct module *vendor = vm_file->f_op->owner;
	struct kvm *kvm = vm_file->private_data;
	struct kvm_gtdp *gtdp;
	struct file *file;
	int fd;

	if (kvm_arch_has_private_mem(kvm) || kvm->arch.vm_type != KVM_X86_DEFAULT_VM)
		return -EOPNOTSUPP;

	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;

	/* The file may outlive the VM; its owner must not be unloaded before. */
	if (!mmget_not_zero(kvm->mm)) {
		put_unused_fd(fd);
		return -ESRCH;
	}
	gtdp = gtdp_claim(kvm, flags);
	mmput_async(kvm->mm);
	if (IS_ERR(gtdp)) {
		put_unused_fd(fd);
		return PTR_ERR(gtdp);
	}

	__module_get(vendor);
	gtdp->vendor = vendor;
	file = anon_inode_getfile("kvm-gtdp", &gtdp_handle_fops, gtdp, O_RDWR);
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		gtdp_detach(kvm, gtdp);
		gtdp_put(gtdp);
		module_put(vendor);
		return PTR_ERR(file);
	}

	fd_install(fd, file);
	return fd;
}

static long gtdp_ioctl_attach(void __user *arg)
{
	struct kvm_gtdp_attach attach;
	struct file *file;
	long r;

	if (copy_from_user(&attach, arg, sizeof(attach)))
		return -EFAULT;
	if (attach.flags & ~KVM_GTDP_ATTACH_AUTO ||
	    memchr_inv(attach.reserved, 0, sizeof(attach.reserved)))
		return -EINVAL;

	file = fget(attach.vm_fd);
	if (!file)
		return -EBADF;
	r = file_is_kvm(file) ? gtdp_attach_file(file, attach.flags) : -EINVAL;
	fput(file);
	return r;
}

static long gtdp_ioctl_get_info(void __user *arg)
{
	struct kvm_gtdp_info info = {
		.abi_version = KVM_GTDP_ABI_VERSION,
		.mode = KVM_GTDP_MODE_SHADOW,
		.features = KVM_GTDP_FEAT_EVENTS,
		.max_leaf_level = PG_LEVEL_4K,
	};

	if (tdp_mmu_enabled) {
		info.mode = kvm_x86_ops.get_mt_mask ? KVM_GTDP_MODE_EPT : KVM_GTDP_MODE_NPT;
		info.root_level = kvm_mmu_get_max_tdp_level();
		info.max_leaf_level = kvm_mmu_get_max_leaf_level();
		info.features |= KVM_GTDP_FEAT_SPLIT;
		if (kvm_ad_enabled())
			info.features |= KVM_GTDP_FEAT_AD_BITS;
		if (READ_ONCE(nx_huge_pages))
			info.features |= KVM_GTDP_FEAT_NX_HUGE;
	}
	if (kvm_x86_ops.cpu_dirty_log_size)
		info.features |= KVM_GTDP_FEAT_PML;
	if (kvm_cpu_cap_has(X86_FEATURE_VMX) || kvm_cpu_cap_has(X86_FEATURE_SVM))
		info.features |= KVM_GTDP_FEAT_NESTED;
	if (enable_apicv)
		info.features |= KVM_GTDP_FEAT_APICV;
	/* Nested VMX virtualises it for its guests too, nested SVM never does. */
	if (enable_apicv && kvm_cpu_cap_has(X86_FEATURE_VMX))
		info.features |= KVM_GTDP_FEAT_NESTED_APICV;
	if (gtdp_policy == GTDP_FORCE)
		info.features |= KVM_GTDP_FEAT_FORCE;

	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

static long gtdp_dev_ioctl(struct file *file, unsigned int cmd, unsigned long argp)
{
	void __user *arg = (void __user *)argp;

	switch (cmd) {
	case KVM_GTDP_GET_INFO:
		return gtdp_ioctl_get_info(arg);
	case KVM_GTDP_ATTACH:
		return gtdp_ioctl_attach(arg);
	default:
		return -ENOTTY;
	}
}

static const struct file_operations gtdp_dev_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = gtdp_dev_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = noop_llseek,
};

static struct miscdevice gtdp_dev = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "kvm-gtdp",
	.fops = &gtdp_dev_fops,
	.mode = 0600,
};

int gtdp_dev_register(void)
{
	return misc_register(&gtdp_dev);
}

void gtdp_dev_unregister(void)
{
	misc_deregister(&gtdp_dev);
}
