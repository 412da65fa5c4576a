/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* OpenMetrics text, byte by byte: what the parser of test-metrics.py would forgive as well. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants what is above */
#include <cmocka.h>

#include "cleanup.h"
#include "openmetrics.h"

static const struct metric gauge = { "t_bytes", METRIC_GAUGE, "bytes", "Some \"help\" with \\ and\nmore." };
static const struct metric counter = { "t_faults", METRIC_COUNTER, NULL, "Faults." };

/* The sample's line, of one label with this value. */
static char *line(const char *value) {
        static char text[1024];
        FILE *f = fmemopen(text, sizeof(text), "w");

        assert_non_null(f);
        openmetrics_sample(f, &gauge, &(struct label){ "vm", value }, 1, 7);
        fclose(f);
        return text;
}

static void test_text(void **state) {
        char text[1024] = {};
        FILE *f = fmemopen(text, sizeof(text), "w");

        assert_non_null(f);
        openmetrics_family(f, &gauge);
        openmetrics_sample(f, &gauge, NULL, 0, 0);
        openmetrics_sample(f, &gauge, (struct label[]){ { "a", "1" }, { "b", "" } }, 2, UINT64_MAX);
        openmetrics_family(f, &counter);
        openmetrics_sample(f, &counter, NULL, 0, 3);
        openmetrics_end(f);
        fclose(f);
        assert_string_equal(text, "# TYPE t_bytes gauge\n"
                                  "# UNIT t_bytes bytes\n"
                                  "# HELP t_bytes Some \\\"help\\\" with \\\\ and\\nmore.\n"
                                  "t_bytes 0\n"
                                  "t_bytes{a=\"1\",b=\"\"} 18446744073709551615\n"
                                  "# TYPE t_faults counter\n"
                                  "# HELP t_faults Faults.\n"
                                  "t_faults_total 3\n"
                                  "# EOF\n");
}

static void test_escaping(void **state) {
        assert_string_equal(line("a\\b\"c\nd\te"), "t_bytes{vm=\"a\\\\b\\\"c\\nd\te\"} 7\n");
        assert_string_equal(line("\xc3\xa4"), "t_bytes{vm=\"\xc3\xa4\"} 7\n");
        /* Nothing gets out of the quotes. */
        assert_string_equal(line("x\"} 1\n# EOF\n"), "t_bytes{vm=\"x\\\"} 1\\n# EOF\\n\"} 7\n");
}

static void test_bounds(void **state) {
        char longest[LABEL_VALUE_MAX + 1], a[LABEL_VALUE_MAX + 3], b[LABEL_VALUE_MAX + 3], *first;
        size_t frame = strlen(line(""));

        memset(longest, 'x', LABEL_VALUE_MAX);
        longest[LABEL_VALUE_MAX] = '\0';
        assert_non_null(strstr(line(longest), longest));

        /* They differ behind the cut only. */
        memset(a, 'x', sizeof(a));
        memset(b, 'x', sizeof(b));
        strcpy(a + LABEL_VALUE_MAX, "1");
        strcpy(b + LABEL_VALUE_MAX, "2");
        first = strdup(line(a));
        assert_non_null(first);
        assert_int_equal(strlen(first), frame + LABEL_VALUE_MAX);
        assert_string_not_equal(first, line(b));
        assert_string_equal(first, line(a));
        free(first);

        /* No character is cut in two: each of these has three bytes, and the cut lies at any place of one.
         */
        for (size_t shift = 0; shift < 3; shift++) {
                char text[LABEL_VALUE_MAX * 2] = "xxx";
                const char *p;

                text[shift] = '\0';
                while (strlen(text) + 3 < sizeof(text))
                        strcat(text, "\xe2\x82\xac");
                p = strchr(line(text), '~');
                assert_non_null(p);
                assert_memory_equal(p - 3, "\xe2\x82\xac", 3);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_text),
                cmocka_unit_test(test_escaping),
                cmocka_unit_test(test_bounds),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
