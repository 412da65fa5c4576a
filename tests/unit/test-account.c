/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "account.h"
#include "bus-error.h"

static Accounts accounts;

static int setup(void **state) {
        accounts = (Accounts){ .limits = { .vms = 2, .bytes = 100, .jobs = 1, .fds = 5, .calls = 3 } };
        return 0;
}

/* The last charge takes the account with it. */
static int teardown(void **state) {
        return accounts.by_uid ? -1 : 0;
}

#define AMOUNTS(...) (&(Amounts){ __VA_ARGS__ })

static void refuse(uid_t uid, const Amounts *amounts, const char *key) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Charge c = {};

        assert_int_equal(charge_take(&c, &accounts, uid, amounts, &error), -EDQUOT);
        assert_string_equal(error.name, TDP_ERROR_LIMIT);
        assert_non_null(strstr(error.message, key));
        assert_null(c.account);
        sd_bus_error_free(&error);
}

static void take(Charge *c, uid_t uid, const Amounts *amounts) {
        assert_int_equal(charge_take(c, &accounts, uid, amounts, NULL), 0);
}

static void test_limits(void **state) {
        Charge a = {}, b = {}, other = {};

        refuse(1, AMOUNTS(.vms = 3), "MaxVMs");
        refuse(1, AMOUNTS(.bytes = 101), "MaxBytes");
        refuse(1, AMOUNTS(.vms = 1, .bytes = UINT64_MAX), "MaxBytes");
        refuse(1, AMOUNTS(.fds = 6), "MaxFDs");
        refuse(1, AMOUNTS(.calls = 4), "MaxCalls");
        take(&a, 1, AMOUNTS(.vms = 1, .bytes = 60, .fds = 5));
        refuse(1, AMOUNTS(.vms = 1, .bytes = 41), "MaxBytes");
        refuse(1, AMOUNTS(.vms = 1, .bytes = UINT64_MAX), "MaxBytes"); /* 60 more would wrap around */
        refuse(1, AMOUNTS(.vms = 2), "MaxVMs");
        refuse(1, AMOUNTS(.fds = 1), "user 1 has 5 descriptors and asks for 1 more, of at most 5");
        take(&b, 1, AMOUNTS(.vms = 1, .bytes = 40, .jobs = 1));
        refuse(1, AMOUNTS(.jobs = 1), "MaxJobs");
        refuse(1, AMOUNTS(.bytes = 1), "MaxBytes");

        /* Another user has limits of its own. */
        take(&other, 2, AMOUNTS(.vms = 2, .bytes = 100, .jobs = 1, .fds = 5, .calls = 3));
        charge_return(&other);

        charge_return(&a);
        take(&a, 1, AMOUNTS(.vms = 1, .bytes = 60));
        charge_return(&a);
        charge_return(&a); /* the second time does nothing */
        charge_return(&b);
}

/* A refused charge leaves everything as it was. */
static void test_all_or_nothing(void **state) {
        Charge a = {}, b = {};

        take(&a, 1, AMOUNTS(.vms = 1, .bytes = 50, .jobs = 1));
        refuse(1, AMOUNTS(.vms = 1, .bytes = 50, .jobs = 1), "MaxJobs");
        take(&b, 1, AMOUNTS(.vms = 1, .bytes = 50));
        charge_return(&b);
        charge_return(&a);
}

static void test_resize(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Charge a = {}, b = {};

        take(&a, 1, AMOUNTS(.vms = 1, .bytes = 50));
        take(&b, 1, AMOUNTS(.vms = 1, .bytes = 30));
        assert_int_equal(charge_resize(&b, 51, &error), -EDQUOT);
        assert_string_equal(error.name, TDP_ERROR_LIMIT);
        sd_bus_error_free(&error);
        assert_int_equal(charge_resize(&b, UINT64_MAX, NULL), -EDQUOT);
        assert_int_equal(b.amounts.bytes, 30);

        assert_int_equal(charge_resize(&b, 50, NULL), 0);
        refuse(1, AMOUNTS(.bytes = 1), "MaxBytes");
        assert_int_equal(charge_resize(&a, 10, NULL), 0);
        refuse(1, AMOUNTS(.bytes = 41), "MaxBytes");
        charge_return(&b);
        refuse(1, AMOUNTS(.bytes = 91), "MaxBytes");
        charge_return(&a);
}

/* A limit that is lower than what is there refuses more, and nothing else. */
static void test_lower_limits(void **state) {
        Charge a = {};

        take(&a, 1, AMOUNTS(.vms = 2, .bytes = 100, .jobs = 1));
        accounts.limits = (Amounts){ .vms = 1, .bytes = 10 };
        refuse(1, AMOUNTS(.vms = 1), "MaxVMs");
        refuse(1, AMOUNTS(.bytes = 1), "MaxBytes");
        assert_int_equal(charge_resize(&a, 101, NULL), -EDQUOT);
        assert_int_equal(charge_resize(&a, 100, NULL), 0);
        assert_int_equal(charge_set(&a, AMOUNTS(.vms = 1, .bytes = 50, .jobs = 1), NULL), 0);
        refuse(1, AMOUNTS(.bytes = 1), "MaxBytes");
        charge_return(&a);
        take(&a, 1, AMOUNTS(.vms = 1, .bytes = 10));
        charge_return(&a);
}

static unsigned seed;

static uint64_t rnd(uint64_t n) {
        seed = seed * 1103515245 + 12345;
        return (seed >> 8) % n;
}

static Amounts some_amounts(void) {
        return (Amounts){ .vms = rnd(3),
                          .bytes = rnd(8) ? rnd(60) : UINT64_MAX - rnd(3),
                          .jobs = rnd(2),
                          .fds = rnd(4),
                          .calls = rnd(3) };
}

#define USERS   3U
#define CHARGES 12U
#define FIELDS  (sizeof(Amounts) / sizeof(uint64_t))

static bool fits(const uint64_t *sum, const uint64_t *old, const uint64_t *new, const uint64_t *limit) {
        for (size_t i = 0; i < FIELDS; i++)
                if (new[i] > old[i] &&
                    (unsigned __int128) sum[i] - old[i] + new[i] > (unsigned __int128) limit[i])
                        return false;
        return true;
}

/* Whatever the order: what an account has is the sum of its charges, it never passes a limit, and all that
 * fits is granted.  Sums are kept apart here, and in a wider type. */
static void test_random_sequences(void **state) {
        for (seed = 1; seed < 200000; seed += 1000) {
                Charge charges[CHARGES] = {};
                Amounts sums[USERS] = {};

                for (unsigned step = 0; step < 400; step++) {
                        size_t i = rnd(CHARGES), user = i % USERS;
                        uint64_t *sum = (uint64_t *) &sums[user];
                        Charge *c = &charges[i];
                        Amounts old = c->amounts, new = some_amounts();
                        int r;

                        if (c->account && rnd(3) == 0) {
                                new = (Amounts){};
                                charge_return(c);
                                r = 0;
                        } else {
                                bool fit = fits(sum, (uint64_t *) &old, (uint64_t *) &new,
                                                (uint64_t *) &accounts.limits);

                                r = c->account ? charge_set(c, &new, NULL)
                                               : charge_take(c, &accounts, (uid_t) user, &new, NULL);
                                assert_int_equal(r, fit ? 0 : -EDQUOT);
                        }
                        for (size_t k = 0; r == 0 && k < FIELDS; k++)
                                sum[k] += ((uint64_t *) &new)[k] - ((uint64_t *) &old)[k];

                        for (size_t k = 0; k < CHARGES; k++)
                                if (charges[k].account)
                                        assert_memory_equal(&charges[k].account->has, &sums[k % USERS],
                                                            sizeof(Amounts));
                        for (size_t k = 0; k < FIELDS; k++)
                                assert_true(sum[k] <= ((uint64_t *) &accounts.limits)[k]);
                }
                for (size_t i = 0; i < CHARGES; i++)
                        charge_return(&charges[i]);
                assert_null(accounts.by_uid);
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                TEST(test_limits),       TEST(test_all_or_nothing),   TEST(test_resize),
                TEST(test_lower_limits), TEST(test_random_sequences),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
