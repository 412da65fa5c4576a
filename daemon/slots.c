/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "slots.h"

#include "handle.h"

int slots_measure(int handle, uint64_t *ret_bytes, uint64_t *ret_page_size) {
        _cleanup_free_ struct kvm_gtdp_slot *slots = NULL;
        uint64_t bytes = 0, page_size = 0;
        size_t n;
        int r;

        r = handle_get_slots(handle, &slots, &n);
        if (r < 0)
                return r;
        for (size_t i = 0; i < n; i++)
                if (!(slots[i].flags & KVM_GTDP_SLOT_READONLY)) {
                        bytes += slots[i].size;
                        page_size = MAX_OF(page_size, slots[i].page_size);
                }

        *ret_bytes = bytes;
        *ret_page_size = page_size;
        return 0;
}
