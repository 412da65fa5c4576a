/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Cases of docs/CASES.md that are questions of arithmetic, with the reports' own figures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "placement.h"

#define SIZE_2M MIB(2)
#define SIZE_1G GIB(1)

/* One node with these pools. */
typedef struct Host {
        Pool pools[2];
        Node node;
        NodeTable table;
} Host;

static void host_init(Host *h, uint64_t free_2m, bool has_1g, uint64_t free_1g) {
        *h = (Host){
                .pools = { { .page_size = SIZE_2M, .total = free_2m, .free = free_2m },
                           { .page_size = SIZE_1G, .total = free_1g, .free = free_1g } },
                .node = { .mem_total = GIB(1024), .mem_free = GIB(1) },
        };
        h->node.pools = h->pools;
        h->node.n_pools = has_1g ? 2 : 1;
        h->table = (NodeTable){ .nodes = &h->node, .n_nodes = 1 };
}

static int place(Host *h, uint64_t bytes, uint64_t page_size, Placement *ret, sd_bus_error *error) {
        PlacementRequest req = { .bytes = bytes, .page_size = page_size };

        return placement_make(&h->table, NULL, 0, &req, ret, error);
}

static void assert_refused(Host *h, uint64_t bytes, uint64_t page_size, const char *name, const char *part,
                           const char *more) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Placement p = {};

        assert_true(place(h, bytes, page_size, &p, &error) < 0);
        assert_string_equal(error.name, name);
        if (!strstr(error.message, part) || !strstr(error.message, more))
                fail_msg("%s: lacks \"%s\" or \"%s\"", error.message, part, more);
        sd_bus_error_free(&error);
}

static void case_11_size_without_pages(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Placement p = {};
        Host h;

        host_init(&h, 417792, true, 0);
        assert_int_equal(place(&h, GIB(8), 0, &p, &error), 0);
        assert_int_equal(p.page_size, SIZE_2M);
        placement_done(&p);
        assert_refused(&h, GIB(8), SIZE_1G, "org.tdpd1.Error.NoPages", "asked 8 pages of 1 GiB",
                       "short of 8");

        host_init(&h, 417792, false, 0);
        assert_refused(&h, GIB(8), SIZE_1G, "org.tdpd1.Error.InvalidArgument", "none of this host's",
                       "4 KiB, 2 MiB");
}

static void case_14_larger_than_the_pool(void **state) {
        Host h;

        host_init(&h, 2000, false, 0);
        assert_refused(&h, GIB(4), SIZE_2M, "org.tdpd1.Error.NoPages", "asked 2048 pages of 2 MiB",
                       "2000 free, 0 reserved on node 0: short of 48");
}

static void case_27_each_size_by_itself(void **state) {
        Claim claims[] = { { .page_size = SIZE_1G, .unallocated = GIB(2), .bytes = GIB(2) } };
        Host h;

        /* 10 pages of 2M are 20 MiB, whatever else there is. */
        host_init(&h, 10, true, 5);
        assert_int_equal(placement_available(&h.node, NULL, 0, SIZE_2M), MIB(20));
        assert_int_equal(placement_available(&h.node, NULL, 0, SIZE_1G), GIB(5));
        assert_int_equal(placement_available(&h.node, claims, 1, SIZE_2M), MIB(20));
        assert_int_equal(placement_available(&h.node, claims, 1, SIZE_1G), GIB(3));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(case_11_size_without_pages),
                cmocka_unit_test(case_14_larger_than_the_pool),
                cmocka_unit_test(case_27_each_size_by_itself),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
