// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a global mapping has lost, and the events that tell its holder.
 *
 * The queue is bounded and is allocated with the handle, so that an event can be
 * posted with mmu_lock held, by whoever unmaps.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/poll.h>
#include <linux/uaccess.h>

#include "gtdp_internal.h"
#include "mmutrace.h"

int gtdp_events_alloc(struct kvm_gtdp *gtdp)
{
	gtdp->events = kvcalloc(KVM_GTDP_MAX_EVENTS, sizeof(*gtdp->events), GFP_KERNEL_ACCOUNT);
	return gtdp->events ? 0 : -ENOMEM;
}

static struct kvm_gtdp_event *event_at(struct kvm_gtdp *gtdp, unsigned int i)
{
	return &gtdp->events[(gtdp->event_head + i) % KVM_GTDP_MAX_EVENTS];
}

/* Make a hole part of the last one that nobody has read. */
static bool merge(struct kvm_gtdp *gtdp, const struct kvm_gtdp_event *event)
{
	struct kvm_gtdp_event *last;
	u64 end;

	if (event->type != KVM_GTDP_EVENT_HOLE || !gtdp->nr_events)
		return false;

	last = event_at(gtdp, gtdp->nr_events - 1);
	if (last->type != KVM_GTDP_EVENT_HOLE || last->reason != event->reason ||
	    event->gpa > last->gpa + last->size || last->gpa > event->gpa + event->size)
		return false;

	end = max(last->gpa + last->size, event->gpa + event->size);
	last->gpa = min(last->gpa, event->gpa);
	last->size = end - last->gpa;
	last->bytes += event->bytes;
	return true;
}

static void post(struct kvm_gtdp *gtdp, const struct kvm_gtdp_event *event)
{
	spin_lock(&gtdp->event_lock);
	if (gtdp->events && !merge(gtdp, event)) {
		if (gtdp->nr_events < KVM_GTDP_MAX_EVENTS - 1) {
			*event_at(gtdp, gtdp->nr_events++) = *event;
		} else {
			/* The last place says that something is missing. */
			if (gtdp->nr_events < KVM_GTDP_MAX_EVENTS)
				*event_at(gtdp, gtdp->nr_events++) = (struct kvm_gtdp_event) {
					.type = KVM_GTDP_EVENT_DROPPED,
				};
			atomic64_inc(&gtdp->dropped_events);
		}
	}
	spin_unlock(&gtdp->event_lock);

	wake_up_interruptible_poll(&gtdp->wait, EPOLLIN | EPOLLRDNORM);
}

void gtdp_post_slot(struct kvm_gtdp *gtdp, u32 type, const struct kvm_memory_slot *slot)
{
	struct kvm_gtdp_event event = {
		.type = type,
		.reason = gtdp_slot_flags(slot),
		.gpa = slot->base_gfn << PAGE_SHIFT,
		.size = (u64)slot->npages << PAGE_SHIFT,
	};

	if (gtdp_is_user_slot(slot))
		post(gtdp, &event);
}

/*
 * [start, end) is about to be unmapped: count what of it is built and mapped, and
 * tell.  A leaf goes as a whole, also where it reaches beyond the range.
 *
 * Called with mmu_lock held; @yield says whether it may be dropped meanwhile.
 */
void gtdp_lose(struct kvm *kvm, struct kvm_gtdp *gtdp, gfn_t start, gfn_t end,
	       unsigned int reason, enum gtdp_yield yield)
{
	struct kvm_gtdp_event event = {
		.type = KVM_GTDP_EVENT_HOLE,
		.reason = reason,
	};

	event.bytes = gtdp_mapped_pages(kvm, gtdp, &start, &end, yield) << PAGE_SHIFT;
	if (!event.bytes)
		return;

	event.gpa = start << PAGE_SHIFT;
	event.size = (end - start) << PAGE_SHIFT;
	atomic64_add(event.bytes, &gtdp->lost_bytes[reason]);
	atomic64_add(event.bytes >> PAGE_SHIFT, &kvm->stat.gtdp_lost_pages);
	trace_kvm_gtdp_hole(event.gpa, event.size, event.bytes, reason);
	post(gtdp, &event);
}

/* Take at most @max events off the queue. */
static int take(struct kvm_gtdp *gtdp, struct kvm_gtdp_event *events, int max)
{
	int n = 0;

	spin_lock(&gtdp->event_lock);
	while (n < max && gtdp->nr_events) {
		events[n++] = *event_at(gtdp, 0);
		gtdp->event_head = (gtdp->event_head + 1) % KVM_GTDP_MAX_EVENTS;
		gtdp->nr_events--;
	}
	spin_unlock(&gtdp->event_lock);
	return n;
}

bool gtdp_has_events(struct kvm_gtdp *gtdp)
{
	return READ_ONCE(gtdp->nr_events);
}

static bool readable(struct kvm_gtdp *gtdp)
{
	return gtdp_has_events(gtdp) || READ_ONCE(gtdp->gone);
}

ssize_t gtdp_read_events(struct kvm_gtdp *gtdp, char __user *buf, size_t count, bool nonblock)
{
	struct kvm_gtdp_event events[8];
	size_t done = 0;
	int n, r;

	if (count < sizeof(*events))
		return -EINVAL;

again:
	while (!gtdp_has_events(gtdp)) {
		if (READ_ONCE(gtdp->gone))
			return 0;
		if (nonblock)
			return -EAGAIN;
		r = wait_event_interruptible(gtdp->wait, readable(gtdp));
		if (r)
			return r;
	}

	while (count - done >= sizeof(*events)) {
		n = take(gtdp, events, min(ARRAY_SIZE(events), (count - done) / sizeof(*events)));
		if (!n)
			break;
		/* What cannot be delivered is lost, as it is for a pipe. */
		if (copy_to_user(buf + done, events, n * sizeof(*events)))
			return done ?: -EFAULT;
		done += n * sizeof(*events);
	}
	/* Somebody else was faster? */
	if (!done)
		goto again;
	return done;
}
