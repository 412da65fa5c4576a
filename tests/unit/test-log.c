/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "log.h"

static void test_tables(void **state) {
        for (int i = LOG_EMERG; i <= LOG_DEBUG; i++)
                assert_int_equal(log_level_from_string(log_level_to_string(i)), i);
        assert_null(log_level_to_string(LOG_DEBUG + 1));
        assert_null(log_level_to_string(-1));
        for (LogTarget t = 0; t < _LOG_TARGET_MAX; t++)
                assert_int_equal(log_target_from_string(log_target_to_string(t)), t);
        assert_null(log_target_to_string(_LOG_TARGET_MAX));

        for (const char *const *s =
                             (const char *const[]){ "", "7", "DEBUG", "debug ", "warn", "null", NULL };
             *s; s++) {
                assert_int_equal(log_level_from_string(*s), -EINVAL);
                assert_int_equal(log_target_from_string(*s), -EINVAL);
        }
}

/* JOURNAL_STREAM is inherited: it counts only if it is this stderr that it names. */
static void test_journal_stream(void **state) {
        char stream[64];
        struct stat st;

        assert_int_equal(fstat(STDERR_FILENO, &st), 0);
        snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t) st.st_dev, (uintmax_t) st.st_ino);
        setenv("JOURNAL_STREAM", stream, 1);
        log_setup();
        assert_int_equal(log_get_target(), LOG_TARGET_JOURNAL);
        assert_int_equal(log_set_target(LOG_TARGET_CONSOLE), 0);
        assert_int_equal(log_get_target(), LOG_TARGET_CONSOLE);
        assert_int_equal(log_set_target(LOG_TARGET_AUTO), 0);
        assert_int_equal(log_get_target(), LOG_TARGET_JOURNAL);

        for (const char *const *s = (const char *const[]){ "1:1", "1", "", "x:y", "-1:-1", NULL }; *s; s++) {
                setenv("JOURNAL_STREAM", *s, 1);
                log_setup();
                assert_int_equal(log_get_target(), LOG_TARGET_CONSOLE);
                assert_int_equal(log_set_target(LOG_TARGET_JOURNAL), -ENOTCONN);
                assert_int_equal(log_get_target(), LOG_TARGET_CONSOLE);
        }
        unsetenv("JOURNAL_STREAM");
        assert_int_equal(log_set_target(LOG_TARGET_JOURNAL), -ENOTCONN);
        assert_int_equal(log_set_target(LOG_TARGET_AUTO), 0);
        assert_int_equal(log_get_target(), LOG_TARGET_CONSOLE);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_tables),
                cmocka_unit_test(test_journal_stream),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
