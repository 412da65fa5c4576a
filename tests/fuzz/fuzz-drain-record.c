/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Records of memory that drains. */

#include "drain-record.h"
#include "fuzz-record.h"

FUZZ_RECORD(DrainRecord, drain_record);

static void check(const void *p) {
        const DrainRecord *r = p;
        uint64_t bytes = 0;

        FUZZ_CHECK(vm_name_is_valid(r->name) && r->lease != 0 && r->n_files > 0 &&
                   r->n_files <= DRAIN_FILES_MAX);
        for (size_t i = 0; i < r->n_files; i++) {
                FUZZ_CHECK(r->files[i].bytes > 0 && r->files[i].bytes % r->page_size == 0);
                FUZZ_CHECK(!r->files[i].gone && r->files[i].watch < 0);
                FUZZ_CHECK(!__builtin_add_overflow(bytes, r->files[i].bytes, &bytes));
        }
}

static void done(void *r) {
        drain_record_done(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        return fuzz_record(&(FuzzRecord){ record_size, parse, format, done, check }, data, size);
}
