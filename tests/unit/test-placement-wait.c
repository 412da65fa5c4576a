/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who goes first when there are too few pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bus-error.h"
#include "placement.h"

/* Two nodes, each with pools of 2M and 1G. */
typedef struct Host {
        NodeTable table;
        Node nodes[2];
        Pool pools[2][2];
} Host;

static void host_init(Host *h) {
        *h = (Host){ .table = { .nodes = h->nodes, .n_nodes = 2 } };
        for (unsigned i = 0; i < 2; i++) {
                h->pools[i][0] = (Pool){ .page_size = MIB(2), .total = 8, .free = 4 };
                h->pools[i][1] = (Pool){ .page_size = GIB(1), .total = 2, .free = 1, .reserved = 1 };
                h->nodes[i] = (Node){
                        .id = i,
                        .mem_total = GIB(64),
                        .mem_free = GIB(32),
                        .pools = h->pools[i],
                        .n_pools = 2,
                };
        }
}

static PlacementRequest request(uint64_t bytes, uint64_t page_size, const char *nodes) {
        PlacementRequest r = { .bytes = bytes, .page_size = page_size };

        if (nodes) {
                assert_int_equal(idset_parse(nodes, &r.nodes), 0);
                r.has_nodes = true;
        }
        return r;
}

static bool fits(Host *h, PlacementRequest req) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Placement p = {};
        int r = placement_make(&h->table, NULL, 0, &req, &p, &error);

        if (r < 0 && strcmp(error.name, TDP_ERROR_NO_PAGES) != 0)
                fail_msg("%s", error.message);
        sd_bus_error_free(&error);
        placement_done(&p);
        return r >= 0;
}

static void assert_open(Host *h, uint64_t page_size, const char *nodes, bool open) {
        PlacementRequest req = request(page_size, page_size, nodes);

        assert_int_equal(placement_has_turn(&h->table, &req), open);
        if (page_size <= MIB(2))
                assert_int_equal(fits(h, req), open);
}

static void test_pools_of_one_request(void **state) {
        PlacementRequest req = request(8 * MIB(2), MIB(2), "1");
        Host h;

        host_init(&h);
        placement_wait_for(&h.table, &req);
        assert_open(&h, MIB(2), "1", false);
        assert_open(&h, MIB(2), "0", true);
        assert_open(&h, MIB(2), NULL, true);
        assert_open(&h, GIB(1), "1", true);
        assert_open(&h, base_page_size(), "1", true);
}

/* Without a size or nodes it may use whatever there is. */
static void test_any_pool(void **state) {
        PlacementRequest req = request(16 * MIB(2), 0, NULL);
        Host h;

        host_init(&h);
        placement_wait_for(&h.table, &req);
        assert_open(&h, MIB(2), "0", false);
        assert_open(&h, MIB(2), NULL, false);
        assert_open(&h, base_page_size(), NULL, false);
        assert_open(&h, GIB(1), NULL, true); /* which are too large for it */
}

static void test_small_pages(void **state) {
        PlacementRequest req = request(base_page_size(), base_page_size(), "0");
        Host h;

        host_init(&h);
        placement_wait_for(&h.table, &req);
        assert_open(&h, base_page_size(), "0", false);
        assert_open(&h, base_page_size(), "0-1", true);
        assert_open(&h, MIB(2), "0", true);
}

static void test_preferred_and_parts(void **state) {
        PlacementRequest req = request(MIB(2), MIB(2), "0");
        Host h;

        host_init(&h);
        req.numa_mode = NUMA_PREFERRED;
        placement_wait_for(&h.table, &req);
        assert_open(&h, MIB(2), "1", false);

        host_init(&h);
        req = request(MIB(2), MIB(2), NULL);
        assert_int_equal(placement_parts_parse("1:2M", req.parts, &req.n_parts), 0);
        placement_wait_for(&h.table, &req);
        assert_open(&h, MIB(2), "1", false);
        assert_open(&h, MIB(2), "0", true);
}

static void test_possible(void **state) {
        PlacementRequest req = request(16 * MIB(2), MIB(2), NULL);
        Host h;

        host_init(&h);
        placement_wait_for(&h.table, &req); /* that others wait makes nothing impossible */
        assert_true(placement_is_possible(&h.table, &req));
        req.bytes += MIB(2);
        assert_false(placement_is_possible(&h.table, &req));
        req = request(9 * MIB(2), MIB(2), "1");
        assert_false(placement_is_possible(&h.table, &req));
        req.bytes = 8 * MIB(2);
        assert_true(placement_is_possible(&h.table, &req));
        h.pools[1][0].for_others = 1;
        assert_false(placement_is_possible(&h.table, &req));
        req = request(4 * GIB(1), GIB(1), NULL);
        assert_true(placement_is_possible(&h.table, &req));
        req = request(GIB(128), base_page_size(), NULL); /* some is for everybody to live on */
        assert_false(placement_is_possible(&h.table, &req));
        req.bytes = GIB(120);
        assert_true(placement_is_possible(&h.table, &req));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_pools_of_one_request),
                cmocka_unit_test(test_any_pool),
                cmocka_unit_test(test_small_pages),
                cmocka_unit_test(test_preferred_and_parts),
                cmocka_unit_test(test_possible),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
