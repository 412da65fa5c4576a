/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>

#include "log.h"
#include "node.h"
#include "tree.h"

static char root[64];

static void put(const char *text, const char *relative) {
        tree_put(root, relative, text);
}

static int setup(void **state) {
        snprintf(root, sizeof(root), "/tmp/tdpd-nodes-XXXXXX");
        log_set_max_level(LOG_ERR);
        return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state) {
        return tree_remove(root);
}

static void test_nodes_and_pools(void **state) {
        _cleanup_(node_table_freep) NodeTable *t = NULL;
        _cleanup_free_ char *sizes = NULL, *ids = NULL;
        const Node *n;
        const Pool *p;

        put("0,9\n", "devices/system/node/online");
        put("0-1,4\n", "devices/system/node/node0/cpulist");
        put("\nNode 0 MemTotal: 1000 kB\nNode 0 MemFree: 500 kB\nNode 0 Active(file): 7 kB\nNode 0 Inactive(file): 3 kB\n",
            "devices/system/node/node0/meminfo");
        put("12\n", "devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages");
        put("7\n", "devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages");
        put("2\n", "devices/system/node/node0/hugepages/hugepages-2048kB/surplus_hugepages");
        put("3\n", "kernel/mm/hugepages/hugepages-2048kB/resv_hugepages");
        put("1\n", "devices/system/node/node0/hugepages/hugepages-64kB/nr_hugepages");
        put("1\n", "devices/system/node/node0/hugepages/hugepages-64kB/free_hugepages");
        put("0\n", "devices/system/node/node0/hugepages/hugepages-64kB/surplus_hugepages");
        put("0\n", "kernel/mm/hugepages/hugepages-64kB/resv_hugepages");
        put("x", "devices/system/node/node0/hugepages/unrelated");
        put("\n", "devices/system/node/node9/cpulist");
        put("\nNode 9 MemTotal: 0 kB\n", "devices/system/node/node9/meminfo");

        assert_int_equal(node_table_load(root, &t), 0);
        assert_int_equal(t->n_nodes, 2);
        assert_null(node_table_find(t, 1));

        n = node_table_find(t, 0);
        assert_non_null(n);
        assert_int_equal(idset_count(&n->cpus), 3);
        assert_int_equal(n->mem_total, 1000 * 1024);
        assert_int_equal(n->mem_free, 500 * 1024);
        assert_int_equal(n->mem_cache, 10 * 1024);
        assert_int_equal(n->n_pools, 2);
        assert_int_equal(n->pools[0].page_size, KIB(64)); /* ascending */
        p = node_find_pool(n, MIB(2));
        assert_non_null(p);
        assert_int_equal(p->total, 12);
        assert_int_equal(p->free, 7);
        assert_int_equal(p->surplus, 2);
        assert_int_equal(p->reserved, 3);
        assert_null(node_find_pool(n, GIB(1)));

        n = node_table_find(t, 9);
        assert_non_null(n);
        assert_int_equal(idset_count(&n->cpus), 0);
        assert_int_equal(n->mem_total, 0);
        assert_int_equal(n->n_pools, 0);

        assert_int_equal(node_table_format_page_sizes(t, &sizes), 0);
        assert_string_equal(sizes, "4 KiB, 64 KiB, 2 MiB");
        assert_int_equal(node_table_format_ids(t, &ids), 0);
        assert_string_equal(ids, "0,9");
}

static void test_no_tree(void **state) {
        NodeTable *t = NULL;

        assert_int_equal(node_table_load(root, &t), -ENOENT);
        assert_null(t);
}

/* Files that are empty, too long, or not what they should be. */
static void test_broken_files(void **state) {
        _cleanup_(node_table_freep) NodeTable *t = NULL;
        static char huge[70000];

        memset(huge, '0', sizeof(huge) - 1);
        put("0-2\n", "devices/system/node/online");
        put(huge, "devices/system/node/node0/cpulist");
        put("", "devices/system/node/node0/meminfo");
        put("0-x\n", "devices/system/node/node1/cpulist");
        put("", "devices/system/node/node1/meminfo");
        put("0\n", "devices/system/node/node2/cpulist");
        put("nonsense", "devices/system/node/node2/meminfo");
        put("", "devices/system/node/node2/hugepages/hugepages-2048kB/nr_hugepages");
        put("99999999999999999999999\n",
            "devices/system/node/node2/hugepages/hugepages-1048576kB/nr_hugepages");
        put("1\n", "devices/system/node/node2/hugepages/hugepages-64kB/nr_hugepages");
        put("288230376151711744\n", "devices/system/node/node2/hugepages/hugepages-64kB/free_hugepages");
        put("0\n", "devices/system/node/node2/hugepages/hugepages-64kB/surplus_hugepages");
        put("0\n", "kernel/mm/hugepages/hugepages-64kB/resv_hugepages");
        put("1\n", "devices/system/node/node2/hugepages/hugepages-0kB/nr_hugepages");
        put("1\n", "devices/system/node/node2/hugepages/hugepages-2048kBx/nr_hugepages");

        assert_int_equal(node_table_load(root, &t), 0);
        assert_int_equal(t->n_nodes, 1);
        assert_int_equal(t->nodes[0].id, 2);
        assert_int_equal(t->nodes[0].mem_total, 0);
        assert_int_equal(t->nodes[0].n_pools, 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_nodes_and_pools, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_tree, setup, teardown),
                cmocka_unit_test_setup_teardown(test_broken_files, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
