/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "account.h"
#include "bus-error.h"

static Accounts accounts;

static int setup(void **state) {
        accounts = (Accounts){ .limits = { .vms = 2, .bytes = 100, .jobs = 1 } };
        return 0;
}

/* The last charge takes the account with it. */
static int teardown(void **state) {
        return accounts.by_uid ? -1 : 0;
}

static void refuse(uid_t uid, uint64_t vms, uint64_t bytes, uint64_t jobs, const char *key) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Charge c = {};

        assert_true(charge_take(&c, &accounts, uid, vms, bytes, jobs, &error) < 0);
        assert_string_equal(error.name, TDP_ERROR_LIMIT);
        assert_non_null(strstr(error.message, key));
        assert_null(c.account);
        sd_bus_error_free(&error);
}

static void test_limits(void **state) {
        Charge a = {}, b = {}, other = {};

        refuse(1, 3, 0, 0, "MaxVMs");
        refuse(1, 0, 101, 0, "MaxBytes");
        refuse(1, 1, UINT64_MAX, 0, "MaxBytes");
        assert_int_equal(charge_take(&a, &accounts, 1, 1, 60, 0, NULL), 0);
        refuse(1, 1, 41, 0, "MaxBytes");
        refuse(1, 1, UINT64_MAX, 0, "MaxBytes"); /* 60 more would wrap around */
        refuse(1, 2, 0, 0, "MaxVMs");
        assert_int_equal(charge_take(&b, &accounts, 1, 1, 40, 1, NULL), 0);
        refuse(1, 0, 0, 1, "MaxJobs");
        refuse(1, 0, 1, 0, "MaxBytes");

        /* Another user has limits of its own. */
        assert_int_equal(charge_take(&other, &accounts, 2, 2, 100, 1, NULL), 0);
        charge_return(&other);

        charge_return(&a);
        assert_int_equal(charge_take(&a, &accounts, 1, 1, 60, 0, NULL), 0);
        charge_return(&a);
        charge_return(&a); /* the second time does nothing */
        charge_return(&b);
}

/* A refused charge leaves everything as it was. */
static void test_all_or_nothing(void **state) {
        Charge a = {}, b = {};

        assert_int_equal(charge_take(&a, &accounts, 1, 1, 50, 1, NULL), 0);
        refuse(1, 1, 50, 1, "MaxJobs");
        assert_int_equal(charge_take(&b, &accounts, 1, 1, 50, 0, NULL), 0);
        charge_return(&b);
        charge_return(&a);
}

static void test_resize(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Charge a = {}, b = {};

        assert_int_equal(charge_take(&a, &accounts, 1, 1, 50, 0, NULL), 0);
        assert_int_equal(charge_take(&b, &accounts, 1, 1, 30, 0, NULL), 0);
        assert_true(charge_resize(&b, 51, &error) < 0);
        assert_string_equal(error.name, TDP_ERROR_LIMIT);
        sd_bus_error_free(&error);
        assert_true(charge_resize(&b, UINT64_MAX, &error) < 0);
        sd_bus_error_free(&error);
        assert_int_equal(b.bytes, 30);

        assert_int_equal(charge_resize(&b, 50, NULL), 0);
        refuse(1, 0, 1, 0, "MaxBytes");
        assert_int_equal(charge_resize(&a, 10, NULL), 0);
        refuse(1, 0, 41, 0, "MaxBytes");
        charge_return(&b);
        refuse(1, 0, 91, 0, "MaxBytes");
        charge_return(&a);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
                cmocka_unit_test_setup_teardown(test_all_or_nothing, setup, teardown),
                cmocka_unit_test_setup_teardown(test_resize, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
