/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* sd_journal_sendv() itself, and not the macro that adds places in the source. */
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <systemd/sd-journal.h>

#include "log-message.h"

/* Takes the journal's place. */
static char entry[8192];

int sd_journal_sendv(const struct iovec *iov, int n) {
        size_t used = 0;

        for (int i = 0; i < n; i++) {
                assert_true(used + iov[i].iov_len + 2 < sizeof(entry));
                memcpy(entry + used, iov[i].iov_base, iov[i].iov_len);
                used += iov[i].iov_len;
                entry[used++] = '|';
        }
        entry[used] = '\0';
        return 0;
}

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

static void pretend_journal(void) {
        char stream[64];
        struct stat st;

        assert_int_equal(fstat(STDERR_FILENO, &st), 0);
        snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t) st.st_dev, (uintmax_t) st.st_ino);
        setenv("JOURNAL_STREAM", stream, 1);
        log_setup();
        unsetenv("JOURNAL_STREAM");
        assert_int_equal(log_get_target(), LOG_TARGET_JOURNAL);
}

static void test_entries(void **state) {
        char text[64], longest[2 * LOG_FIELD_TEXT_MAX];

        pretend_journal();
        log_warning("a line of %i", 1);
        assert_string_equal(entry, "MESSAGE=a line of 1|PRIORITY=4|");
        assert_int_equal(log_warning_errno(-ENOENT, "no file"), -ENOENT);
        assert_string_equal(entry, "MESSAGE=no file: No such file or directory|PRIORITY=4|ERRNO=2|");

        /* A line is one line, whatever a caller has made of its names. */
        log_warning("VM \"%s\"", "a\n<0>b\033[2J\177\303\266");
        assert_string_equal(entry, "MESSAGE=VM \"a?<0>b?[2J?\303\266\"|PRIORITY=4|");

        /* Fields are as they are: the native protocol takes a newline for what it is. */
        log_message(MESSAGE_VM_BUILT, FIELDS(FIELD_TEXT("TDP_VM", "a\nb"), FIELD_BYTES(UINT64_MAX)),
                    "built");
        snprintf(text, sizeof(text), "|MESSAGE_ID=%s|", log_message_id(MESSAGE_VM_BUILT));
        assert_non_null(strstr(entry, "MESSAGE=built|PRIORITY=6|"));
        assert_non_null(strstr(entry, text));
        assert_non_null(strstr(entry, "|TDP_VM=a\nb|TDP_BYTES=18446744073709551615|"));
        assert_int_equal(log_message_errno(MESSAGE_HEAL_FAILED, ENOMEM,
                                           FIELDS(FIELD_TEXT("TDP_VM", NULL), FIELD_BYTES(0)), "x"),
                         -ENOMEM);
        assert_non_null(strstr(entry, "|ERRNO=12|TDP_BYTES=0|"));

        /* All of the largest fits: cut, and nothing lost but the end. */
        memset(longest, 'x', sizeof(longest) - 1);
        longest[sizeof(longest) - 1] = '\0';
#define F FIELD_TEXT("TDP_VM", longest)
        log_message(MESSAGE_VM_BUILT, FIELDS(F, F, F, F, F, F, F, F, F, F, F, F, F, F), "%s%s", longest,
                    longest);
        assert_int_equal(strlen(entry), 8 + LOG_LINE_MAX - 1 + strlen("|PRIORITY=6|MESSAGE_ID=") + 32 + 1 +
                                                        LOG_FIELDS_MAX * LOG_FIELD_TEXT_MAX);
}

/* Levels count for these messages as for all. */
static void test_max_level(void **state) {
        pretend_journal();
        entry[0] = '\0';
        log_set_max_level(LOG_WARNING);
        log_message(MESSAGE_VM_BUILT, FIELDS(FIELD_BYTES(1)), "built");
        assert_string_equal(entry, "");
        log_message(MESSAGE_JOB_FAILED, FIELDS(FIELD_BYTES(1)), "failed");
        assert_string_not_equal(entry, "");
        log_set_max_level(LOG_INFO);
        for (LogMessage m = 0; m < _LOG_MESSAGE_MAX; m++)
                assert_in_range(log_message_level(m), LOG_ERR, LOG_INFO);
        assert_null(log_message_id(_LOG_MESSAGE_MAX));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_tables),
                cmocka_unit_test(test_journal_stream),
                cmocka_unit_test(test_entries),
                cmocka_unit_test(test_max_level),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
