/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "calibration.h"

static char dir[] = "/tmp/tdpd-calibration-XXXXXX";

static int setup(void **state) {
        strcpy(dir + sizeof(dir) - 7, "XXXXXX");
        return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
        char path[64];

        snprintf(path, sizeof(path), "%s/calibration", dir);
        unlink(path);
        rmdir(path);
        /* Fails if something else has been left there. */
        return rmdir(dir);
}

static Calibration some(void) {
        return (Calibration){
                .host = { "AMD EPYC (R)", "6.12.9" },
                .measured_at = 1700000000,
                .leaves = { { KIB(4), 1800, 90, "" },
                            { MIB(2), 2100, 0, "no /dev/kvm-gtdp" },
                            { GIB(1), 0, 0, "no page" } },
                .rates = { { 0, KIB(4), 4000000000 }, { 1, MIB(2), 9000000000 } },
                .n_rates = 2,
        };
}

static void assert_same(const Calibration *a, const Calibration *b) {
        assert_string_equal(a->host.cpu, b->host.cpu);
        assert_string_equal(a->host.kernel, b->host.kernel);
        assert_int_equal(a->measured_at, b->measured_at);
        for (size_t i = 0; i < COST_SIZES; i++) {
                assert_int_equal(a->leaves[i].page_size, b->leaves[i].page_size);
                assert_int_equal(a->leaves[i].fault_ns, b->leaves[i].fault_ns);
                assert_int_equal(a->leaves[i].build_ns, b->leaves[i].build_ns);
                assert_string_equal(a->leaves[i].missing, b->leaves[i].missing);
        }
        assert_int_equal(a->n_rates, b->n_rates);
        assert_memory_equal(a->rates, b->rates, a->n_rates * sizeof(a->rates[0]));
}

static void test_round_trip(void **state) {
        Calibration c = some(), d;
        char why[512];

        assert_int_equal(calibration_load(dir, &c.host, &d, why, sizeof(why)), -ENOENT);
        assert_non_null(strstr(why, "tdpctl calibrate"));
        assert_int_equal(calibration_store(dir, &c), 0);
        assert_int_equal(calibration_load(dir, &c.host, &d, why, sizeof(why)), 0);
        assert_same(&c, &d);
        /* Replaced as a whole. */
        c.leaves[0].fault_ns = 1;
        assert_int_equal(calibration_store(dir, &c), 0);
        assert_int_equal(calibration_load(dir, &c.host, &d, why, sizeof(why)), 0);
        assert_same(&c, &d);
        assert_int_equal(calibration_store("/nonexistent", &c), -ENOENT);
}

static void test_stale(void **state) {
        CalibrationHost other;
        Calibration c = some(), d = {};
        char why[512];

        assert_int_equal(calibration_store(dir, &c), 0);
        other = c.host;
        strcpy(other.kernel, "6.13");
        assert_int_equal(calibration_load(dir, &other, &d, why, sizeof(why)), -ESTALE);
        assert_non_null(strstr(why, "kernel 6.12.9, and this is AMD EPYC (R) with 6.13"));
        other = c.host;
        strcpy(other.cpu, "Another");
        assert_int_equal(calibration_load(dir, &other, &d, why, sizeof(why)), -ESTALE);
        assert_int_equal(d.measured_at, 0);
}

static void test_model(void **state) {
        Calibration c = some();
        CostModel m, defaults;

        cost_model_init(&defaults, 7);
        cost_model_init(&m, 7);
        calibration_apply(&c, &m);
        assert_true(m.leaves[0].fault_ns == 1800 && m.leaves[0].fault_is_measured);
        assert_true(m.leaves[0].build_ns == 90 && m.leaves[0].build_is_measured);
        assert_true(m.leaves[1].fault_ns == 2100 && m.leaves[1].fault_is_measured);
        assert_true(m.leaves[1].build_ns == defaults.leaves[1].build_ns && !m.leaves[1].build_is_measured);
        assert_true(m.leaves[2].fault_ns == defaults.leaves[2].fault_ns && !m.leaves[2].fault_is_measured);
        assert_int_equal(m.measured_at, 1700000000);
        assert_int_equal(m.pin_usec_per_gib, 7);
        assert_true(calibration_rate(&c, 1, MIB(2)) == 9000000000);
        assert_int_equal(calibration_rate(&c, 1, KIB(4)), 0);
}

/* Every beginning of a good one is not whole; whatever byte is changed, it is read or refused. */
static void test_damaged(void **state) {
        _cleanup_free_ char *text = NULL;
        Calibration c = some(), d;
        size_t size;
        FILE *f = open_memstream(&text, &size);

        assert_non_null(f);
        assert_int_equal(calibration_write(f, &c), 0);
        fclose(f);
        assert_int_equal(calibration_parse(text, size, &d), 0);
        for (size_t n = 0; n < size; n++)
                assert_int_equal(calibration_parse(text, n, &d), -EBADMSG);
        for (size_t i = 0; i < size; i++)
                for (unsigned b = 0; b < 256; b += 5) {
                        char was = text[i];
                        int r;

                        text[i] = (char) b;
                        r = calibration_parse(text, size, &d);
                        assert_true(r == 0 || r == -EBADMSG || r == -EPROTONOSUPPORT);
                        text[i] = was;
                }
}

static void test_bad_content(void **state) {
        static const struct {
                const char *text;
                int r;
        } bad[] = {
                { "", -EBADMSG },
                { "\n", -EBADMSG },
                { "tdpd-calibration\nend\n", -EBADMSG },
                { "tdpd-calibration 2\nend\n", -EPROTONOSUPPORT },
                { "tdpd-calibration 1 1\nend\n", -EBADMSG },
                { "tdpd-calibration -1\nend\n", -EBADMSG },
                { "tdpd-calibration 1\n", -EBADMSG },
                { "tdpd-calibration 1\nleaf 4096 1\nend\n", -EBADMSG },
                { "tdpd-calibration 1\nleaf 4096 1 -1\nend\n", -EBADMSG },
                { "tdpd-calibration 1\nleaf 4096 1 99999999999999999999\nend\n", -EBADMSG },
                { "tdpd-calibration 1\nleaf 4096 1 60000000001\nend\n", -EBADMSG },
                { "tdpd-calibration 1\nleaf 8192 1 1\nend\n", -EBADMSG },
                { "tdpd-calibration 1\npopulate 0 4096 0x10\nend\n", -EBADMSG },
                { "tdpd-calibration 1\npopulate 4294967296 4096 1\nend\n", -EBADMSG },
                { "tdpd-calibration 1\nend\n", 0 },
                { "tdpd-calibration 1\nsomething new\nend\n", 0 },
        };
        char path[64], why[512];
        CalibrationHost host;
        Calibration c;
        FILE *f;

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                if (calibration_parse(bad[i].text, strlen(bad[i].text), &c) != bad[i].r)
                        fail_msg("this is taken for something else:\n%s", bad[i].text);

        calibration_get_host(&host);
        assert_string_not_equal(host.kernel, "unknown");
        snprintf(path, sizeof(path), "%s/calibration", dir);
        f = fopen(path, "we");
        assert_non_null(f);
        for (unsigned i = 0; i < 20000; i++)
                fputs("populate 0 4096 1\n", f);
        fclose(f);
        assert_int_equal(calibration_load(dir, &host, &c, why, sizeof(why)), -EBADMSG);
        unlink(path);
        assert_int_equal(mkfifo(path, 0600), 0);
        assert_int_equal(calibration_load(dir, &host, &c, why, sizeof(why)), -EBADMSG);
        unlink(path);
        assert_int_equal(mkdir(path, 0700), 0);
        assert_int_equal(calibration_load(dir, &host, &c, why, sizeof(why)), -EBADMSG);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
                cmocka_unit_test_setup_teardown(test_stale, setup, teardown),
                cmocka_unit_test(test_model),
                cmocka_unit_test(test_damaged),
                cmocka_unit_test_setup_teardown(test_bad_content, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
