/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Sizes, suggestions, tables, progress lines, JSON keys: text in and out. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants what is above */
#include <cmocka.h>

#include "json.h"
#include "progress.h"
#include "size.h"
#include "suggest.h"
#include "table.h"
#include "verbs.h"

static void test_size_parse(void **state) {
        static const struct {
                const char *text;
                uint64_t bytes;
                int r;
        } cases[] = {
                { "0", 0 },
                { "1", 1 },
                { "4096", 4096 },
                { "4096B", 4096 },
                { "1K", 1024 },
                { "2M", 2 << 20 },
                { "8G", UINT64_C(8) << 30 },
                { "1T", UINT64_C(1) << 40 },
                { "8g", UINT64_C(8) << 30 },
                { "1GiB", 1 << 30 },
                { "1GB", 1 << 30 },
                { "007", 7 },
                { "16777215T", UINT64_C(16777215) << 40 },
                { "18446744073709551615", UINT64_MAX },
                { "18446744073709551616", 0, -ERANGE },
                { "16777216T", 0, -ERANGE },
                { "99999999999999999999999G", 0, -ERANGE },
                { "", 0, -EINVAL },
                { "G", 0, -EINVAL },
                { "-1", 0, -EINVAL },
                { "+1", 0, -EINVAL },
                { " 1", 0, -EINVAL },
                { "1 ", 0, -EINVAL },
                { "1.5G", 0, -EINVAL },
                { "1X", 0, -EINVAL },
                { "1GG", 0, -EINVAL },
                { "0x10", 0, -EINVAL },
                { "1Gi B", 0, -EINVAL },
                { "\xff", 0, -EINVAL },
                { "1BB", 0, -EINVAL },
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                uint64_t n = 12345;
                int r = size_parse(cases[i].text, &n);

                if (r != cases[i].r || n != (r < 0 ? 12345 : cases[i].bytes))
                        fail_msg("\"%s\": %d, %llu", cases[i].text, r, (unsigned long long) n);
        }
}

static void test_size_format(void **state) {
        static const struct {
                uint64_t bytes;
                const char *text;
        } cases[] = {
                { 0, "0" },
                { 1, "1B" },
                { 1023, "1023B" },
                { 1024, "1K" },
                { 1536, "1.5K" },
                { 2 << 20, "2M" },
                { UINT64_C(8) << 30, "8G" },
                { (UINT64_C(8) << 30) - 1, "8.0G" },
                { UINT64_MAX, "16777216.0T" },
        };
        char buf[SIZE_TEXT_MAX];

        for (size_t i = 0; i < ELEMENTSOF(cases); i++)
                assert_string_equal(size_format(cases[i].bytes, buf), cases[i].text);

        assert_string_equal(duration_format(999, buf), "999us");
        assert_string_equal(duration_format(1500, buf), "1.5ms");
        assert_string_equal(duration_format(2500000, buf), "2.5s");
        assert_string_equal(duration_format(UINT64_C(125000000), buf), "2min 5s");
        assert_non_null(duration_format(UINT64_MAX, buf));
}

static void test_uint_parse(void **state) {
        uint64_t n = 7;

        assert_int_equal(uint_parse("4294967295", UINT32_MAX, &n), 0);
        assert_int_equal(n, UINT32_MAX);
        assert_int_equal(uint_parse("4294967296", UINT32_MAX, &n), -ERANGE);
        assert_int_equal(uint_parse("1K", UINT32_MAX, &n), -EINVAL);
        assert_int_equal(uint_parse("-1", UINT32_MAX, &n), -EINVAL);
        assert_int_equal(uint_parse("", UINT32_MAX, &n), -EINVAL);
}

static const char *meant(const char *word) {
        return suggest(word, &verbs[0].name, n_verbs, sizeof(verbs[0]));
}

static void test_suggest(void **state) {
        assert_string_equal(meant("stauts"), "status");
        assert_string_equal(meant("stat"), "status");
        assert_string_equal(meant("node"), "nodes");
        assert_string_equal(meant("relase"), "release");
        assert_string_equal(meant("hsow"), "show");
        assert_null(meant("xyzzy"));
        assert_null(meant("reboot"));
        assert_null(meant(""));
        assert_null(meant("a-word-that-is-much-longer-than-any-verb-could-be"));
        /* Every verb is found behind one wrong letter at its end. */
        for (size_t i = 0; i < n_verbs; i++) {
                char word[32];

                (void) snprintf(word, sizeof(word), "%sx", verbs[i].name);
                assert_string_equal(meant(word), verbs[i].name);
        }
}

static char *print(const struct table *t, bool legend) {
        char *text = NULL;
        size_t size;
        FILE *f = open_memstream(&text, &size);

        table_print(t, f, legend, "thing");
        fclose(f);
        return text;
}

static void test_table(void **state) {
        static const char *const headers[] = { "NAME", "SIZE" };
        struct table *t;
        char *text;

        assert_int_equal(table_new(&t, headers, 2), 0);
        table_align_right(t, 1);
        text = print(t, true);
        assert_string_equal(text, "0 things.\n");
        free(text);

        assert_int_equal(table_add(t, (const char *const[]){ "a", "10G" }), 0);
        text = print(t, true);
        assert_string_equal(text, "NAME  SIZE\na      10G\n\n1 thing.\n");
        free(text);

        assert_int_equal(table_add(t, (const char *const[]){ "longer", NULL }), 0);
        text = print(t, false);
        assert_string_equal(text, "a       10G\nlonger    -\n");
        free(text);

        for (unsigned i = 0; i < 100; i++)
                assert_int_equal(table_add(t, (const char *const[]){ "x", "" }), 0);
        text = print(t, true);
        assert_non_null(strstr(text, "102 things."));
        free(text);
        table_free(t);
}

static void test_progress_format(void **state) {
        char buf[512];

        progress_format(buf, sizeof(buf), 80, "populate", UINT64_C(4) << 30, UINT64_C(8) << 30, 0, 2000000);
        assert_non_null(strstr(buf, "populate  50% ["));
        assert_non_null(strstr(buf, "4G of 8G  2G/s  2s left"));
        assert_true(strlen(buf) < 80);

        /* Nothing done yet: no rate, no division by zero; and never longer than the line. */
        progress_format(buf, sizeof(buf), 80, "build", 0, 0, 0, 0);
        assert_non_null(strstr(buf, "build      0%"));
        for (unsigned columns = 0; columns < 200; columns++) {
                progress_format(buf, sizeof(buf), columns, "populate", UINT64_MAX, UINT64_MAX - 1, 5, 1);
                assert_true(strlen(buf) < columns || columns == 0);
        }

        /* More done than expected is still 100%. */
        progress_format(buf, sizeof(buf), 80, "build", 20, 10, 0, 1000);
        assert_non_null(strstr(buf, "100%"));
}

static void test_json_key(void **state) {
        static const char *const pairs[][2] = {
                { "FaultsSinceBuild", "faults_since_build" },
                { "Leaves1G", "leaves_1g" },
                { "BuildUSec", "build_usec" },
                { "abi-version", "abi_version" },
                { "Pid", "pid" },
                { "0", "0" },
                { "", "" },
                { "max-leaf", "max_leaf" },
        };

        for (size_t i = 0; i < ELEMENTSOF(pairs); i++) {
                char *key = json_key(pairs[i][0]);

                assert_string_equal(key, pairs[i][1]);
                free(key);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_size_parse), cmocka_unit_test(test_size_format),
                cmocka_unit_test(test_uint_parse), cmocka_unit_test(test_suggest),
                cmocka_unit_test(test_table),      cmocka_unit_test(test_progress_format),
                cmocka_unit_test(test_json_key),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
