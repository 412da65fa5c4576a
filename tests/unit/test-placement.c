/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "bus-error.h"
#include "placement.h"

/* Up to four nodes with one 2M pool each. */
typedef struct Host {
        NodeTable table;
        Node nodes[4];
        Pool pools[4];
} Host;

static void host_init(Host *h, size_t n, const uint64_t *free, uint64_t reserved) {
        *h = (Host){ .table = { .nodes = h->nodes, .n_nodes = n } };
        for (size_t i = 0; i < n; i++) {
                h->pools[i] = (Pool){
                        .page_size = MIB(2), .total = free[i], .free = free[i], .reserved = reserved
                };
                h->nodes[i] = (Node){
                        .id = (unsigned) i,
                        .mem_total = GIB(64),
                        .mem_free = GIB(32),
                        .pools = &h->pools[i],
                        .n_pools = 1,
                };
        }
}

#define HOST(h, reserved, ...)                                                                              \
        host_init(h, ELEMENTSOF(((const uint64_t[]){ __VA_ARGS__ })), (const uint64_t[]){ __VA_ARGS__ },    \
                  reserved)

static PlacementRequest request(uint64_t pages, const char *nodes, NumaMode mode) {
        PlacementRequest r = { .bytes = pages * MIB(2), .page_size = MIB(2), .numa_mode = mode };

        if (nodes) {
                assert_int_equal(idset_parse(nodes, &r.nodes), 0);
                r.has_nodes = true;
        }
        return r;
}

/* "0:4 1:2", in pages. */
static void placed(Host *h, const Claim *claims, size_t n_claims, PlacementRequest req,
                   const char *expected) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Placement p = {};
        char text[128] = "";
        int r;

        r = placement_make(&h->table, claims, n_claims, &req, &p, &error);
        if (r < 0)
                fail_msg("expected %s, got %s", expected, error.message);
        for (size_t i = 0; i < p.n_parts; i++)
                snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%u:%u", i > 0 ? " " : "",
                         p.parts[i].node, (unsigned) (p.parts[i].bytes / p.page_size));
        assert_string_equal(text, expected);
        assert_int_equal(placement_bytes(&p), req.bytes);
        placement_done(&p);
}

static void refused(Host *h, const Claim *claims, size_t n_claims, PlacementRequest req, const char *name,
                    const char *part) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Placement p = {};

        assert_true(placement_make(&h->table, claims, n_claims, &req, &p, &error) < 0);
        if (!streq(error.name, name) || !strstr(error.message, part))
                fail_msg("expected %s with \"%s\", got %s: %s", name, part, error.name, error.message);
        assert_null(p.parts);
        sd_bus_error_free(&error);
}

static void test_strict(void **state) {
        Host h;

        HOST(&h, 0, 8, 6, 10);
        placed(&h, NULL, 0, request(6, NULL, NUMA_STRICT), "1:6"); /* best fit */
        placed(&h, NULL, 0, request(7, NULL, NUMA_STRICT), "0:7");
        placed(&h, NULL, 0, request(10, NULL, NUMA_STRICT), "2:10"); /* exact */
        placed(&h, NULL, 0, request(11, NULL, NUMA_STRICT), "0:8 1:3");
        placed(&h, NULL, 0, request(24, NULL, NUMA_STRICT), "0:8 1:6 2:10");
        refused(&h, NULL, 0, request(25, NULL, NUMA_STRICT), TDP_ERROR_NO_PAGES, "short of 1;");
        placed(&h, NULL, 0, request(5, "2", NUMA_STRICT), "2:5");
        placed(&h, NULL, 0, request(12, "0,2", NUMA_STRICT), "0:8 2:4");
        /* It never spills, and names who could have served. */
        refused(&h, NULL, 0, request(7, "1", NUMA_STRICT), TDP_ERROR_NO_PAGES, "short of 1;");
        refused(&h, NULL, 0, request(7, "1", NUMA_STRICT), TDP_ERROR_NO_PAGES, "or take node 0,2");
}

/* Node 2 has no CPUs, as memory behind CXL; the others have four each. */
static void host_with_cpus(Host *h) {
        HOST(h, 0, 8, 6, 5);
        assert_int_equal(idset_parse("0-3", &h->nodes[0].cpus), 0);
        assert_int_equal(idset_parse("4-7", &h->nodes[1].cpus), 0);
}

static void test_auto(void **state) {
        PlacementRequest req;
        Host h;

        host_with_cpus(&h);
        placed(&h, NULL, 0, request(4, NULL, NUMA_AUTO), "1:4"); /* node 2 is fuller, and has no CPUs */
        placed(&h, NULL, 0, request(5, "2", NUMA_AUTO), "2:5");
        placed(&h, NULL, 0, request(7, NULL, NUMA_AUTO), "0:7");
        /* As few as possible, and node 2 last. */
        placed(&h, NULL, 0, request(9, NULL, NUMA_AUTO), "0:8 1:1");
        placed(&h, NULL, 0, request(14, NULL, NUMA_AUTO), "0:8 1:6");
        placed(&h, NULL, 0, request(19, NULL, NUMA_AUTO), "0:8 1:6 2:5");
        refused(&h, NULL, 0, request(20, NULL, NUMA_AUTO), TDP_ERROR_NO_PAGES, "(auto)");
        refused(&h, NULL, 0, request(15, "0-1", NUMA_AUTO), TDP_ERROR_NO_PAGES, "short of 1;");

        /* All vCPUs find a CPU of their own on node 0 only. */
        assert_int_equal(idset_parse("0-3,8-11", &h.nodes[0].cpus), 0);
        req = request(4, NULL, NUMA_AUTO);
        req.vcpus = 8;
        placed(&h, NULL, 0, req, "0:4");
        req.vcpus = 4;
        placed(&h, NULL, 0, req, "1:4");
}

static void test_cpus(void **state) {
        PlacementRequest req = request(4, NULL, NUMA_AUTO);
        Host h;

        host_with_cpus(&h);
        req.has_cpus = true;
        assert_int_equal(idset_parse("1,2", &req.cpus), 0);
        placed(&h, NULL, 0, req, "0:4");
        req = request(14, NULL, NUMA_INTERLEAVE);
        req.has_cpus = true;
        assert_int_equal(idset_parse("3-4", &req.cpus), 0);
        refused(&h, NULL, 0, req, TDP_ERROR_NO_PAGES, "short of 1;");
        req.bytes = 10 * MIB(2);
        placed(&h, NULL, 0, req, "0:5 1:5");

        assert_int_equal(idset_parse("3,8", &req.cpus), 0);
        refused(&h, NULL, 0, req, TDP_ERROR_INVALID, "CPU 8 is on no node");
        req = request(1, "0", NUMA_AUTO);
        req.has_cpus = true;
        refused(&h, NULL, 0, req, TDP_ERROR_INVALID, "give one of them");
}

static PlacementRequest request_parts(uint64_t pages, const char *parts) {
        PlacementRequest r = request(pages, NULL, NUMA_AUTO);

        assert_int_equal(placement_parts_parse(parts, r.parts, &r.n_parts), 0);
        return r;
}

static void test_parts(void **state) {
        static const struct {
                const char *text;
                int error;
        } bad[] = {
                { "", -EINVAL },           { "0", -EINVAL },
                { "0:", -EINVAL },         { ":1G", -EINVAL },
                { "0:1G,", -EINVAL },      { ",0:1G", -EINVAL },
                { "0:1G 1:1G", -EINVAL },  { "0:1GG", -EINVAL },
                { "0:-1", -EINVAL },       { "x:1G", -EINVAL },
                { "0:0", -ERANGE },        { "1024:1G", -ERANGE },
                { "0:1G,0:1G", -ERANGE },  { "0:99999999999999999999", -ERANGE },
                { "0:9999999T", -ERANGE },
        };
        PlacementPart parts[PLACEMENT_PARTS_MAX];
        PlacementRequest req;
        size_t n;
        Host h;

        host_with_cpus(&h);
        placed(&h, NULL, 0, request_parts(4, "0:6M,1:2M"), "0:3 1:1");
        placed(&h, NULL, 0, request_parts(9, "2:10M,0:8M"), "0:4 2:5");
        placed(&h, NULL, 0, request_parts(1, "1:2097152"), "1:1");
        refused(&h, NULL, 0, request_parts(10, "1:14M,0:6M"), TDP_ERROR_NO_PAGES, "(parts)");
        refused(&h, NULL, 0, request_parts(10, "1:14M,0:6M"), TDP_ERROR_NO_PAGES, "short of 1;");
        refused(&h, NULL, 0, request_parts(10, "1:14M,0:6M"), TDP_ERROR_NO_PAGES,
                "or take numa-mode preferred: 8 on node 0, 2 on node 1");
        refused(&h, NULL, 0, request_parts(5, "0:6M,1:2M"), TDP_ERROR_INVALID, "both must be the same");
        refused(&h, NULL, 0, request_parts(2, "0:3M,1:1M"), TDP_ERROR_INVALID,
                "not a multiple of the page size");
        refused(&h, NULL, 0, request_parts(4, "0:6M,9:2M"), TDP_ERROR_NO_SUCH_NODE, "node 9 is not there");
        req = request_parts(4, "0:6M,1:2M");
        req.numa_mode = NUMA_STRICT;
        refused(&h, NULL, 0, req, TDP_ERROR_INVALID, "leave nodes, cpus and numa-mode out");

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                if (placement_parts_parse(bad[i].text, parts, &n) != bad[i].error)
                        fail_msg("\"%s\"", bad[i].text);
}

/* Strict on a node that is short, while the host has twice as much. */
static void case_25_short_node(void **state) {
        Host h;

        HOST(&h, 0, 1290, 758);
        refused(&h, NULL, 0, request(1024, "1", NUMA_STRICT), TDP_ERROR_NO_PAGES,
                "asked 1024 pages of 2 MiB on node 1 (strict), 758 free, 0 reserved on node 1: short of 266; "
                "1290 free, 0 reserved on node 0 (not asked for);");
        refused(&h, NULL, 0, request(1024, "1", NUMA_STRICT), TDP_ERROR_NO_PAGES, "or take node 0");
        /* If no other node is enough alone, then how both together would be. */
        refused(&h, NULL, 0, request(2000, "1", NUMA_STRICT), TDP_ERROR_NO_PAGES,
                "or take numa-mode preferred: 1242 on node 0, 758 on node 1");
        refused(&h, NULL, 0, request(1024, "1", NUMA_STRICT), TDP_ERROR_NO_PAGES, "or take pages of 4 KiB");
        placed(&h, NULL, 0, request(1024, "1", NUMA_PREFERRED), "0:266 1:758");
}

static void test_preferred(void **state) {
        Host h;

        HOST(&h, 0, 8, 6, 10);
        placed(&h, NULL, 0, request(6, "0", NUMA_PREFERRED), "0:6");
        placed(&h, NULL, 0, request(12, "1", NUMA_PREFERRED), "0:6 1:6");
        placed(&h, NULL, 0, request(24, "1", NUMA_PREFERRED), "0:8 1:6 2:10");
        refused(&h, NULL, 0, request(25, "1", NUMA_PREFERRED), TDP_ERROR_NO_PAGES, "short of 1;");
}

static void test_interleave(void **state) {
        Host h;

        HOST(&h, 0, 8, 6, 10);
        placed(&h, NULL, 0, request(9, NULL, NUMA_INTERLEAVE), "0:3 1:3 2:3");
        placed(&h, NULL, 0, request(10, NULL, NUMA_INTERLEAVE), "0:4 1:3 2:3");
        placed(&h, NULL, 0, request(1, NULL, NUMA_INTERLEAVE), "0:1");
        placed(&h, NULL, 0, request(16, "0,2", NUMA_INTERLEAVE), "0:8 2:8");
        refused(&h, NULL, 0, request(21, NULL, NUMA_INTERLEAVE), TDP_ERROR_NO_PAGES, "short of 1;");
}

static void test_reserved(void **state) {
        Host h;
        Claim here = { .node = 0, .page_size = MIB(2), .unallocated = 3 * MIB(2), .bytes = 3 * MIB(2) };
        Claim other_size = { .node = 0, .page_size = GIB(1), .unallocated = GIB(4), .bytes = GIB(4) };

        /* What others have reserved counts against every node, as nobody knows which they will take. */
        HOST(&h, 3, 8, 8);
        assert_int_equal(placement_available(&h.nodes[0], NULL, 0, MIB(2)), 5 * MIB(2));
        assert_int_equal(placement_available(&h.nodes[1], NULL, 0, MIB(2)), 5 * MIB(2));
        /* If they are ours, we do know. */
        assert_int_equal(placement_available(&h.nodes[0], &here, 1, MIB(2)), 5 * MIB(2));
        assert_int_equal(placement_available(&h.nodes[1], &here, 1, MIB(2)), 8 * MIB(2));
        assert_int_equal(placement_available(&h.nodes[1], &other_size, 1, MIB(2)), 5 * MIB(2));

        /* All that is free is reserved. */
        HOST(&h, 2181, 2181);
        assert_int_equal(placement_available(&h.nodes[0], NULL, 0, MIB(2)), 0);
        refused(&h, NULL, 0, request(1, NULL, NUMA_STRICT), TDP_ERROR_NO_PAGES, "2181 free, 2181 reserved");
        HOST(&h, 3000, 2181);
        assert_int_equal(placement_available(&h.nodes[0], NULL, 0, MIB(2)), 0);
}

/* However requests come, what is promised is never more than what is there. */
static void test_never_promised_twice(void **state) {
        Claim claims[64];
        size_t n = 0;
        unsigned seed = 1;
        uint64_t promised[3] = {};
        Host h;

        HOST(&h, 0, 40, 25, 33);
        for (unsigned i = 0; i < 60 && n < 60; i++) {
                PlacementRequest req = request(1 + (uint64_t) rand_r(&seed) % 12, NULL,
                                               (NumaMode) (rand_r(&seed) % _NUMA_MODE_MAX));
                Placement p = {};
                sd_bus_error error = SD_BUS_ERROR_NULL;

                if (placement_make(&h.table, claims, n, &req, &p, &error) < 0) {
                        sd_bus_error_free(&error);
                        continue;
                }
                for (size_t k = 0; k < p.n_parts; k++) {
                        claims[n++] = (Claim){ .node = p.parts[k].node,
                                               .page_size = MIB(2),
                                               .unallocated = p.parts[k].bytes,
                                               .bytes = p.parts[k].bytes };
                        promised[p.parts[k].node] += p.parts[k].bytes / MIB(2);
                        /* The kernel counts our reservations as well. */
                        for (size_t j = 0; j < 3; j++)
                                h.pools[j].reserved += p.parts[k].bytes / MIB(2);
                }
                placement_done(&p);
                for (size_t k = 0; k < 3; k++)
                        assert_true(promised[k] <= h.pools[k].free);
        }
        /* And nothing was left lying about: single pages still go out until all is gone. */
        for (;;) {
                PlacementRequest req = request(1, NULL, NUMA_STRICT);
                sd_bus_error error = SD_BUS_ERROR_NULL;
                Placement p = {};

                if (n == ELEMENTSOF(claims))
                        break;
                if (placement_make(&h.table, claims, n, &req, &p, &error) < 0) {
                        sd_bus_error_free(&error);
                        assert_int_equal(promised[0] + promised[1] + promised[2], 40 + 25 + 33);
                        break;
                }
                claims[n++] = (Claim){
                        .node = p.parts[0].node, .page_size = MIB(2), .unallocated = MIB(2), .bytes = MIB(2)
                };
                promised[p.parts[0].node]++;
                for (size_t j = 0; j < 3; j++)
                        h.pools[j].reserved++;
                placement_done(&p);
        }
}

static void test_choice_of_size(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        PlacementRequest req = { .bytes = 4 * MIB(2) };
        Placement p = {};
        Host h;

        HOST(&h, 0, 4);
        assert_int_equal(placement_make(&h.table, NULL, 0, &req, &p, &error), 0);
        assert_int_equal(p.page_size, MIB(2));
        placement_done(&p);

        /* Too few, or not a multiple: the next smaller one. */
        req.bytes = 5 * MIB(2);
        assert_int_equal(placement_make(&h.table, NULL, 0, &req, &p, &error), 0);
        assert_int_equal(p.page_size, KIB(4));
        placement_done(&p);
        req.bytes = MIB(2) + KIB(4);
        assert_int_equal(placement_make(&h.table, NULL, 0, &req, &p, &error), 0);
        assert_int_equal(p.page_size, KIB(4));
        placement_done(&p);
}

static void test_bad(void **state) {
        PlacementRequest req;
        Host h;

        HOST(&h, 0, 4);
        req = request(0, NULL, NUMA_STRICT);
        refused(&h, NULL, 0, req, TDP_ERROR_INVALID, "0 bytes");
        req.bytes = MIB(3);
        refused(&h, NULL, 0, req, TDP_ERROR_INVALID, "ask for 2097152 or 4194304");
        req.bytes = UINT64_MAX;
        refused(&h, NULL, 0, req, TDP_ERROR_INVALID, "overflows");
        req.bytes = UINT64_C(1) << 62;
        refused(&h, NULL, 0, req, TDP_ERROR_NO_PAGES, "short of");
        req.page_size = MIB(4);
        refused(&h, NULL, 0, req, TDP_ERROR_INVALID, "use one of 4 KiB, 2 MiB");
        refused(&h, NULL, 0, request(1, "5", NUMA_STRICT), TDP_ERROR_NO_SUCH_NODE, "this host has 0");
        refused(&h, NULL, 0, request(1, "", NUMA_STRICT), TDP_ERROR_INVALID, "set of nodes is empty");

        /* A host without any memory node at all. */
        h.table.n_nodes = 0;
        req = (PlacementRequest){ .bytes = KIB(4) };
        refused(&h, NULL, 0, req, TDP_ERROR_NO_PAGES, "no node with memory");
}

static void test_small_pages_leave_a_margin(void **state) {
        Host h;

        HOST(&h, 0, 0);
        h.nodes[0].mem_total = GIB(8);
        h.nodes[0].mem_free = GIB(1);
        h.nodes[0].mem_cache = GIB(1);
        assert_int_equal(placement_available(&h.nodes[0], NULL, 0, KIB(4)), GIB(2) - MIB(256));
        h.nodes[0].mem_free = MIB(10);
        h.nodes[0].mem_cache = 0;
        assert_int_equal(placement_available(&h.nodes[0], NULL, 0, KIB(4)), 0);
}

static void test_names(void **state) {
        for (NumaMode m = 0; m < _NUMA_MODE_MAX; m++)
                assert_int_equal(numa_mode_from_string(numa_mode_to_string(m)), m);
        assert_int_equal(numa_mode_from_string("bind"), _NUMA_MODE_INVALID);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_strict),
                cmocka_unit_test(test_auto),
                cmocka_unit_test(test_cpus),
                cmocka_unit_test(test_parts),
                cmocka_unit_test(case_25_short_node),
                cmocka_unit_test(test_preferred),
                cmocka_unit_test(test_interleave),
                cmocka_unit_test(test_reserved),
                cmocka_unit_test(test_never_promised_twice),
                cmocka_unit_test(test_choice_of_size),
                cmocka_unit_test(test_bad),
                cmocka_unit_test(test_small_pages_leave_a_margin),
                cmocka_unit_test(test_names),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
