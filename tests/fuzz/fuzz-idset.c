/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sets of nodes and CPUs, from the bus and from sysfs. */

#include "fuzz.h"
#include "idset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *s = fuzz_string(data, size), *formatted = NULL;
        IdSet set, again;

        if (idset_parse(s, &set) < 0)
                return 0;
        FUZZ_CHECK(idset_count(&set) <= IDSET_MAX);
        FUZZ_CHECK(idset_format(&set, &formatted) == 0);
        FUZZ_CHECK(idset_parse(formatted, &again) == 0);
        FUZZ_CHECK(memcmp(&set, &again, sizeof(set)) == 0);
        return 0;
}
