/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sizes of pools: on trees of files behind which a kernel of ours sits. */
#include "pool-calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake-sysfs.h"

#define NR(node, kib) get("devices/system/node/node%u/hugepages/hugepages-" kib "kB/nr_hugepages", node)

static void test_case_01_configured_at_start(void **state) {
        Fixture *f;

        put("0-1\n", "devices/system/node/online");
        put_node(0, "0\n", "33554432");
        put_node(1, "1\n", "33554432");
        put_pool(0, "1048576", "0\n");
        put_pool(1, "1048576", "0\n");
        fake_kernel_start();
        fake_kernel_limit(0, "1048576", 3, 8);
        fake_kernel_limit(1, "1048576", 5, 5);

        f = start_on_fake("Pages=1G:8@0,1G:8@1\n");
        wait_target(f, "/org/tdpd1/node/0", UINT64_C(1) << 30, "met", 8);
        wait_target(f, "/org/tdpd1/node/1", UINT64_C(1) << 30, "short", 5);
        assert_manager_state(f, "degraded");
        assert_int_equal(NR(0, "1048576"), 8);
        assert_int_equal(NR(1, "1048576"), 5);
        assert_int_equal(get("devices/system/node/node0/compact"), 1);

        /* It does not give up. */
        fake_kernel_limit(1, "1048576", 16, 16);
        wait_target(f, "/org/tdpd1/node/1", UINT64_C(1) << 30, "met", 8);
        assert_manager_state(f, "running");
        assert_int_equal(fake_kernel_global_writes(), 0);
        assert_int_equal(get("kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"), 4711);
        fixture_stop(f);
}

static void test_case_02_03_only_node_files(void **state) {
        Fixture *f;

        put("0,2,8\n", "devices/system/node/online");
        put_node(0, "0-3\n", "4194304");
        put_node(2, "4-7\n", "0");    /* no memory */
        put_node(8, "\n", "8388608"); /* no CPUs */
        put_pool(0, "2048", "10\n");
        put_pool(2, "2048", "0\n");
        put_pool(8, "2048", "0\n");
        fake_kernel_start();
        fake_kernel_limit(0, "2048", 1000, 1000);
        fake_kernel_limit(2, "2048", 0, 0);
        fake_kernel_limit(8, "2048", 2000, 2000);

        f = start_on_fake("Pages=2M:100@8\n");
        wait_target(f, "/org/tdpd1/node/8", HUGE_2M, "met", 100);
        assert_end(f, set_pool(f, "/org/tdpd1/node/0", HUGE_2M, 512, "set", false), "done", "", "");
        assert_end(f, set_pool(f, "/org/tdpd1/node/8", HUGE_2M, 99, "shrink", false), "done", "", "");
        assert_set_fails(f, "/org/tdpd1/node/2", HUGE_2M, 1, "set", ERR("InvalidArgument"),
                         "more than all memory of node 2, 0 bytes");
        assert_set_fails(f, "/org/tdpd1/node/0", HUGE_2M, 2049, "set", ERR("InvalidArgument"), "4 GiB");
        assert_int_equal(NR(0, "2048"), 512);
        assert_int_equal(NR(2, "2048"), 0);
        assert_int_equal(NR(8, "2048"), 1);
        assert_int_equal(fake_kernel_global_writes(), 0);
        assert_int_equal(get("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"), 4711);
        fixture_stop(f);
}

static void put_two_nodes(void) {
        put("0-1\n", "devices/system/node/online");
        put_node(0, "0\n", "4194304");
        put_node(1, "1\n", "4194304");
        put_pool(0, "2048", "0\n");
        put_pool(1, "2048", "10\n");
        fake_kernel_start();
        fake_kernel_limit(0, "2048", 2048, 2048);
        fake_kernel_limit(1, "2048", 100, 100);
}

/* What happens to one node's pool is nothing to the other's. */
static void test_two_nodes(void **state) {
        const char *one, *two;
        Fixture *f;

        put_two_nodes();
        f = start_on_fake(NULL);
        one = set_pool(f, NODE0, HUGE_2M, 300, "set", false);
        two = set_pool(f, "/org/tdpd1/node/1", HUGE_2M, 300, "set", false);
        assert_end(f, one, "done", "", "");
        assert_end(f, two, "failed", ERR("Partial"),
                   "asked for 300 pages of 2 MiB on node 1, reached 100, with the memory compacted; there are 10 "
                   "as before");
        assert_int_equal(NR(0, "2048"), 300);
        assert_int_equal(NR(1, "2048"), 10);
        assert_int_equal(get("devices/system/node/node1/compact"), 1);
        assert_end(f, set_pool(f, "/org/tdpd1/node/1", HUGE_2M, 300, "set", true), "failed", ERR("Partial"),
                   "100 stay");
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 250, "shrink", false), "done", "", "");
        assert_end(f, set_pool(f, "/org/tdpd1/node/1", HUGE_2M, 0, "set", false), "done", "", "");
        assert_int_equal(NR(0, "2048"), 50);
        assert_int_equal(NR(1, "2048"), 0);
        assert_int_equal(fake_kernel_global_writes(), 0);
        fixture_stop(f);
}

/* A number too many does not take all memory from a host. */
static void test_some_memory_stays(void **state) {
        Fixture *f;

        put_two_nodes();
        f = start_on_fake("Pages=2M:2000@0\n");
        wait_target(f, NODE0, HUGE_2M, "short", 0);
        assert_int_equal(NR(0, "2048"), 0);
        assert_set_fails(f, NODE0, HUGE_2M, 1793, "set", ERR("InvalidArgument"),
                         "512 MiB of its 4 GiB stay out of all its pools (MaxPercent=95 in tdpd.conf");
        assert_set_fails(f, NODE0, HUGE_2M, 1793, "grow", ERR("InvalidArgument"), "can have 1792 pages");
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 1792, "set", false), "done", "", "");
        fixture_stop(f);

        /* What is there may stay, and go. */
        f = start_on_fake("MaxPercent=50\n");
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 1792, "set", false), "done", "", "");
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 1700, "set", false), "done", "", "");
        assert_set_fails(f, NODE0, HUGE_2M, 1701, "set", ERR("InvalidArgument"), "can have 1700 pages");
        fixture_stop(f);

        f = start_on_fake("MaxPercent=100\nPages=2M:2048@0\n");
        wait_target(f, NODE0, HUGE_2M, "met", 2048);
        fixture_stop(f);
}

static void test_case_04_06_07_short(void **state) {
        Fixture *f;

        put("0\n", "devices/system/node/online");
        put_node(0, "0\n", "33554432");
        put_pool(0, "2048", "1000\n");
        put_pool(0, "1048576", "0\n");
        fake_kernel_start();
        fake_kernel_limit(0, "2048", 3000, 3738);
        fake_kernel_limit(0, "1048576", 0, 0);

        f = start_on_fake(NULL);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 4096, "set", false), "failed", ERR("Partial"),
                   "asked for 4096 pages of 2 MiB on node 0, reached 3738, with the memory compacted; there are "
                   "1000 as before");
        assert_int_equal(NR(0, "2048"), 1000);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 4096, "set", true), "failed", ERR("Partial"), "3738 stay");
        assert_int_equal(NR(0, "2048"), 3738);
        assert_int_equal(read_target(f, NODE0, HUGE_2M).pages, 3738);

        assert_end(f, set_pool(f, NODE0, UINT64_C(1) << 30, 16, "set", false), "failed", ERR("Partial"),
                   "hugepagesz=1G hugepages=0:PAGES");
        assert_end(f, set_pool(f, NODE0, UINT64_C(1) << 30, 16, "set", false), "failed", ERR("Partial"),
                   "hugetlb_cma=");
        assert_int_equal(NR(0, "1048576"), 0);
        fixture_stop(f);
}

/* A kernel with granules of 64 KiB: sizes are what sysfs has. */
static void test_case_10_sizes_of_sysfs(void **state) {
        Fixture *f;

        put("0\n", "devices/system/node/online");
        put_node(0, "0\n", "67108864");
        put_pool(0, "2048", "0\n");
        put_pool(0, "524288", "0\n");
        put_pool(0, "16777216", "1\n");
        fake_kernel_start();
        fake_kernel_limit(0, "524288", 64, 64);

        f = start_on_fake("Pages=512M:16@0 1G:4@0\n");
        wait_target(f, NODE0, UINT64_C(512) << 20, "met", 16);
        /* It is named by the kernel's command line on other hosts, and has no pool here. */
        wait_target(f, NODE0, UINT64_C(1) << 30, "short", 0);
        assert_manager_state(f, "degraded");
        assert_set_fails(f, NODE0, UINT64_C(1) << 30, 1, "set", ERR("InvalidArgument"),
                         "2 MiB, 512 MiB, 16 GiB");
        fixture_stop(f);
}

static void test_case_23_pages_of_others(void **state) {
        uint64_t available, others;
        Fixture *f;

        put("0\n", "devices/system/node/online");
        put_node(0, "0\n", "33554432");
        put_pool(0, "2048", "1024\n");
        f = start_on_fake("Reserved=node:0,size:2048,count:512\n");
        read_available(f, NODE0, HUGE_2M, &available, &others);
        assert_int_equal(available, 512);
        assert_int_equal(others, 512);
        assert_call_fails(f, ERR("NoPages"), "1024 free, 512 reserved on node 0: short of 1;", "Reserve",
                          "sta{sv}", "a", 513 * HUGE_2M, 1, "page-size", "t", HUGE_2M);
        /* They are not to be given away either. */
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 511, "set", false), "failed", ERR("Busy"), "512 promised");

        /* Once they have them, they are not counted twice. */
        put("700\n", "devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages");
        read_available(f, NODE0, HUGE_2M, &available, &others);
        assert_int_equal(others, 188);
        assert_int_equal(available, 512);
        put("500\n", "devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages");
        read_available(f, NODE0, HUGE_2M, &available, &others);
        assert_int_equal(others, 0);
        assert_int_equal(available, 500);
        fixture_stop(f);
}

static void test_case_21_all_free_are_reserved(void **state) {
        uint64_t available, others;
        Fixture *f;

        put("0\n", "devices/system/node/online");
        put_node(0, "0\n", "33554432");
        put_pool(0, "2048", "3072\n");
        put("2181\n", "devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages");
        put("2181\n", "kernel/mm/hugepages/hugepages-2048kB/resv_hugepages");
        f = start_on_fake(NULL);
        read_available(f, NODE0, HUGE_2M, &available, &others);
        assert_int_equal(available, 0);
        assert_call_fails(f, ERR("NoPages"), "2181 free, 2181 reserved on node 0: short of 1;", "Reserve",
                          "sta{sv}", "a", HUGE_2M, 1, "page-size", "t", HUGE_2M);
        fixture_stop(f);
}

static void test_drift(void **state) {
        Fixture *f;

        put("0\n", "devices/system/node/online");
        put_node(0, "0\n", "33554432");
        put_pool(0, "2048", "0\n");
        fake_kernel_start();
        fake_kernel_limit(0, "2048", 1000, 1000);
        f = start_on_fake("Pages=2M:100@0\n");
        wait_target(f, NODE0, HUGE_2M, "met", 100);
        watch_pools(f, NODE0);
        put("60\n", "devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages");
        process_until(f, &pools_changed, 1);
        wait_target(f, NODE0, HUGE_2M, "changed", 60);
        assert_manager_state(f, "degraded");
        usleep(1500000);
        /* That is somebody's will, too. */
        assert_int_equal(NR(0, "2048"), 60);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 100, "set", false), "done", "", "");
        assert_manager_state(f, "running");
        fixture_stop(f);
}

#define FAKE(test) cmocka_unit_test_setup_teardown(test, fake_sysfs_setup, fake_sysfs_teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                FAKE(test_case_01_configured_at_start),
                FAKE(test_case_02_03_only_node_files),
                FAKE(test_two_nodes),
                FAKE(test_some_memory_stays),
                FAKE(test_case_04_06_07_short),
                FAKE(test_case_10_sizes_of_sysfs),
                FAKE(test_case_21_all_free_are_reserved),
                FAKE(test_case_23_pages_of_others),
                FAKE(test_drift),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
