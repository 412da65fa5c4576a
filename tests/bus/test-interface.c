/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The checked-in introspection is the live one, and tdpd's own command line does what its help says. */
#include "carry.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The <interface> element of this name, as sd-bus writes it. */
static void copy_interface(FILE *out, Fixture *f, const char *path, const char *interface) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *xml, *from, *to;
        char head[96];
        sd_bus_message *m;

        m = call(f->bus, &error, path, "org.freedesktop.DBus.Introspectable", "Introspect", NULL);
        if (!m)
                fail_msg("Introspect %s: %s", path, error.message);
        assert_true(sd_bus_message_read(m, "s", &xml) > 0);
        snprintf(head, sizeof(head), " <interface name=\"%s\">", interface);
        from = strstr(xml, head);
        assert_non_null(from);
        to = strstr(from, " </interface>\n");
        assert_non_null(to);
        to += strlen(" </interface>\n");
        fprintf(out, "%.*s", (int) (to - from), from);
        sd_bus_message_unref(m);
}

static char *read_all(const char *path) {
        static char buf[65536];
        FILE *f = fopen(path, "re");
        size_t n;

        if (!f)
                fail_msg("cannot read %s", path);
        n = fread(buf, 1, sizeof(buf) - 1, f);
        buf[n] = '\0';
        fclose(f);
        return buf;
}

static void test_introspection(void **state) {
        const char *path = getenv("TDPD_XML");
        Fixture *f;
        static Bytes message, answer;
        Reservation r;
        char *live = NULL;
        Side handoff;
        size_t size;
        FILE *out;

        require_root(); /* handoffs are for root */
        f = fixture_start("[Workers]\nThreads=1\n", NULL);
        craft_offer(&message, "b", 1, MIB, 4096);
        carry_prepare(&handoff, f, &message, NULL, &answer);
        r = reserve(f, "a", 64 * MIB, 4096);

        assert_non_null(path);
        out = open_memstream(&live, &size);
        assert_non_null(out);
        fputs("<!-- SPDX-License-Identifier: LGPL-2.1-or-later -->\n"
              "<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection 1.0//EN\"\n"
              "\"https://www.freedesktop.org/standards/dbus/1.0/introspect.dtd\">\n"
              "<node>\n",
              out);
        /* The job first: it does not last. */
        copy_interface(out, f, r.job, "org.tdpd1.Job");
        copy_interface(out, f, handoff.path, HANDOFF_INTERFACE);
        copy_interface(out, f, MANAGER, "org.tdpd1.Manager");
        copy_interface(out, f, "/org/tdpd1/node/0", "org.tdpd1.Node");
        copy_interface(out, f, r.vm, "org.tdpd1.VM");
        fputs("</node>\n", out);
        fclose(out);

        if (getenv("TDPD_XML_UPDATE")) {
                out = fopen(path, "we");
                assert_non_null(out);
                fputs(live, out);
                fclose(out);
        }
        assert_string_equal(live, read_all(path));
        free(live);
        fixture_stop(f);
}

/* Runs tdpd to its end; its output is in "out". */
static int run(char *out, size_t size, const char *arg, const char *arg2) {
        int fds[2], status;
        size_t n = 0;
        ssize_t k;
        pid_t pid;

        assert_int_equal(pipe(fds), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                dup2(fds[1], STDOUT_FILENO);
                dup2(fds[1], STDERR_FILENO);
                close(fds[0]);
                execl(getenv("TDPD"), "tdpd", arg, arg2, NULL);
                _exit(127);
        }
        close(fds[1]);
        while ((k = read(fds[0], out + n, size - 1 - n)) > 0)
                n += (size_t) k;
        out[n] = '\0';
        close(fds[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void test_command_line(void **state) {
        char out[4096];

        assert_int_equal(run(out, sizeof(out), "--help", NULL), 0);
        for (const char *const *o = (const char *const[]){ "--help", "--version",
                                                           "--config=", "--config-root=", "--check-config",
                                                           "--bus=", "--sysfs-root=", "--device=",
                                                           "--dump-config", NULL };
             *o; o++)
                assert_non_null(strstr(out, *o));
        assert_int_equal(run(out, sizeof(out), "--version", NULL), 0);
        assert_true(strncmp(out, "tdpd ", 5) == 0);
        assert_int_equal(run(out, sizeof(out), "--nonsense", NULL), 1);
        assert_non_null(strstr(out, "nonsense"));
        assert_int_equal(run(out, sizeof(out), "start", NULL), 1);
        assert_non_null(strstr(out, "\"start\" makes no sense"));
        assert_int_equal(run(out, sizeof(out), "--config", NULL), 1);
        assert_int_equal(run(out, sizeof(out), "--config=/nonexistent", NULL), 78);
        assert_non_null(strstr(out, "/nonexistent"));
        assert_int_equal(run(out, sizeof(out), "--bus=unix:path=/nonexistent", NULL), 1);
        assert_non_null(strstr(out, "The bus at unix:path=/nonexistent cannot be reached"));
        assert_int_equal(run(out, sizeof(out), "--bus=nonsense", NULL), 1);
}

static void test_second_daemon(void **state) {
        Fixture *f = fixture_start(NULL, NULL);
        char out[4096], arg[128], config[128];

        snprintf(arg, sizeof(arg), "--bus=%s", f->address);
        snprintf(config, sizeof(config), "--config=%s/tdpd.conf", f->dir);
        assert_int_equal(run(out, sizeof(out), arg, config), 1);
        assert_non_null(strstr(out, "another tdpd runs"));
        assert_int_equal(count_vms(f), 0); /* the first one still serves */
        fixture_stop(f);
}

/* What an older daemon does not know is no reason to leave the host without one. */
static void test_unknown_config(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        char *policy = NULL;
        Fixture *f = fixture_start("[Policy]\nBest=1\n[Nonsense]\na=b\n[Policy]\nDecision=never\n", NULL);

        assert_true(sd_bus_get_property_string(f->bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "Policy",
                                               &error, &policy) >= 0);
        assert_string_equal(policy, "never");
        free(policy);
        wait_job(f, reserve(f, "a", MIB, 4096).job);
        fixture_stop(f);
}

/* Nobody can reach a daemon without a bus.  It must end as a failure, or its unit is not started again. */
static void test_bus_goes(void **state) {
        Fixture *f = fixture_start(NULL, NULL);
        int status;

        reap(f->bus_pid, SIGKILL);
        f->bus_pid = 0;
        assert_int_equal(waitpid(f->tdpd_pid, &status, 0), f->tdpd_pid);
        f->tdpd_pid = 0;
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), EXIT_FAILURE);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_introspection, fixture_teardown),
                cmocka_unit_test_teardown(test_command_line, fixture_teardown),
                cmocka_unit_test_teardown(test_second_daemon, fixture_teardown),
                cmocka_unit_test_teardown(test_unknown_config, fixture_teardown),
                cmocka_unit_test_teardown(test_bus_goes, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
