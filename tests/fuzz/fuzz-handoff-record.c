/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Records of handoffs, as a tdpd finds them that did not write them: as they are, and with an end whose
 * checksum is right, so that what stands before it is looked at as well. */

#include <errno.h>
#include <inttypes.h>

#include "fuzz.h"
#include "handoff-record.h"

static void round_trip(const HandoffRecord *r) {
        _cleanup_free_ char *text = NULL, *again = NULL;
        HandoffRecord copy = {};
        RecordFault fault = {};
        size_t size, size_again;

        FUZZ_CHECK(handoff_record_format(r, &text, &size) == 0);
        FUZZ_CHECK(handoff_record_parse(text, size, &copy, &fault) == 0);
        FUZZ_CHECK(handoff_record_format(&copy, &again, &size_again) == 0);
        FUZZ_CHECK(size == size_again && memcmp(text, again, size) == 0);
}

static void parse(const char *text, size_t size) {
        HandoffRecord r = {};
        RecordFault fault = {};
        int k;

        k = handoff_record_parse(text, size, &r, &fault);
        if (k < 0) {
                FUZZ_CHECK(k == -EBADMSG && fault.word && *fault.text);
                return;
        }
        FUZZ_CHECK(handoff_state_side(r.state) == r.side && handoff_id_is_set(&r.id) && r.lease != 0);
        FUZZ_CHECK(vm_name_is_valid(r.vm) && vm_name_is_valid(r.name) && r.offer.n_regions > 0);
        round_trip(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = fuzz_string(data, size), *ended = NULL;
        int n;

        parse(text, size);
        n = asprintf(&ended, "%send %016" PRIx64 "\n", text, record_checksum(text, strlen(text)));
        FUZZ_CHECK(n >= 0);
        parse(ended, (size_t) n);
        return 0;
}
