/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Records of one kind, as a tdpd finds them that did not write them: as they are, and with an end whose
 * checksum is right, so that what stands before it is looked at as well.
 */

#include <errno.h>
#include <inttypes.h>

#include "fuzz.h"
#include "record-text.h"

typedef struct FuzzRecord {
        size_t size;
        int (*parse)(const char *text, size_t size, void *ret, RecordFault *fault);
        int (*format)(const void *r, char **ret, size_t *ret_size);
        void (*done)(void *r); /* or NULL */
        void (*check)(const void *r);
} FuzzRecord;

/* A target's own functions, with the types that FuzzRecord has. */
#define FUZZ_RECORD(type, prefix)                                                                           \
        static int parse(const char *text, size_t size, void *ret, RecordFault *fault) {                    \
                return prefix##_parse(text, size, ret, fault);                                              \
        }                                                                                                   \
        static int format(const void *r, char **ret, size_t *ret_size) {                                    \
                return prefix##_format(r, ret, ret_size);                                                   \
        }                                                                                                   \
        static const size_t record_size = sizeof(type)

/* What is taken is written as it was read. */
static inline void fuzz_record_parse(const FuzzRecord *k, const char *text, size_t size) {
        _cleanup_free_ char *once = NULL, *again = NULL;
        _cleanup_free_ void *r = calloc(1, k->size), *copy = calloc(1, k->size);
        size_t size_once, size_again;
        RecordFault fault = {};
        int n;

        FUZZ_CHECK(r && copy);
        n = k->parse(text, size, r, &fault);
        if (n < 0) {
                FUZZ_CHECK(n == -EBADMSG && fault.word && *fault.text);
                return;
        }
        k->check(r);
        FUZZ_CHECK(k->format(r, &once, &size_once) == 0);
        FUZZ_CHECK(k->parse(once, size_once, copy, &fault) == 0);
        FUZZ_CHECK(k->format(copy, &again, &size_again) == 0);
        FUZZ_CHECK(size_once == size_again && memcmp(once, again, size_once) == 0);
        if (k->done) {
                k->done(r);
                k->done(copy);
        }
}

static inline int fuzz_record(const FuzzRecord *k, const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = fuzz_string(data, size), *ended = NULL;
        int n;

        fuzz_record_parse(k, text, size);
        n = asprintf(&ended, "%send %016" PRIx64 "\n", text, record_checksum(text, strlen(text)));
        FUZZ_CHECK(n >= 0);
        fuzz_record_parse(k, ended, (size_t) n);
        return 0;
}
