/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "slots.h"

#include "handle.h"

void slots_done(Slots *s) {
        spanset_done(&s->all);
        spanset_done(&s->logging);
}

int slots_read(int handle, Slots *ret) {
        _cleanup_free_ struct kvm_gtdp_slot *slots = NULL;
        _cleanup_(slots_done) Slots s = {};
        size_t n;
        int r;

        r = handle_get_slots(handle, &slots, &n);
        for (size_t i = 0; r >= 0 && i < n; i++) {
                Span span = { .gpa = slots[i].gpa, .size = slots[i].size };

                if (slots[i].flags & KVM_GTDP_SLOT_READONLY)
                        continue;
                s.bytes += span.size;
                s.page_size = MAX_OF(s.page_size, slots[i].page_size);
                r = spanset_add(&s.all, span);
                if (r >= 0 && (slots[i].flags & KVM_GTDP_SLOT_DIRTY_LOG))
                        r = spanset_add(&s.logging, span);
        }
        if (r < 0)
                return r;

        *ret = s;
        s = (Slots){};
        return 0;
}

int slots_measure(int handle, uint64_t *ret_bytes, uint64_t *ret_page_size) {
        _cleanup_(slots_done) Slots s = {};
        int r = slots_read(handle, &s);

        if (r < 0)
                return r;
        *ret_bytes = s.bytes;
        *ret_page_size = s.page_size;
        return 0;
}
