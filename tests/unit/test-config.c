/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>

#include "config.h"
#include "log.h"

static char *read_all(const char *relative) {
        char path[512], *buf = calloc(1, 65536);
        const char *root = getenv("SOURCE_ROOT");
        FILE *f;

        assert_non_null(root);
        assert_non_null(buf);
        snprintf(path, sizeof(path), "%s/%s", root, relative);
        f = fopen(path, "re");
        if (!f)
                fail_msg("cannot read %s", path);
        assert_true(fread(buf, 1, 65535, f) > 0);
        fclose(f);
        return buf;
}

static void load(Config *c, const char *text) {
        char path[] = "/tmp/tdpd-config-XXXXXX";
        int fd = mkstemp(path);

        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), (ssize_t) strlen(text));
        close(fd);
        assert_int_equal(config_init(c), 0);
        assert_int_equal(config_load(c, path), 0);
        unlink(path);
}

static void test_shipped_file(void **state) {
        _cleanup_free_ char *shipped = read_all("config/tdpd.conf"), *dumped = NULL;
        size_t size;
        FILE *f = open_memstream(&dumped, &size);

        assert_non_null(f);
        assert_int_equal(config_dump(f), 0);
        fclose(f);
        assert_string_equal(shipped, dumped);
}

/* Each key and its default are in the manual. */
static void test_manual(void **state) {
        _cleanup_free_ char *shipped = read_all("config/tdpd.conf"),
                            *manual = read_all("docs/man/tdpd.conf.5");
        unsigned n = 0;
        char *save = NULL;

        for (char *line = strtok_r(shipped, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                char key[64], want[128], *part, *value = strchr(line, '=');

                if (line[0] != '#' || line[1] == ' ' || !value)
                        continue;
                snprintf(key, sizeof(key), "%.*s", (int) (value - line - 1), line + 1);
                snprintf(want, sizeof(want), ".B %s=\n", key);
                part = strstr(manual, want);
                if (!part)
                        fail_msg("%s= is not in tdpd.conf(5)", key);
                snprintf(want, sizeof(want), "Default: %s.", value + 1);
                part = strstr(part, "Default: ");
                assert_non_null(part);
                if (strncmp(part, want, strlen(want)) != 0)
                        fail_msg("the default of %s= is not \"%s\" in tdpd.conf(5)", key, value + 1);
                n++;
        }
        assert_true(n > 0);
}

static void test_good_values(void **state) {
        Config c;

        load(&c,
             "# comment\n[Policy]\nDecision=never\nMinBytes = 2G\nMinSavingUSec=0\n[Limits]\nMaxVMs=infinity\n"
             "MaxBytes=4096\nMaxJobs=1\n[Workers]\nThreads=1024\n[Access]\nGroup=kvm\n");
        assert_int_equal(c.decision, DECISION_NEVER);
        assert_int_equal(c.min_bytes, GIB(2));
        assert_int_equal(c.min_saving_usec, 0);
        assert_int_equal(c.limits.vms, UINT64_MAX);
        assert_int_equal(c.limits.bytes, 4096);
        assert_int_equal(c.limits.jobs, 1);
        assert_int_equal(c.threads, 1024);
        assert_string_equal(c.group, "kvm");
        config_done(&c);
}

static void test_bad_values_keep_defaults(void **state) {
        static const char *const bad[] = {
                "[Policy]\nMinBytes=\n",
                "[Policy]\nMinBytes=M\n",
                "[Policy]\nMinBytes=-1\n",
                "[Policy]\nMinBytes=+1\n",
                "[Policy]\nMinBytes=1X\n",
                "[Policy]\nMinBytes=infinityM\n",
                "[Policy]\nMinBytes=99999999999999999999\n",
                "[Policy]\nMinBytes=18446744073709551615K\n",
                "[Policy]\nDecision=perhaps\n",
                "[Limits]\nMaxJobs=0\n",
                "[Workers]\nThreads=0\n",
                "[Workers]\nThreads=1025\n",
                "[Workers]\nThreads=1.5\n",
                "[workers]\nThreads=1\n",
                "[Workers]\nthreads=1\n",
                "Threads=1\n",
                "[Workers\nThreads=1\n",
                "nonsense\n",
                "",
        };
        Config defaults, c;

        log_set_max_level(LOG_ERR);
        assert_int_equal(config_init(&defaults), 0);
        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                load(&c, bad[i]);
                if (c.decision != defaults.decision || c.min_bytes != defaults.min_bytes ||
                    c.limits.jobs != defaults.limits.jobs || c.threads != defaults.threads)
                        fail_msg("this changed something:\n%s", bad[i]);
                config_done(&c);
        }
        config_done(&defaults);
}

static void test_no_file(void **state) {
        Config c;

        assert_int_equal(config_init(&c), 0);
        assert_int_equal(config_load(&c, "/nonexistent/tdpd.conf"), -ENOENT);
        config_done(&c);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_shipped_file), cmocka_unit_test(test_manual),
                cmocka_unit_test(test_good_values),  cmocka_unit_test(test_bad_values_keep_defaults),
                cmocka_unit_test(test_no_file),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
