/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sizes and numbers on tdpctl's command line. */

#include "cleanup.h"
#include "fuzz.h"
#include "size.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = fuzz_string(data, size);
        char *rest = text, buf[SIZE_TEXT_MAX];

        for (const char *s; (s = fuzz_line(&rest));) {
                uint64_t n = 0, again;

                if (uint_parse(s, 1000, &n) == 0)
                        FUZZ_CHECK(n <= 1000);
                if (size_parse(s, &n) < 0)
                        continue;
                (void) duration_format(n, buf);
                (void) size_format(n, buf);
                FUZZ_CHECK(memchr(buf, '\0', sizeof(buf)));
                /* What is not rounded can be read again. */
                if (!strchr(buf, '.'))
                        FUZZ_CHECK(size_parse(buf, &again) == 0 && again == n);
        }
        return 0;
}
