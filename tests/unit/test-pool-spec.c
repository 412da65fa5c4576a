/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>

#include "pool-spec.h"

static void assert_spec(const PoolSpecs *p, unsigned node, uint64_t page_size, uint64_t pages) {
        const PoolSpec *s = pool_specs_find(p, node, page_size);

        assert_non_null(s);
        assert_int_equal(s->pages, pages);
}

static void test_both_notations(void **state) {
        char why[POOL_SPEC_WHY_MAX];
        PoolSpecs p = {};

        assert_int_equal(pool_specs_parse(&p, "1G:16@0,2M:4096@1", why), 0);
        assert_int_equal(p.n, 2);
        assert_spec(&p, 0, GIB(1), 16);
        assert_spec(&p, 1, MIB(2), 4096);

        /* Case 23: Nova's bare sizes are KiB.  Lines add up. */
        assert_int_equal(pool_specs_parse(&p, "node:0,size:2048,count:512  count:3,size:1GB,node:8", why),
                         0);
        assert_spec(&p, 0, MIB(2), 512);
        assert_spec(&p, 8, GIB(1), 3);
        assert_int_equal(pool_specs_parse(&p, "node:2,size:2M,count:4096\t16G:1@8 64K:0@1023", why), 0);
        assert_spec(&p, 2, MIB(2), 4096);
        assert_spec(&p, 8, GIB(16), 1);
        assert_spec(&p, 1023, KIB(64), 0);
        assert_int_equal(pool_specs_parse(&p, "", why), 0);
        assert_int_equal(p.n, 7);
        pool_specs_done(&p);
}

static void test_refused(void **state) {
        static const struct {
                const char *text, *why;
        } table[] = {
                { "2M:512", "write it as" },
                { "2M:512@", "write it as" },
                { "2M:@0", "write it as" },
                { "2M:-1@0", "write it as" },
                { "2M: 1@0", "write it as" },
                { "2:512@0", "write it as" },
                { "2Q:512@0", "write it as" },
                { "2M:512@0x", "write it as" },
                { "2M:512@0,", "comma" },
                { ",2M:512@0", "comma" },
                { "2M:99999999999999999999@0", "write it as" },
                { "2M:9223372036854775807@0", "overflow" },
                { "3M:1@0", "powers of two" },
                { "4K:1@0", "powers of two" },
                { "0M:1@0", "powers of two" },
                { "2M:1@1024", "no node above 1023" },
                { "2M:1@4294967296", "no node above" },
                { "2M:1@0,2M:2@0", "have a number already" },
                { "1M:1@7", "have a number already" },
                { "node:0,size:2M", "write it as" },
                { "node:0,size:2M,count:1,count:2", "write it as" },
                { "node:0;size:2M;count:1", "write it as" },
                { "node:0,size:2M,count:1,", "comma" },
                { "size:,node:0,count:1", "write it as" },
                { "node:0,size:2M,count:1,page:4", "write it as" },
                { "infinity", "write it as" },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                char why[POOL_SPEC_WHY_MAX] = "";
                PoolSpecs p = {};

                assert_int_equal(pool_specs_set(&p, 7, MIB(1), 5), 0);
                assert_int_equal(pool_specs_parse(&p, table[i].text, why), -EINVAL);
                if (!strstr(why, table[i].why))
                        fail_msg("\"%s\" is refused with \"%s\"", table[i].text, why);
                /* Nothing of it stays. */
                assert_int_equal(p.n, 1);
                assert_spec(&p, 7, MIB(1), 5);
                pool_specs_done(&p);
        }
}

static void test_set(void **state) {
        PoolSpecs p = {}, copy;

        assert_int_equal(pool_specs_set(&p, 0, MIB(2), 5), 0);
        assert_int_equal(pool_specs_copy(&p, &copy), 0);
        assert_int_equal(pool_specs_set(&p, 0, MIB(2), 7), 0);
        assert_int_equal(p.n, 1);
        assert_spec(&p, 0, MIB(2), 7);
        assert_spec(&copy, 0, MIB(2), 5);
        assert_null(pool_specs_find(&p, 1, MIB(2)));
        assert_null(pool_specs_find(&p, 0, MIB(4)));
        pool_specs_done(&p);
        pool_specs_done(&copy);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_both_notations),
                cmocka_unit_test(test_refused),
                cmocka_unit_test(test_set),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
