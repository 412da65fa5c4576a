/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Nodes and pools of machines that this one is not: tdpd reads a sysfs tree of ours. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake-sysfs.h"

static Fixture *start(void) {
        char arg[96];

        snprintf(arg, sizeof(arg), "--sysfs-root=%s", fake_sysfs_root());
        return fixture_start(NULL, arg);
}

static char *list_nodes(Fixture *f, char *buf, size_t size) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = manager_call(f, &error, "ListNodes", NULL);
        const char *path;
        uint32_t id;

        *buf = '\0';
        if (!m)
                fail_msg("ListNodes: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(uo)") > 0);
        while (sd_bus_message_read(m, "(uo)", &id, &path) > 0)
                snprintf(buf + strlen(buf), size - strlen(buf), "%u:%s ", id, path);
        sd_bus_message_unref(m);
        return buf;
}

/* Sparse ids, a node without CPUs, one without memory, sizes that differ between nodes. */
static void test_odd_machine(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = NULL;
        uint64_t size, total, avail, reserved, surplus, leased;
        char buf[256];
        Fixture *f;
        char *s;

        put("0,2,8\n", "devices/system/node/online");
        put_node(0, "0-3\n", "4194304");
        put_node(2, "4-7\n", "0");
        put_node(8, "\n", "8388608");
        put_pool(0, "2048", "5\n");
        put_pool(0, "524288", "0\n");
        put_pool(2, "2048", "0\n");
        put_pool(8, "16777216", "3\n");

        f = start();
        assert_string_equal(list_nodes(f, buf, sizeof(buf)),
                            "0:/org/tdpd1/node/0 2:/org/tdpd1/node/2 8:/org/tdpd1/node/8 ");
        assert_true(sd_bus_get_property_string(f->bus, "org.tdpd1", "/org/tdpd1/node/8", "org.tdpd1.Node",
                                               "Cpus", &error, &s) >= 0);
        assert_string_equal(s, "");
        free(s);
        assert_true(sd_bus_get_property(f->bus, "org.tdpd1", "/org/tdpd1/node/8", "org.tdpd1.Node", "Pools",
                                        &error, &m, "a(tttttt)") >= 0);
        assert_true(sd_bus_message_enter_container(m, 'a', "(tttttt)") > 0);
        assert_true(sd_bus_message_read(m, "(tttttt)", &size, &total, &avail, &reserved, &surplus, &leased) >
                    0);
        assert_int_equal(size, UINT64_C(16) << 30);
        assert_int_equal(total, 3);
        assert_int_equal(avail, 3);
        assert_int_equal(sd_bus_message_read(m, "(tttttt)", &size, &total, &avail, &reserved, &surplus,
                                             &leased),
                         0);
        sd_bus_message_unref(m);

        /* Nothing is assumed about sizes: these are the ones of this machine. */
        assert_call_fails(f, ERR("InvalidArgument"), "use one of 4 KiB, 2 MiB, 512 MiB, 16 GiB", "Reserve",
                          "sta{sv}", "a", UINT64_C(1) << 30, 1, "page-size", "t", UINT64_C(1) << 30);
        assert_call_fails(
                        f, ERR("NoPages"),
                        "asked 6 pages of 2 MiB on node 0 (auto), 5 free, 0 reserved on node 0: short of 1;",
                        "Reserve", "sta{sv}", "a", 6 * HUGE_2M, 2, "page-size", "t", HUGE_2M, "nodes", "s",
                        "0");
        assert_call_fails(f, ERR("NoPages"), "or take node 0", "Reserve", "sta{sv}", "a", 5 * HUGE_2M, 2,
                          "page-size", "t", HUGE_2M, "nodes", "s", "2");
        assert_call_fails(f, ERR("NoSuchNode"), "node 1 is not there: this host has 0,2,8", "Reserve",
                          "sta{sv}", "a", MIB, 1, "nodes", "s", "1");
        fixture_stop(f);
}

/* Pages that another program has reserved count against every node. */
static void test_reserved_by_others(void **state) {
        Fixture *f;

        put("0-1\n", "devices/system/node/online");
        put_node(0, "0\n", "4194304");
        put_node(1, "1\n", "4194304");
        put_pool(0, "2048", "2181\n");
        put_pool(1, "2048", "2181\n");
        put("2181\n", "kernel/mm/hugepages/hugepages-2048kB/resv_hugepages");

        f = start();
        assert_call_fails(f, ERR("NoPages"), "2181 free, 2181 reserved on node 1: short of 1;", "Reserve",
                          "sta{sv}", "a", HUGE_2M, 2, "page-size", "t", HUGE_2M, "nodes", "s", "1");
        fixture_stop(f);
}

/* Pools come and go while tdpd runs. */
static void test_pool_appears(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m;
        Fixture *f;

        put("0\n", "devices/system/node/online");
        put_node(0, "0\n", "4194304");
        f = start();
        assert_call_fails(f, ERR("InvalidArgument"),
                          "page size 2 MiB is none of this host's: use one of 4 KiB", "Explain", "a{sv}", 2,
                          "bytes", "t", HUGE_2M, "page-size", "t", HUGE_2M);
        put_pool(0, "2048", "1\n");
        m = manager_call(f, &error, "Explain", "a{sv}", 2, "bytes", "t", HUGE_2M, "page-size", "t", HUGE_2M);
        assert_non_null(m);
        sd_bus_message_unref(m);
        fixture_stop(f);
}

/* A tree that makes no sense costs the part that makes none, or the call, and never the daemon. */
static void test_broken_sysfs(void **state) {
        char buf[256];
        Fixture *f;

        put("0-1\n", "devices/system/node/online");
        put_node(0, "0\n", "4194304");
        put_pool(0, "2048", "many\n");
        put_pool(0, "1048576", "-1\n");
        put_pool(0, "3000", "7\n"); /* no power of two */
        f = start();
        /* Node 1 has no files at all. */
        assert_string_equal(list_nodes(f, buf, sizeof(buf)), "0:/org/tdpd1/node/0 ");
        assert_call_fails(f, ERR("InvalidArgument"),
                          "page size 2 MiB is none of this host's: use one of 4 KiB", "Explain", "a{sv}", 2,
                          "bytes", "t", HUGE_2M, "page-size", "t", HUGE_2M);
        put("0-\n", "devices/system/node/online");
        assert_call_fails(f, ERR("Failed"), "cannot be read from", "ListNodes", NULL);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_odd_machine, fake_sysfs_setup, fake_sysfs_teardown),
                cmocka_unit_test_setup_teardown(test_reserved_by_others, fake_sysfs_setup,
                                                fake_sysfs_teardown),
                cmocka_unit_test_setup_teardown(test_pool_appears, fake_sysfs_setup, fake_sysfs_teardown),
                cmocka_unit_test_setup_teardown(test_broken_sysfs, fake_sysfs_setup, fake_sysfs_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
