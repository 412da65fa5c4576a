/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* org.freedesktop.LogControl1: what "systemctl service-log-level" and its like read and write. */
#include "fixture.h"

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OBJECT    "/org/freedesktop/LogControl1"
#define INTERFACE "org.freedesktop.LogControl1"
#define NOBODY    ((uid_t) 65534)

static void assert_property(Fixture *f, const char *name, const char *expected) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        char *value = NULL;

        if (sd_bus_get_property_string(f->bus, "org.tdpd1", OBJECT, INTERFACE, name, &error, &value) < 0)
                fail_msg("%s: %s", name, error.message);
        assert_string_equal(value, expected);
        free(value);
}

static int set(sd_bus *bus, const char *name, const char *value, sd_bus_error *error) {
        return sd_bus_set_property(bus, "org.tdpd1", OBJECT, INTERFACE, name, error, "s", value);
}

static void assert_set_fails(Fixture *f, const char *name, const char *value, const char *error_name,
                             const char *part) {
        sd_bus_error error = SD_BUS_ERROR_NULL;

        assert_true(set(f->bus, name, value, &error) < 0);
        assert_error_is(&error, error_name, part);
}

/* Runs with stderr in a file, in which tdpd's lines are then found. */
static char *log_of_a_session(const char *level) {
        static char text[65536];
        char path[] = "/tmp/tdpd-test-log-XXXXXX";
        sd_bus_error error = SD_BUS_ERROR_NULL;
        int fd = mkstemp(path), saved = dup(STDERR_FILENO);
        Fixture *f;
        ssize_t n;

        assert_true(fd >= 0 && saved >= 0);
        assert_int_equal(unlink(path), 0);
        fflush(stderr);
        assert_true(dup2(fd, STDERR_FILENO) >= 0);
        f = fixture_start(NULL, NULL);
        assert_true(dup2(saved, STDERR_FILENO) >= 0);
        close(saved);

        if (level && set(f->bus, "LogLevel", level, &error) < 0)
                fail_msg("LogLevel=%s: %s", level, error.message);
        wait_job(f, reserve(f, "seen", MIB, 4096).job);
        fixture_stop(f);

        n = pread(fd, text, sizeof(text) - 1, 0);
        assert_true(n >= 0);
        text[n] = '\0';
        close(fd);
        return text;
}

static void test_level(void **state) {
        static const char *const levels[] = { "emerg",   "alert",  "crit", "err",
                                              "warning", "notice", "info", "debug" };
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Fixture *f = fixture_start(NULL, NULL);

        assert_property(f, "LogLevel", "info");
        for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
                if (set(f->bus, "LogLevel", levels[i], &error) < 0)
                        fail_msg("%s: %s", levels[i], error.message);
                assert_property(f, "LogLevel", levels[i]);
        }
        for (const char *const *s = (const char *const[]){ "", "7", "loud", "Debug", NULL }; *s; s++)
                assert_set_fails(f, "LogLevel", *s, SD_BUS_ERROR_INVALID_ARGS, "use one of emerg, alert");
        assert_property(f, "LogLevel", "debug");
        assert_property(f, "SyslogIdentifier", "tdpd");
        assert_set_fails(f, "SyslogIdentifier", "x", SD_BUS_ERROR_PROPERTY_READ_ONLY, "");
        fixture_stop(f);
}

/* The level is what decides, and not only what is told. */
static void test_level_counts(void **state) {
        const char *text;

        unsetenv("TDPD_DEBUG");
        text = log_of_a_session(NULL);
        assert_non_null(strstr(text, "VM seen: "));
        assert_null(strstr(text, " -> populated"));
        text = log_of_a_session("debug");
        assert_non_null(strstr(text, "VM seen: reserved -> populated"));
        text = log_of_a_session("err");
        assert_non_null(strstr(text, "from info to err"));
        assert_null(strstr(text, "VM seen: "));
}

static void test_target(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Fixture *f;

        unsetenv("JOURNAL_STREAM");
        f = fixture_start(NULL, NULL);
        assert_property(f, "LogTarget", "console");
        assert_true(set(f->bus, "LogTarget", "auto", &error) >= 0);
        assert_property(f, "LogTarget", "console");
        assert_set_fails(f, "LogTarget", "journal", SD_BUS_ERROR_INVALID_ARGS, "start tdpd as a unit");
        assert_set_fails(f, "LogTarget", "kmsg", SD_BUS_ERROR_INVALID_ARGS, "use console, journal or auto");
        assert_property(f, "LogTarget", "console");
        fixture_stop(f);
}

/* Anybody may read; only root may make a daemon of root's silent. */
static void test_other_users(void **state) {
        Fixture *f;
        int status;
        pid_t pid;

        require_root();
        f = fixture_start(NULL, NULL);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                sd_bus_error error = SD_BUS_ERROR_NULL;
                char *value = NULL;
                sd_bus *bus;

                if (setgroups(0, NULL) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
                        _exit(3);
                bus = fixture_connect(f->address);
                if (!bus || sd_bus_get_property_string(bus, "org.tdpd1", OBJECT, INTERFACE, "LogLevel", NULL,
                                                       &value) < 0)
                        _exit(2);
                if (set(bus, "LogLevel", "emerg", &error) >= 0 ||
                    !sd_bus_error_has_name(&error, SD_BUS_ERROR_ACCESS_DENIED))
                        _exit(1);
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_property(f, "LogLevel", "info");
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_level, fixture_teardown),
                cmocka_unit_test_teardown(test_level_counts, fixture_teardown),
                cmocka_unit_test_teardown(test_target, fixture_teardown),
                cmocka_unit_test_teardown(test_other_users, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
