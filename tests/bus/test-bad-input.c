/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Wrong input to every method: a named error, and nothing left behind. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Fixture *start(void) {
        return fixture_start("[Limits]\nMaxVMs=2\nMaxBytes=64M\n", NULL);
}

/* Nothing stays of what was refused. */
static void stop(Fixture *f) {
        assert_int_equal(count_vms(f), 0);
        while (sd_bus_process(f->bus, NULL) > 0)
                ;
        assert_int_equal(f->vms_added, f->vms_removed);
        fixture_stop(f);
}

#define reserve_fails(f, error, part, name, bytes, ...)                                                     \
        assert_call_fails(f, ERR(error), part, "Reserve", "sta{sv}", name, (uint64_t) (bytes), __VA_ARGS__)

#define HAS_1G "/sys/devices/system/node/node0/hugepages/hugepages-1048576kB"

static void test_sizes(void **state) {
        Fixture *f = start();

        reserve_fails(f, "InvalidArgument", "0 bytes", "a", 0, 0);
        reserve_fails(f, "InvalidArgument", "not a multiple of the page size 4 KiB", "a", 4097, 0);
        reserve_fails(f, "InvalidArgument", "less than a page of 4 KiB: ask for at least 4096", "a", 1, 0);
        reserve_fails(f, "InvalidArgument",
                      "not a multiple of the page size 2 MiB: ask for 2097152 or 4194304", "a", 3 * MIB, 1,
                      "page-size", "t", HUGE_2M);
        reserve_fails(f, "InvalidArgument", "overflows", "a", UINT64_MAX, 0);
        reserve_fails(f, "InvalidArgument", "overflows", "a", UINT64_MAX - 4095, 0);
        reserve_fails(f, "InvalidArgument", "overflows", "a", UINT64_C(1) << 63, 0);
        reserve_fails(f, "NoPages", "short of", "a", UINT64_C(1) << 62, 0);
        reserve_fails(f, "NoPages", "short of", "a", UINT64_C(1) << 62, 1, "page-size", "t", HUGE_2M);
        if (access(HAS_1G, F_OK) == 0)
                reserve_fails(f, "NoPages", "short of", "a", UINT64_C(1) << 62, 1, "page-size", "t",
                              UINT64_C(1) << 30);
        else
                reserve_fails(f, "InvalidArgument", "1 GiB is none of this host's: use one of 4 KiB, 2 MiB",
                              "a", UINT64_C(1) << 62, 1, "page-size", "t", UINT64_C(1) << 30);
        reserve_fails(f, "NoPages", "short of", "a", UINT64_C(1) << 62, 1, "numa-mode", "s", "interleave");
        reserve_fails(f, "NoPages", "short of", "a", UINT64_C(1) << 62, 1, "numa-mode", "s", "preferred");
        stop(f);
}

static void test_options(void **state) {
        Fixture *f = start();

        reserve_fails(f, "InvalidArgument", "none of this host's: use one of 4 KiB", "a", MIB, 1,
                      "page-size", "t", UINT64_C(8192));
        reserve_fails(f, "InvalidArgument", "page-size is 0", "a", MIB, 1, "page-size", "t", UINT64_C(0));
        reserve_fails(f, "InvalidArgument", "has type 's': it must be 't'", "a", MIB, 1, "page-size", "s",
                      "2M");
        reserve_fails(f, "InvalidArgument", "has type 'as': it must be 's'", "a", MIB, 1, "nodes", "as", 1,
                      "0");
        reserve_fails(f, "InvalidArgument", "\"pages\" is unknown here: there are page-size", "a", MIB, 1,
                      "pages", "t", UINT64_C(1));
        reserve_fails(f, "InvalidArgument", "\"\" is unknown here", "a", MIB, 1, "", "t", UINT64_C(1));
        /* Options of other methods. */
        reserve_fails(f, "InvalidArgument", "\"bytes\" is unknown here", "a", MIB, 1, "bytes", "t", MIB);
        reserve_fails(f, "InvalidArgument", "\"auto-slots\" is unknown here", "a", MIB, 1, "auto-slots", "b",
                      1);
        reserve_fails(f, "InvalidArgument", "is there twice", "a", MIB, 2, "vcpus", "u", 1, "vcpus", "u", 1);
        reserve_fails(f, "NoSuchNode", "node 999 is not there: this host has", "a", MIB, 1, "nodes", "s",
                      "0,999");
        reserve_fails(f, "InvalidArgument", "no set of nodes", "a", MIB, 1, "nodes", "s", "");
        reserve_fails(f, "InvalidArgument", "no set of nodes", "a", MIB, 1, "nodes", "s", "3-1");
        reserve_fails(f, "InvalidArgument", "no set of nodes", "a", MIB, 1, "nodes", "s", "-1");
        reserve_fails(f, "InvalidArgument", "no set of nodes", "a", MIB, 1, "nodes", "s", "0;1");
        reserve_fails(f, "InvalidArgument", "no set of nodes", "a", MIB, 1, "nodes", "s",
                      "99999999999999999999");
        reserve_fails(f, "InvalidArgument", "numa-mode \"bind\" is unknown", "a", MIB, 1, "numa-mode", "s",
                      "bind");
        reserve_fails(f, "InvalidArgument", "decision \"maybe\" is unknown", "a", MIB, 1, "decision", "s",
                      "maybe");
        stop(f);
}

static void test_names(void **state) {
        static const char *const bad[] = { "",         "-a", ".hidden", "a b",    "a/b", "../etc", "a\nb",
                                           "\xc3\xa4", "a%", "_a",      "a\\x2e", "a@b", "$(id)" };
        char name[70];
        Fixture *f = start();
        Reservation r;

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                reserve_fails(f, "InvalidArgument", "is not plain", bad[i], MIB, 0);

        memset(name, 'a', sizeof(name));
        name[65] = '\0';
        reserve_fails(f, "InvalidArgument", "is not plain", name, MIB, 0);
        name[64] = '\0';
        r = reserve(f, name, MIB, 4096);
        reserve_fails(f, "NameTaken", "there is a VM", name, MIB, 0);
        assert_string_equal(wait_job(f, r.job)->result, "done");
        reserve_fails(f, "NameTaken", "there is a VM", name, MIB, 0);
        release(f, r.vm);

        r = reserve(f, "0.A_b-c", MIB, 4096);
        assert_string_equal(r.vm, "/org/tdpd1/vm/_30_2eA_5fb_2dc");
        assert_string_equal(wait_job(f, r.job)->result, "done");
        release(f, r.vm);
        /* And the name is free again. */
        r = reserve(f, "0.A_b-c", MIB, 4096);
        assert_string_equal(wait_job(f, r.job)->result, "done");
        release(f, r.vm);
        stop(f);
}

static void test_limits(void **state) {
        Reservation a, b;
        Fixture *f = start();

        reserve_fails(f, "LimitExceeded", "MaxBytes", "a", 65 * MIB, 0);
        a = reserve(f, "a", 60 * MIB, 4096);
        reserve_fails(f, "LimitExceeded", "MaxBytes", "b", 5 * MIB, 0);
        b = reserve(f, "b", 4 * MIB, 4096);
        reserve_fails(f, "LimitExceeded", "MaxVMs", "c", 0x1000, 0);
        wait_job(f, a.job);
        wait_job(f, b.job);
        release(f, a.vm);
        a = reserve(f, "a", 60 * MIB, 4096);
        wait_job(f, a.job);
        release(f, a.vm);
        release(f, b.vm);
        stop(f);
}

static void test_objects_that_are_not_there(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Fixture *f = start();

        assert_call_fails(f, ERR("NoSuchVM"), "there is no VM \"x\"", "GetVM", "s", "x");
        assert_call_fails(f, ERR("NoSuchVM"), "no VM is attached to process 1", "GetVMByPid", "u", 1);
        assert_call_fails(f, ERR("InvalidArgument"), "pid 0 is none", "GetVMByPid", "u", 0);
        assert_call_fails(f, ERR("NoSuchVM"), "there is no VM at", "Release", "o", "/org/tdpd1/vm/x");
        assert_call_fails(f, ERR("NoSuchVM"), "there is no VM at", "Release", "o", "/");
        assert_call_fails(f, ERR("NoSuchVM"), "there is no VM at", "Release", "o", "/org/tdpd1/job/1");

        assert_null(call(f->bus, &error, "/org/tdpd1/job/1", "org.tdpd1.Job", "Cancel", NULL));
        assert_error_is(&error, SD_BUS_ERROR_UNKNOWN_OBJECT, "");
        assert_null(call(f->bus, &error, "/org/tdpd1/vm/x", "org.tdpd1.VM", "Release", NULL));
        assert_error_is(&error, SD_BUS_ERROR_UNKNOWN_OBJECT, "");
        stop(f);
}

static void test_build_without_vmm(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Fixture *f = start();
        Reservation r = reserve(f, "a", MIB, 4096);

        wait_job(f, r.job);
        assert_null(call(f->bus, &error, r.vm, "org.tdpd1.VM", "Build", "a{sv}", 0));
        assert_error_is(&error, ERR("Busy"), "is populated");
        assert_null(call(f->bus, &error, r.vm, "org.tdpd1.VM", "Build", "a{sv}", 1, "max-level", "u", 4));
        assert_error_is(&error, ERR("InvalidArgument"), "max-level 4 is unknown");
        assert_null(call(f->bus, &error, r.vm, "org.tdpd1.VM", "Build", "a{sv}", 1, "decision", "s",
                         "never"));
        assert_error_is(&error, ERR("InvalidArgument"), "makes no sense");
        release(f, r.vm);
        stop(f);
}

static void test_explain(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *decision, *word, *text;
        Fixture *f = start();
        sd_bus_message *m;

        assert_call_fails(f, ERR("InvalidArgument"), "0 bytes", "Explain", "a{sv}", 0);
        assert_call_fails(f, ERR("InvalidArgument"), "not a multiple", "Explain", "a{sv}", 1, "bytes", "t",
                          UINT64_C(4097));
        assert_call_fails(f, ERR("InvalidArgument"), "is not plain: use 1 to 64", "Explain", "a{sv}", 2,
                          "bytes", "t", MIB, "name", "s", "");
        assert_call_fails(f, ERR("NoSuchNode"), "node 77", "Explain", "a{sv}", 2, "bytes", "t", MIB, "nodes",
                          "s", "77");

        m = manager_call(f, &error, "Explain", "a{sv}", 2, "bytes", "t", UINT64_C(1) << 62, "decision", "s",
                         "always");
        assert_non_null(m);
        assert_true(sd_bus_message_read(m, "s", &decision) > 0);
        assert_string_equal(decision, "skip");
        assert_true(sd_bus_message_enter_container(m, 'a', "(ss)") > 0);
        assert_true(sd_bus_message_read(m, "(ss)", &word, &text) > 0);
        assert_string_equal(word, "no-pages");
        assert_non_null(strstr(text, "short of"));
        sd_bus_message_unref(m);

        m = manager_call(f, &error, "Explain", "a{sv}", 2, "bytes", "t", MIB, "decision", "s", "never");
        assert_non_null(m);
        assert_true(sd_bus_message_read(m, "s", &decision) > 0);
        assert_string_equal(decision, "skip");
        assert_true(sd_bus_message_enter_container(m, 'a', "(ss)") > 0);
        assert_true(sd_bus_message_read(m, "(ss)", &word, &text) > 0);
        assert_string_equal(word, "requested");
        sd_bus_message_unref(m);
        stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_sizes, fixture_teardown),
                cmocka_unit_test_teardown(test_options, fixture_teardown),
                cmocka_unit_test_teardown(test_names, fixture_teardown),
                cmocka_unit_test_teardown(test_limits, fixture_teardown),
                cmocka_unit_test_teardown(test_objects_that_are_not_there, fixture_teardown),
                cmocka_unit_test_teardown(test_build_without_vmm, fixture_teardown),
                cmocka_unit_test_teardown(test_explain, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
