/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Records of VMs. */

#include "fuzz-record.h"
#include "record.h"

FUZZ_RECORD(Record, record);

static void check(const void *p) {
        const Record *r = p;

        FUZZ_CHECK(vm_name_is_valid(r->name));
}

static void done(void *r) {
        record_done(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        return fuzz_record(&(FuzzRecord){ record_size, parse, format, done, check }, data, size);
}
