/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sizes of pools: this machine's own of 2 MiB. */
#include "pool-calls.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_grow_and_shrink(void **state) {
        uint64_t before, n;
        Fixture *f;

        pool_grow(8);
        before = pool_read("nr_hugepages");
        f = fixture_start(NULL, NULL);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, before + 40, "set", false), "done", "", "");
        assert_int_equal(pool_read("nr_hugepages"), before + 40);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 20, "grow", false), "done", "", "");
        assert_int_equal(pool_read("nr_hugepages"), before + 60);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 60, "shrink", false), "done", "", "");
        n = pool_read("nr_hugepages");
        assert_int_equal(n, before);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, before, "set", false), "done", "", "");
        fixture_stop(f);
}

static void test_shrink_takes_from_nobody(void **state) {
        uint64_t before, in_use;
        char text[64];
        Reservation a;
        Fixture *f;

        pool_grow(16);
        before = pool_read("nr_hugepages");
        f = fixture_start(NULL, NULL);
        a = reserve(f, "a", 10 * HUGE_2M, HUGE_2M);
        wait_job(f, a.job);
        in_use = before - pool_read("free_hugepages");
        snprintf(text, sizeof(text), "%" PRIu64 " are in use", in_use);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 0, "set", false), "failed", ERR("Busy"), text);
        assert_int_equal(pool_read("nr_hugepages"), before);
        assert_int_equal(pool_read("surplus_hugepages"), 0);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 0, "set", true), "failed", ERR("Partial"), "stay");
        assert_in_range(pool_read("nr_hugepages"), in_use, before - 1);
        assert_int_equal(pool_read("surplus_hugepages"), 0);
        release(f, a.vm);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, before, "set", false), "done", "", "");
        fixture_stop(f);
}

static void test_case_08_two_at_once_add_up(void **state) {
        const char *jobs[6];
        uint64_t before;
        Fixture *f;

        pool_grow(2);
        before = pool_read("nr_hugepages");
        f = fixture_start(NULL, NULL);
        for (unsigned i = 0; i < 6; i++)
                jobs[i] = set_pool(f, NODE0, HUGE_2M, i + 1, "grow", false);
        for (unsigned i = 0; i < 6; i++)
                assert_end(f, jobs[i], "done", "", "");
        assert_int_equal(pool_read("nr_hugepages"), before + 21);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 21, "shrink", false), "done", "", "");
        assert_int_equal(pool_read("nr_hugepages"), before);
        fixture_stop(f);
}

static void test_case_28_seen_and_signalled(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        uint64_t available, others;
        sd_bus_message *m;
        char path[64];
        Fixture *f;

        f = fixture_start(pools_config(""), NULL);
        watch_pools(f, NODE0);
        usleep(1200000);
        pool_grow(12);
        process_until(f, &pools_changed, 1);
        read_available(f, NODE0, HUGE_2M, &available, &others);
        assert_true(available >= 12);
        snprintf(path, sizeof(path), "%s", MANAGER);
        m = call(f->bus, &error, path, "org.tdpd1.Manager", "Explain", "a{sv}", 3, "bytes", "t",
                 12 * HUGE_2M, "page-size", "t", HUGE_2M, "nodes", "s", "0");
        assert_non_null(m);
        sd_bus_message_unref(m);
        fixture_stop(f);
}

static void test_pool_low(void **state) {
        uint64_t available, others;
        Reservation a;
        Fixture *f;

        pool_grow(20);
        f = fixture_start(pools_config("LowPercent=50\n"), NULL);
        read_available(f, NODE0, HUGE_2M, &available, &others);
        watch_pools(f, NODE0);
        a = reserve(f, "a", available * HUGE_2M, HUGE_2M);
        process_until(f, &pool_lows, 1);
        wait_job(f, a.job);
        usleep(2200000);
        while (sd_bus_process(f->bus, NULL) > 0)
                ;
        /* Once, not each time that it is looked at. */
        assert_int_equal(pool_lows, 1);
        release(f, a.vm);
        fixture_stop(f);
}

static unsigned won, refused;

static int on_reserved(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        sd_bus_error error = SD_BUS_ERROR_NULL;

        if (!sd_bus_message_is_method_error(m, NULL)) {
                won++;
                return 0;
        }
        assert_true(sd_bus_error_copy(&error, sd_bus_message_get_error(m)) < 0);
        assert_error_is(&error, ERR("NoPages"), "short of");
        refused++;
        return 0;
}

static void test_case_30_ten_slots_for_sixteen(void **state) {
        uint64_t available, others;
        Fixture *f;

        pool_grow(20);
        f = fixture_start(NULL, NULL);
        read_available(f, NODE0, HUGE_2M, &available, &others);
        if (available < 20)
                fail_msg("%" PRIu64 " pages can be had of 20", available);
        won = refused = 0;
        /* Ten slots of the same size, whatever was there before; all are on their way before one is served.
         */
        for (unsigned i = 0; i < 16; i++) {
                char name[16];

                snprintf(name, sizeof(name), "vm%u", i);
                assert_true(sd_bus_call_method_async(f->bus, NULL, "org.tdpd1", MANAGER, "org.tdpd1.Manager",
                                                     "Reserve", on_reserved, NULL, "sta{sv}", name,
                                                     available / 10 * HUGE_2M, 2, "page-size", "t", HUGE_2M,
                                                     "nodes", "s", "0") >= 0);
        }
        process_until(f, &won, 10);
        process_until(f, &refused, 6);
        assert_int_equal(won, 10);
        assert_int_equal(refused, 6);
        fixture_stop(f);
}

static void test_case_30_two_for_the_last_pages(void **state) {
        uint64_t available, others;
        Fixture *f;

        pool_grow(4);
        f = fixture_start(NULL, NULL);
        read_available(f, NODE0, HUGE_2M, &available, &others);
        for (unsigned round = 0; round < 5; round++) {
                won = refused = 0;
                for (unsigned i = 0; i < 2; i++)
                        assert_true(sd_bus_call_method_async(f->bus, NULL, "org.tdpd1", MANAGER,
                                                             "org.tdpd1.Manager", "Reserve", on_reserved,
                                                             NULL, "sta{sv}", i == 0 ? "a" : "b",
                                                             available * HUGE_2M, 1, "page-size", "t",
                                                             HUGE_2M) >= 0);
                process_until(f, &won, 1);
                process_until(f, &refused, 1);
                assert_int_equal(won, 1);
                assert_int_equal(refused, 1);
                release(f, "/org/tdpd1/vm/a");
                assert_pool_free(available);
        }
        fixture_stop(f);
}

/* Machines of files. */

static void test_refused(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Fixture *f = fixture_start(NULL, NULL);

        assert_set_fails(f, NODE0, 12345, 1, "set", ERR("InvalidArgument"),
                         "no pool of pages of 12345 bytes");
        assert_set_fails(f, NODE0, 0, 1, "set", ERR("InvalidArgument"), "no pool");
        assert_set_fails(f, NODE0, HUGE_2M, 1, "more", ERR("InvalidArgument"), "use set, grow or shrink");
        assert_set_fails(f, NODE0, HUGE_2M, UINT64_MAX, "set", ERR("InvalidArgument"),
                         "more than all memory");
        assert_set_fails(f, NODE0, HUGE_2M, UINT64_MAX, "grow", ERR("InvalidArgument"),
                         "more than all memory");
        assert_null(call(f->bus, &error, NODE0, "org.tdpd1.Node", "SetPool", "tta{sv}", HUGE_2M, UINT64_C(1),
                         1, "allow-partial", "s", "yes"));
        assert_error_is(&error, ERR("InvalidArgument"), "must be 'b'");
        assert_null(call(f->bus, &error, NODE0, "org.tdpd1.Node", "SetPool", "tta{sv}", HUGE_2M, UINT64_C(1),
                         1, "force", "b", 1));
        assert_error_is(&error, ERR("InvalidArgument"), "is unknown here");
        assert_end(f, set_pool(f, NODE0, HUGE_2M, UINT64_C(1) << 50, "shrink", false), "failed",
                   ERR("InvalidArgument"), "where there are");
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_grow_and_shrink, fixture_teardown),
                cmocka_unit_test_teardown(test_shrink_takes_from_nobody, fixture_teardown),
                cmocka_unit_test_teardown(test_case_08_two_at_once_add_up, fixture_teardown),
                cmocka_unit_test_teardown(test_case_28_seen_and_signalled, fixture_teardown),
                cmocka_unit_test_teardown(test_pool_low, fixture_teardown),
                cmocka_unit_test_teardown(test_case_30_ten_slots_for_sixteen, fixture_teardown),
                cmocka_unit_test_teardown(test_case_30_two_for_the_last_pages, fixture_teardown),
                cmocka_unit_test_teardown(test_refused, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
