/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "psi.h"
#include "warm-pick.h"
#include "warm-spec.h"

static int parse(const char *text, WarmSpecs *ret) {
        *ret = (WarmSpecs){};
        return warm_specs_add(ret, text);
}

static void test_parse(void **state) {
        WarmSpecs s;
        char text[WARM_SPEC_TEXT_MAX];

        assert_int_equal(parse("64G*2 node=0 page=1G", &s), 0);
        assert_int_equal(s.n, 1);
        assert_int_equal(s.specs[0].bytes, GIB(64));
        assert_int_equal(s.specs[0].count, 2);
        assert_true(s.specs[0].has_node);
        assert_int_equal(s.specs[0].node, 0);
        assert_int_equal(s.specs[0].page_size, GIB(1));
        assert_string_equal(warm_spec_format(&s.specs[0], text), "64G*2 node=0 page=1G");

        assert_int_equal(parse("  4G , 512M*8  page=2M node=3,2097152 page=4K", &s), 0);
        assert_int_equal(s.n, 3);
        assert_string_equal(warm_spec_format(&s.specs[0], text), "4G*1");
        assert_string_equal(warm_spec_format(&s.specs[1], text), "512M*8 node=3 page=2M");
        assert_string_equal(warm_spec_format(&s.specs[2], text), "2M*1 page=4K");

        /* The same flavour twice is that many of it. */
        assert_int_equal(parse("1G page=2M, 1G*2 page=2M, 1G node=0 page=2M", &s), 0);
        assert_int_equal(s.n, 2);
        assert_int_equal(s.specs[0].count, 3);

        /* More lines add up, and one that is refused changes nothing. */
        assert_int_equal(warm_specs_add(&s, "1G*4 page=2M,2G"), 0);
        assert_int_equal(s.n, 3);
        assert_int_equal(s.specs[0].count, 7);
        assert_int_equal(warm_specs_add(&s, "3G,x"), -EINVAL);
        assert_int_equal(s.n, 3);

        assert_int_equal(parse("", &s), 0);
        assert_int_equal(s.n, 0);
        assert_int_equal(parse(" \t", &s), 0);
        assert_int_equal(s.n, 0);
}

static void test_parse_refuses(void **state) {
        static const struct {
                const char *text;
                int error;
        } bad[] = {
                { "x", -EINVAL },
                { "64G*", -EINVAL },
                { "64G*0", -ERANGE },
                { "64G*1025", -ERANGE },
                { "64G*99999999999999999999", -ERANGE },
                { "1G*1000 page=2M, 1G*1000 page=2M", -ERANGE },
                { "0", -ERANGE },
                { "-1G", -EINVAL },
                { "64G2", -EINVAL },
                { "64Gnode=0", -EINVAL },
                { "64G node=", -EINVAL },
                { "64G node=1024", -ERANGE },
                { "64G node=0 node=1", -EINVAL },
                { "64G page=2M page=2M", -EINVAL },
                { "64G page=3M", -ERANGE },
                { "64G page=0", -ERANGE },
                { "64G page=1K", -ERANGE },
                { "3M page=2M", -ERANGE },
                { "4097", -ERANGE },
                { "18446744073709551615", -ERANGE },
                { "99999999999999999999", -ERANGE },
                { "99999999999T", -ERANGE },
                { "64G,", -EINVAL },
                { ",64G", -EINVAL },
                { "64G, ,64G", -EINVAL },
                { "64G size=1", -EINVAL },
        };
        char many[4096] = "1G node=0";
        WarmSpecs s;

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                if (parse(bad[i].text, &s) != bad[i].error)
                        fail_msg("\"%s\"", bad[i].text);

        for (unsigned i = 1; i < WARM_SPECS_MAX; i++)
                snprintf(many + strlen(many), sizeof(many) - strlen(many), ",1G node=%u", i);
        assert_int_equal(parse(many, &s), 0);
        strcat(many, ",1G node=99");
        assert_int_equal(parse(many, &s), -ERANGE);
}

static void test_pressure(void **state) {
        static const char *const bad[] = { "",
                                           "some",
                                           "some avg10=",
                                           "some avg10=x",
                                           "some avg10=1.5 avg60",
                                           "full avg10=1.50",
                                           "some avg10=-1.00",
                                           "some avg10=99999999999.00" };
        uint64_t v;

        assert_int_equal(psi_parse("some avg10=12.34 avg60=0.00 avg300=0.00 total=5\nfull avg10=1.00", &v),
                         0);
        assert_int_equal(v, 1234);
        assert_int_equal(psi_parse("some avg10=0.07 avg60=0.00 avg300=0.00 total=5", &v), 0);
        assert_int_equal(v, 7);
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                if (psi_parse(bad[i], &v) != -EBADMSG)
                        fail_msg("\"%s\"", bad[i]);
        assert_int_equal(loadavg_parse("1.50 0.10 0.05 1/234 5678\n", &v), 0);
        assert_int_equal(v, 150);
        assert_int_equal(loadavg_parse("load", &v), -EBADMSG);
        assert_int_equal(psi_read_memory("/nonexistent", &v), -ENOENT);
}

#define READY(n, p, b)                                                                                      \
        { .node = n, .page_size = p, .bytes = b, .filled = b, .ready = true }

static void test_pick(void **state) {
        const SlabFacts slabs[] = {
                READY(0, MIB(2), GIB(8)),
                READY(0, MIB(2), GIB(4)),
                READY(1, MIB(2), GIB(2)),
                READY(0, GIB(1), GIB(4)),
                { .node = 0, .page_size = MIB(2), .bytes = GIB(1), .filled = MIB(512) },
        };
        PlacementRequest req = { .bytes = GIB(1), .page_size = MIB(2) };

        /* The smallest that is large enough, and complete. */
        assert_int_equal(warm_pick(slabs, 5, &req, 0), 2);
        req.has_nodes = true;
        idset_add(&req.nodes, 0);
        assert_int_equal(warm_pick(slabs, 5, &req, 0), 1);
        req.bytes = GIB(8);
        assert_int_equal(warm_pick(slabs, 5, &req, 0), 0);
        req.bytes = GIB(8) + MIB(2);
        assert_int_equal(warm_pick(slabs, 5, &req, 0), -1);

        /* No worse pages than without a slab, and of equal ones the larger. */
        req.bytes = GIB(3);
        req.page_size = 0;
        assert_int_equal(warm_pick(slabs, 5, &req, KIB(4)), 3);
        assert_int_equal(warm_pick(slabs, 5, &req, GIB(1)), 3);
        req.bytes = GIB(3) + MIB(2);
        assert_int_equal(warm_pick(slabs, 5, &req, MIB(2)), 1);
        assert_int_equal(warm_pick(slabs, 5, &req, GIB(1)), -1);
        req.bytes = GIB(3) + KIB(4);
        assert_int_equal(warm_pick(slabs, 5, &req, 0), -1);

        req = (PlacementRequest){ .bytes = GIB(2), .page_size = MIB(2), .numa_mode = NUMA_INTERLEAVE };
        assert_int_equal(warm_pick(slabs, 5, &req, 0), -1);
        assert_int_equal(warm_pick(slabs, 0, &req, 0), -1);
        req.bytes = 0;
        assert_int_equal(warm_pick(slabs, 5, &req, 0), -1);
}

static void test_make_room(void **state) {
        Pool p0 = { .page_size = MIB(2), .total = 1024, .free = 100, .reserved = 56 };
        Node nodes[] = { { .id = 0, .mem_total = GIB(8), .pools = &p0, .n_pools = 1 } };
        NodeTable t = { .nodes = nodes, .n_nodes = 1 };
        const SlabFacts slabs[] = {
                READY(0, MIB(2), MIB(512)),
                READY(0, MIB(2), MIB(256)),
                { .node = 0, .page_size = MIB(2), .bytes = MIB(128), .filled = MIB(16) },
        };
        const Claim claims[] = {
                { .node = 0, .page_size = MIB(2), .bytes = MIB(512) },
                { .node = 0, .page_size = MIB(2), .bytes = MIB(256) },
                { .node = 0, .page_size = MIB(2), .bytes = MIB(128), .unallocated = MIB(112) },
        };
        PlacementRequest req = { .page_size = MIB(2) };
        Placement p = {};
        bool give_up[3];

        /* 44 pages are to be had, 108 without what is being filled, 236 without the smaller one. */
        req.bytes = MIB(2) * 108;
        assert_true(warm_make_room(&t, claims, 3, slabs, 3, &req, give_up, &p));
        assert_true(!give_up[0] && !give_up[1] && give_up[2]);
        assert_int_equal(p.n_parts, 1);
        assert_int_equal(p.parts[0].bytes, MIB(2) * 108);
        placement_done(&p);
        req.bytes = MIB(2) * 109;
        assert_true(warm_make_room(&t, claims, 3, slabs, 3, &req, give_up, &p));
        assert_true(!give_up[0] && give_up[1] && give_up[2]);
        placement_done(&p);
        req.bytes = MIB(2) * (236 + 256);
        assert_true(warm_make_room(&t, claims, 3, slabs, 3, &req, give_up, &p));
        assert_true(give_up[0] && give_up[1] && give_up[2]);
        placement_done(&p);

        /* What would not be enough is not given up. */
        req.bytes += MIB(2);
        assert_false(warm_make_room(&t, claims, 3, slabs, 3, &req, give_up, &p));
        assert_true(!give_up[0] && !give_up[1] && !give_up[2]);
        req = (PlacementRequest){ .page_size = GIB(1), .bytes = GIB(1) };
        assert_false(warm_make_room(&t, claims, 3, slabs, 3, &req, give_up, &p));
        assert_int_equal(p0.free, 100);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_parse),     cmocka_unit_test(test_parse_refuses),
                cmocka_unit_test(test_pressure),  cmocka_unit_test(test_pick),
                cmocka_unit_test(test_make_room),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
