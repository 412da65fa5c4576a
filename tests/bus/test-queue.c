/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reservations that wait for pages. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MINUTE UINT64_C(60000000)

/* A reservation of so many pages on node 0; false, with "error": it is refused. */
static bool try_waiting(Fixture *f, const char *name, uint64_t pages, uint64_t usec, Reservation *ret,
                        sd_bus_error *error) {
        const char *vm, *job;
        sd_bus_message *m;

        m = manager_call(f, error, "Reserve", "sta{sv}", name, pages * HUGE_2M, 3, "page-size", "t", HUGE_2M,
                         "nodes", "s", "0", "wait-usec", "t", usec);
        if (!m)
                return false;
        assert_true(sd_bus_message_read(m, "oo", &vm, &job) > 0);
        snprintf(ret->vm, sizeof(ret->vm), "%s", vm);
        snprintf(ret->job, sizeof(ret->job), "%s", job);
        sd_bus_message_unref(m);
        return true;
}

static Reservation waiting(Fixture *f, const char *name, uint64_t pages, uint64_t usec) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Reservation r;

        if (!try_waiting(f, name, pages, usec, &r, &error))
                fail_msg("Reserve: %s: %s", error.name, error.message);
        return r;
}

static Reservation granted(Fixture *f, const char *name, uint64_t pages) {
        Reservation r = waiting(f, name, pages, 0);

        assert_string_equal(wait_job(f, r.job)->result, "done");
        return r;
}

static void assert_phase(Fixture *f, const Reservation *r, const char *phase) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        char *s = NULL;

        if (sd_bus_get_property_string(f->bus, "org.tdpd1", r->job, "org.tdpd1.Job", "Phase", &error, &s) <
            0)
                fail_msg("Phase of %s: %s", r->job, error.message);
        assert_string_equal(s, phase);
        free(s);
}

static void assert_served(Fixture *f, const Reservation *r) {
        const JobEnd *end = wait_job(f, r->job);
        char *s;

        if (strcmp(end->result, "done") != 0)
                fail_msg("%s: %s: %s", r->vm, end->result, end->message);
        s = vm_state(f, r->vm);
        assert_string_equal(s, "populated");
        free(s);
}

static void cancel(Fixture *f, const char *job) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = call(f->bus, &error, job, "org.tdpd1.Job", "Cancel", NULL);

        if (!m)
                fail_msg("Cancel: %s", error.message);
        sd_bus_message_unref(m);
}

static void case_36_waits_for_pages(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        uint64_t available = pool_grow(8), size = 1;
        Fixture *f = fixture_start(NULL, NULL);
        Reservation a = granted(f, "a", available), b;
        char *s;

        b = waiting(f, "b", available, MINUTE);
        assert_phase(f, &b, "wait");
        s = vm_state(f, b.vm);
        assert_string_equal(s, "reserved");
        free(s);
        assert_true(sd_bus_get_property_trivial(f->bus, "org.tdpd1", b.vm, "org.tdpd1.VM", "PageSize",
                                                &error, 't', &size) >= 0);
        assert_int_equal(size, 0);
        assert_null(call(f->bus, &error, b.vm, "org.tdpd1.VM", "GetMemory", NULL));
        assert_error_is(&error, ERR("Busy"), "wait for the end of its job");
        assert_call_fails(f, ERR("NameTaken"), "there is a VM \"b\" already", "Reserve", "sta{sv}", "b",
                          HUGE_2M, 0);

        release(f, a.vm);
        assert_served(f, &b);
        assert_true(sd_bus_get_property_trivial(f->bus, "org.tdpd1", b.vm, "org.tdpd1.VM", "PageSize",
                                                &error, 't', &size) >= 0);
        assert_int_equal(size, HUGE_2M);
        assert_true(sd_bus_get_property_string(f->bus, "org.tdpd1", b.vm, "org.tdpd1.VM", "Nodes", &error,
                                               &s) >= 0);
        assert_string_equal(s, "0");
        free(s);
        fixture_stop(f);
}

/* The first one gets them, the other one the next time. */
static void test_two_for_the_last_pages(void **state) {
        uint64_t available = pool_grow(8);
        Fixture *f = fixture_start(NULL, NULL);
        Reservation a = granted(f, "a", available), b, c;

        b = waiting(f, "b", available, MINUTE);
        c = waiting(f, "c", available, MINUTE);
        release(f, a.vm);
        assert_served(f, &b);
        assert_phase(f, &c, "wait");
        release(f, b.vm);
        assert_served(f, &c);
        fixture_stop(f);
}

static void test_order(void **state) {
        uint64_t available = pool_grow(8);
        Fixture *f = fixture_start(NULL, NULL);
        Reservation a = granted(f, "a", available - 1), b, c, d;

        b = waiting(f, "b", available - 2, MINUTE);
        /* There is a page, and it is b's: neither who waits nor who does not goes before. */
        c = waiting(f, "c", 1, MINUTE);
        d = waiting(f, "d", 2, MINUTE);
        assert_call_fails(f, ERR("NoPages"), "1 free, 1 reserved on node 0 for requests that wait",
                          "Reserve", "sta{sv}", "e", HUGE_2M, 2, "page-size", "t", HUGE_2M, "nodes", "s",
                          "0");
        assert_phase(f, &c, "wait");
        release(f, a.vm);
        assert_served(f, &b);
        assert_served(f, &c);
        assert_phase(f, &d, "wait");
        /* Small pages are none of theirs. */
        a = reserve(f, "small", MIB, 4096);
        assert_string_equal(wait_job(f, a.job)->result, "done");
        release(f, c.vm);
        assert_served(f, &d);
        fixture_stop(f);
}

static void test_deadline(void **state) {
        uint64_t available = pool_grow(8), start;
        Fixture *f = fixture_start(NULL, NULL);
        Reservation a = granted(f, "a", available), b;
        const JobEnd *end;

        start = now_usec();
        b = waiting(f, "b", 1, 200000);
        end = wait_job(f, b.job);
        assert_true(now_usec() - start >= 200000);
        assert_string_equal(end->result, "failed");
        assert_string_equal(end->error, ERR("NoPages"));
        if (!strstr(end->message, "waited 2") || !strstr(end->message, "asked 1 pages of 2 MiB on node 0") ||
            !strstr(end->message, "short of 1"))
                fail_msg("%s", end->message);
        assert_int_equal(count_vms(f), 1);
        assert_call_fails(f, ERR("InvalidArgument"), "at most 86400000000", "Reserve", "sta{sv}", "c",
                          HUGE_2M, 1, "wait-usec", "t", UINT64_C(86400000001));
        assert_call_fails(f, ERR("InvalidArgument"), "is not a multiple", "Reserve", "sta{sv}", "c",
                          HUGE_2M + 1, 1, "wait-usec", "t", MINUTE);
        release(f, a.vm);
        fixture_stop(f);
}

static void test_cancel_and_release(void **state) {
        uint64_t available = pool_grow(8);
        Fixture *f = fixture_start(NULL, NULL);
        Reservation a = granted(f, "a", available - 1), b, c, d;
        const JobEnd *end;

        b = waiting(f, "b", available, MINUTE);
        c = waiting(f, "c", available, MINUTE);
        d = waiting(f, "d", 1, MINUTE);
        cancel(f, b.job);
        end = wait_job(f, b.job);
        assert_string_equal(end->result, "canceled");
        assert_string_equal(end->error, ERR("Canceled"));
        assert_phase(f, &d, "wait");
        release(f, c.vm);
        assert_string_equal(wait_job(f, c.job)->result, "canceled");
        /* Nobody is before it any more. */
        assert_served(f, &d);
        assert_int_equal(count_vms(f), 2);
        release(f, a.vm);
        fixture_stop(f);
}

static void test_limits(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        uint64_t available = pool_grow(8);
        Fixture *f = fixture_start("[Limits]\nMaxWaiting=4\n", NULL);
        Reservation a = granted(f, "a", available), b, c;

        b = waiting(f, "b", 1, MINUTE);
        (void) waiting(f, "c", 1, MINUTE);
        assert_false(try_waiting(f, "d", 1, MINUTE, &c, &error));
        assert_error_is(&error, ERR("LimitExceeded"), "of MaxWaiting=4");
        assert_int_equal(count_vms(f), 3);
        cancel(f, b.job);
        assert_string_equal(wait_job(f, b.job)->result, "canceled");
        c = waiting(f, "d", 1, MINUTE);
        assert_phase(f, &c, "wait");
        release(f, a.vm);
        assert_served(f, &c);
        fixture_stop(f);

        f = fixture_start("[Limits]\nMaxWaiting=0\n", NULL);
        a = granted(f, "a", available);
        assert_false(try_waiting(f, "b", 1, MINUTE, &b, &error));
        assert_error_is(&error, ERR("LimitExceeded"), "MaxWaiting=0");
        fixture_stop(f);
}

/* Whoever asks for more than there is keeps nobody waiting, and is served when the pool has grown. */
static void test_pool_grows(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        uint64_t available = pool_grow(8), total = pool_read("nr_hugepages");
        Fixture *f = fixture_start("[Pools]\nWatchSec=1\n", NULL);
        Reservation b = waiting(f, "b", available + 4, MINUTE), a;
        sd_bus_message *m;

        a = granted(f, "a", available);
        assert_phase(f, &b, "wait");
        release(f, a.vm);
        assert_phase(f, &b, "wait");
        m = call(f->bus, &error, "/org/tdpd1/node/0", "org.tdpd1.Node", "SetPool", "tta{sv}", HUGE_2M,
                 total + 4, 0);
        if (!m)
                fail_msg("SetPool: %s", error.message);
        sd_bus_message_unref(m);
        assert_served(f, &b);

        /* Another one grows it behind our back. */
        b = waiting(f, "c", 2, MINUTE);
        pool_grow_again(4, 2);
        assert_served(f, &b);
        fixture_stop(f);
}

static void test_daemon_ends(void **state) {
        uint64_t available = pool_grow(8);
        Fixture *f = fixture_start(NULL, NULL);

        (void) granted(f, "a", available);
        (void) waiting(f, "b", 1, MINUTE);
        (void) waiting(f, "c", 1, MINUTE);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(case_36_waits_for_pages, fixture_teardown),
                cmocka_unit_test_teardown(test_two_for_the_last_pages, fixture_teardown),
                cmocka_unit_test_teardown(test_order, fixture_teardown),
                cmocka_unit_test_teardown(test_deadline, fixture_teardown),
                cmocka_unit_test_teardown(test_cancel_and_release, fixture_teardown),
                cmocka_unit_test_teardown(test_limits, fixture_teardown),
                cmocka_unit_test_teardown(test_pool_grows, fixture_teardown),
                cmocka_unit_test_teardown(test_daemon_ends, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
