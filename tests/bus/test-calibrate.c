/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Measuring this host, and what is kept of it. */
#include "fake-sysfs.h"
#include "fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NO_DEVICE "--device=/nonexistent"

static const char *calibrate(Fixture *f) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        static char copy[64];
        const char *job;
        sd_bus_message *m;

        m = manager_call(f, &error, "Calibrate", "a{sv}", 0);
        if (!m)
                fail_msg("Calibrate: %s: %s", error.name, error.message);
        assert_true(sd_bus_message_read(m, "o", &job) > 0);
        snprintf(copy, sizeof(copy), "%s", job);
        sd_bus_message_unref(m);
        return copy;
}

typedef struct Seen {
        uint64_t measured_at;
        char why[512];
        unsigned n_leaves, n_measured, n_missing, n_rates;
        int fault_1g; /* measured */
        char missing_1g[256];
} Seen;

static void read_leaves(sd_bus_message *m, Seen *s) {
        const char *missing;
        double fault, build;
        int fault_measured, build_measured;
        uint64_t size;

        assert_true(sd_bus_message_enter_container(m, 'v', "a(tdbdbs)") > 0);
        assert_true(sd_bus_message_enter_container(m, 'a', "(tdbdbs)") > 0);
        while (sd_bus_message_read(m, "(tdbdbs)", &size, &fault, &fault_measured, &build, &build_measured,
                                   &missing) > 0) {
                assert_true(fault > 0 && build > 0);
                s->n_leaves++;
                if (size == UINT64_C(1) << 30) {
                        s->fault_1g = fault_measured;
                        snprintf(s->missing_1g, sizeof(s->missing_1g), "%s", missing);
                }
                s->n_measured += (unsigned) (fault_measured + build_measured);
                s->n_missing += missing[0] != '\0';
        }
        sd_bus_message_exit_container(m);
        sd_bus_message_exit_container(m);
}

static void read_rates(sd_bus_message *m, Seen *s) {
        uint64_t size, rate;
        uint32_t node;

        assert_true(sd_bus_message_enter_container(m, 'v', "a(utt)") > 0);
        assert_true(sd_bus_message_enter_container(m, 'a', "(utt)") > 0);
        while (sd_bus_message_read(m, "(utt)", &node, &size, &rate) > 0) {
                /* A host that populates less than that in a second has other problems. */
                assert_true(rate > MIB);
                s->n_rates++;
        }
        sd_bus_message_exit_container(m);
        sd_bus_message_exit_container(m);
}

static Seen look(Fixture *f) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = NULL;
        const char *key, *s;
        Seen seen = {};

        if (sd_bus_get_property(f->bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "Calibration", &error, &m,
                                "a{sv}") < 0)
                fail_msg("Calibration: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "{sv}") > 0);
        while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
                assert_true(sd_bus_message_read(m, "s", &key) > 0);
                if (strcmp(key, "measured-at") == 0)
                        assert_true(sd_bus_message_read(m, "v", "t", &seen.measured_at) > 0);
                else if (strcmp(key, "why") == 0) {
                        assert_true(sd_bus_message_read(m, "v", "s", &s) > 0);
                        snprintf(seen.why, sizeof(seen.why), "%s", s);
                } else if (strcmp(key, "leaves") == 0)
                        read_leaves(m, &seen);
                else
                        read_rates(m, &seen);
                sd_bus_message_exit_container(m);
        }
        sd_bus_message_unref(m);
        assert_int_equal(seen.n_leaves, 3);
        return seen;
}

/* What cannot be measured here is said not to be, each with its reason; the rest is measured and kept. */
static void test_measures_what_it_can(void **state) {
        uint64_t free_before;
        char path[128];
        struct stat st;
        Fixture *f;
        Seen s;

        (void) pool_grow(16);
        free_before = pool_read("free_hugepages");
        f = fixture_start(NULL, NO_DEVICE);
        s = look(f);
        assert_int_equal(s.measured_at, 0);
        assert_non_null(strstr(s.why, "never calibrated"));
        assert_int_equal(s.n_measured, 0);

        assert_string_equal(wait_job(f, calibrate(f))->result, "done");
        s = look(f);
        assert_true(s.measured_at > 0);
        assert_string_equal(s.why, "");
        /* 4K and 2M on node 0 at the least. */
        assert_true(s.n_rates >= 2);
        assert_true(s.n_missing >= 1);
        assert_pool_free(free_before);
        snprintf(path, sizeof(path), "%s/data/calibration", f->dir);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0644);
        fixture_stop(f);
}

static void restart(Fixture *f) {
        fixture_kill_tdpd(f, SIGTERM);
        f->n_ends = 0; /* jobs are numbered from 1 again */
        fixture_restart(f);
}

static void write_text(const char *path, const char *text) {
        FILE *f = fopen(path, "we");

        assert_non_null(f);
        fputs(text, f);
        assert_int_equal(fclose(f), 0);
}

/* It is read again at the start.  Another host's, or whatever else is there, is not used, and harms nobody.
 */
static void test_kept_over_a_restart(void **state) {
        Fixture *f = fixture_start(NULL, NO_DEVICE);
        uint64_t measured_at;
        char path[128];

        assert_string_equal(wait_job(f, calibrate(f))->result, "done");
        measured_at = look(f).measured_at;
        restart(f);
        assert_int_equal(look(f).measured_at, measured_at);

        snprintf(path, sizeof(path), "%s/data/calibration", f->dir);
        write_text(path, "tdpd-calibration 1\ncpu Another\nkernel 1.0\nleaf 4096 7 7\nend\n");
        restart(f);
        assert_non_null(strstr(look(f).why, "calibration is of Another with kernel 1.0"));
        assert_int_equal(look(f).n_measured, 0);
        write_text(path, "\x01\xff nonsense");
        restart(f);
        assert_non_null(strstr(look(f).why, "no calibration"));
        assert_string_equal(wait_job(f, calibrate(f))->result, "done");
        assert_string_equal(look(f).why, "");
        fixture_stop(f);
}

static void test_refusals(void **state) {
        Fixture *f = fixture_start(NULL, NO_DEVICE);
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m;
        char job[64];
        Seen s;

        assert_call_fails(f, ERR("InvalidArgument"), "there are none", "Calibrate", "a{sv}", 1, "vcpus", "u",
                          (uint32_t) 1);

        snprintf(job, sizeof(job), "%s", calibrate(f));
        assert_call_fails(f, ERR("Busy"), "calibrates already", "Calibrate", "a{sv}", 0);
        m = call(f->bus, &error, job, "org.tdpd1.Job", "Cancel", NULL);
        assert_non_null(m);
        sd_bus_message_unref(m);
        assert_string_equal(wait_job(f, job)->result, "canceled");
        s = look(f);
        assert_int_equal(s.measured_at, 0);

        /* There is no place to keep it: said, and nothing is used that was not kept. */
        {
                char path[128];

                snprintf(path, sizeof(path), "%s/data", f->dir);
                rmdir(path);
                write_text(path, "a file");
                snprintf(job, sizeof(job), "%s", calibrate(f));
                assert_string_equal(wait_job(f, job)->result, "failed");
                assert_non_null(strstr(wait_job(f, job)->message, "cannot be kept in"));
                assert_int_equal(look(f).measured_at, 0);
                unlink(path);
        }
        fixture_stop(f);
}

/* Nothing to measure with on the whole host: said at once, and no job is left that has nothing to do. */
static void test_no_memory_is_free(void **state) {
        char arg[96];
        Fixture *f;

        put("0\n", "devices/system/node/online");
        put_node(0, "0-3\n", "0");
        put_pool(0, "2048", "0\n");
        snprintf(arg, sizeof(arg), "--sysfs-root=%s", fake_sysfs_root());
        f = fixture_start(NULL, arg);
        for (unsigned i = 0; i < 2; i++)
                assert_call_fails(f, ERR("NoPages"), "what was measured before stays", "Calibrate", "a{sv}",
                                  0);
        assert_int_equal(look(f).measured_at, 0);
        fixture_stop(f);
}

/* One page of 1 GiB is enough to measure its leaf, and it comes back. */
static void test_large_leaf(void **state) {
        uint64_t available, others;
        Fixture *f;
        Seen s;

        require_kvm();
        pool_grow_1g();
        f = fixture_start(NULL, NO_DEVICE);
        assert_string_equal(wait_job(f, calibrate(f))->result, "done");
        s = look(f);
        if (!s.fault_1g || !strstr(s.missing_1g, "no /dev/kvm-gtdp"))
                fail_msg("1G: %s", s.missing_1g);
        read_available(f, "/org/tdpd1/node/0", UINT64_C(1) << 30, &available, &others);
        assert_int_equal(available, 1);
        fixture_stop(f);
}

static void test_ends_with_the_daemon(void **state) {
        Fixture *f = fixture_start(NULL, NO_DEVICE);

        (void) calibrate(f);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_measures_what_it_can, fixture_teardown),
                cmocka_unit_test_teardown(test_kept_over_a_restart, fixture_teardown),
                cmocka_unit_test_teardown(test_refusals, fixture_teardown),
                cmocka_unit_test_setup_teardown(test_no_memory_is_free, fake_sysfs_setup,
                                                fake_sysfs_teardown),
                cmocka_unit_test_teardown(test_large_leaf, fixture_teardown),
                cmocka_unit_test_teardown(test_ends_with_the_daemon, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
