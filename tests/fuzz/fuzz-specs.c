/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lines, each of which is tried as a list of pools, as one of warm slabs, and as the name of a stored
 * descriptor. */

#include <errno.h>

#include "fdname.h"
#include "fuzz.h"
#include "pool-spec.h"
#include "warm-spec.h"

static void try_pools(const char *s) {
        char why[POOL_SPEC_WHY_MAX] = "";
        PoolSpecs specs = {};
        int r;

        r = pool_specs_parse(&specs, s, why);
        if (r < 0)
                FUZZ_CHECK(r != -EINVAL || (*why && memchr(why, '\0', sizeof(why)) && specs.n == 0));
        for (size_t i = 0; r >= 0 && i < specs.n; i++) {
                const PoolSpec *p = &specs.specs[i];

                FUZZ_CHECK(p->page_size > 0);
                FUZZ_CHECK(pool_specs_find(&specs, p->node, p->page_size) == p); /* each pool once */
        }
        pool_specs_done(&specs);
}

static void try_slabs(const char *s) {
        WarmSpecs specs = {}, again;

        if (warm_specs_add(&specs, s) < 0) {
                FUZZ_CHECK(specs.n == 0);
                return;
        }
        FUZZ_CHECK(specs.n <= WARM_SPECS_MAX);
        for (size_t i = 0; i < specs.n; i++) {
                char buf[WARM_SPEC_TEXT_MAX];

                again = (WarmSpecs){};
                FUZZ_CHECK(warm_specs_add(&again, warm_spec_format(&specs.specs[i], buf)) >= 0);
                FUZZ_CHECK(again.n == 1 && warm_spec_equal(&again.specs[0], &specs.specs[i]) &&
                           again.specs[0].count == specs.specs[i].count);
        }
}

static void try_fd_name(const char *s) {
        char buf[FD_NAME_MAX];
        FdName name;

        if (fdname_parse(s, &name) < 0)
                return;
        fdname_format(name, buf);
        FUZZ_CHECK(streq(buf, s));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = fuzz_string(data, size);
        char *rest = text;

        for (const char *s; (s = fuzz_line(&rest));) {
                try_pools(s);
                try_slabs(s);
                try_fd_name(s);
        }
        return 0;
}
