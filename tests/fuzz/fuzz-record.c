/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Records of VMs, as a tdpd finds them that did not write them: as they are, and with an end whose checksum
 * is right, so that what stands before it is looked at as well. */

#include <errno.h>
#include <inttypes.h>

#include "fuzz.h"
#include "record.h"

static void round_trip(const Record *r) {
        _cleanup_free_ char *text = NULL, *again = NULL;
        RecordFault fault = {};
        size_t size, size_again;
        Record copy = {};

        FUZZ_CHECK(record_format(r, &text, &size) == 0);
        FUZZ_CHECK(record_parse(text, size, &copy, &fault) == 0);
        FUZZ_CHECK(record_format(&copy, &again, &size_again) == 0);
        FUZZ_CHECK(size == size_again && memcmp(text, again, size) == 0);
        record_done(&copy);
}

static void parse(const char *text, size_t size) {
        RecordFault fault = {};
        Record r = {};
        int k;

        k = record_parse(text, size, &r, &fault);
        if (k < 0) {
                FUZZ_CHECK(k == -EBADMSG && fault.word && *fault.text);
                return;
        }
        FUZZ_CHECK(vm_name_is_valid(r.name));
        round_trip(&r);
        record_done(&r);
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
