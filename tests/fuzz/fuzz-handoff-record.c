/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Records of handoffs. */

#include "fuzz-record.h"
#include "handoff-record.h"

FUZZ_RECORD(HandoffRecord, handoff_record);

static void check(const void *p) {
        const HandoffRecord *r = p;

        FUZZ_CHECK(handoff_state_side(r->state) == r->side && handoff_id_is_set(&r->id) && r->lease != 0);
        FUZZ_CHECK(vm_name_is_valid(r->vm) && vm_name_is_valid(r->name) && r->offer.n_regions > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        return fuzz_record(&(FuzzRecord){ record_size, parse, format, NULL, check }, data, size);
}
