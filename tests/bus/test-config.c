/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The configuration of a daemon that runs, and of one that is not to. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void rewrite(Fixture *f, const char *text) {
        char path[128];
        FILE *file;

        snprintf(path, sizeof(path), "%s/tdpd.conf", f->dir);
        file = fopen(path, "we");
        assert_non_null(file);
        assert_true(fputs(text, file) >= 0);
        assert_int_equal(fclose(file), 0);
}

static void reload(Fixture *f) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = manager_call(f, &error, "Reload", NULL);

        if (!m)
                fail_msg("Reload: %s: %s", error.name, error.message);
        sd_bus_message_unref(m);
}

static void assert_policy(Fixture *f, const char *want) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        char *policy = NULL;

        if (sd_bus_get_property_string(f->bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "Policy", &error,
                                       &policy) < 0)
                fail_msg("Policy: %s", error.message);
        assert_string_equal(policy, want);
        free(policy);
}

static int on_changed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *interface, *name;

        assert_true(sd_bus_message_read(m, "s", &interface) > 0);
        if (strcmp(interface, "org.tdpd1.Manager") != 0)
                return 0;
        assert_true(sd_bus_message_enter_container(m, 'a', "{sv}") > 0);
        while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
                assert_true(sd_bus_message_read(m, "s", &name) > 0);
                *(unsigned *) userdata += strcmp(name, "Policy") == 0;
                assert_true(sd_bus_message_skip(m, "v") > 0);
                assert_true(sd_bus_message_exit_container(m) >= 0);
        }
        return 0;
}

static void test_reload(void **state) {
        sd_bus_slot *slot = NULL;
        unsigned changed = 0;
        Reservation a, b;
        Fixture *f;
        char *s;

        require_root();
        f = fixture_start("[Limits]\nMaxVMs=2\n", NULL);
        assert_true(sd_bus_match_signal(f->bus, &slot, NULL, MANAGER, "org.freedesktop.DBus.Properties",
                                        "PropertiesChanged", on_changed, &changed) >= 0);
        a = reserve(f, "a", MIB, 4096);
        b = reserve(f, "b", MIB, 4096);
        assert_string_equal(wait_job(f, a.job)->result, "done");
        assert_string_equal(wait_job(f, b.job)->result, "done");
        assert_call_fails(f, ERR("LimitExceeded"), "MaxVMs=", "Reserve", "sta{sv}", "c", MIB, 1, "page-size",
                          "t", UINT64_C(4096));

        /* A higher limit is there at once; a lower one takes nothing away. */
        rewrite(f, "[Limits]\nMaxVMs=3\n[Policy]\nDecision=never\n");
        reload(f);
        assert_policy(f, "never");
        b = reserve(f, "c", MIB, 4096);
        assert_string_equal(wait_job(f, b.job)->result, "done");
        assert_int_equal(changed, 1);
        rewrite(f, "[Limits]\nMaxVMs=1\n[Policy]\nDecision=never\n");
        reload(f);
        assert_int_equal(count_vms(f), 3);
        s = vm_state(f, a.vm);
        assert_string_equal(s, "populated");
        free(s);
        assert_call_fails(f, ERR("LimitExceeded"), "3 VMs and asks for 1 more, of at most 1", "Reserve",
                          "sta{sv}", "d", MIB, 1, "page-size", "t", UINT64_C(4096));
        release(f, a.vm);
        assert_int_equal(count_vms(f), 2);
        assert_int_equal(changed, 1);

        sd_bus_slot_unref(slot);
        fixture_stop(f);
}

static void test_bad_reload_changes_nothing(void **state) {
        char part[256];
        Fixture *f;

        require_root();
        f = fixture_start("[Policy]\nDecision=always\n", NULL);
        rewrite(f, "[Policy]\nDecision=never\n[Limits]\nMaxVMs=lots\n");
        snprintf(part, sizeof(part),
                 "the old one stays: %s/tdpd.conf:4: [Limits] MaxVMs=lots makes no sense: allowed is a number",
                 f->dir);
        assert_call_fails(f, ERR("InvalidConfig"), part, "Reload", NULL);
        assert_policy(f, "always");

        snprintf(part, sizeof(part), "%s/tdpd.conf", f->dir);
        assert_int_equal(unlink(part), 0);
        assert_call_fails(f, ERR("InvalidConfig"), "No such file", "Reload", NULL);
        assert_policy(f, "always");

        /* And it can be put right. */
        rewrite(f, "[Policy]\nDecision=never\n");
        reload(f);
        assert_policy(f, "never");
        fixture_stop(f);
}

/* What systemd is told, up to a text that matters. */
static void wait_notify(int fd, const char *want) {
        char text[2048];

        for (;;) {
                ssize_t n = recv(fd, text, sizeof(text) - 1, 0);

                if (n < 0)
                        fail_msg("\"%s\" is not told: %s", want, strerror(errno));
                text[n > 0 ? n : 0] = '\0'; /* fail_msg() does not return, and gcc does not know */
                if (strstr(text, want))
                        return;
        }
}

static void test_hangup(void **state) {
        static const char path[] = "/tmp/tdpd-test-notify";
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        struct timeval wait = { .tv_sec = 10 };
        Fixture *f;
        int fd;

        require_root();
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        strcpy(address.sun_path, path);
        unlink(path);
        assert_int_equal(bind(fd, (struct sockaddr *) &address, sizeof(address)), 0);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)), 0);
        setenv("NOTIFY_SOCKET", path, 1);
        f = fixture_start("[Policy]\nDecision=always\n", NULL);
        unsetenv("NOTIFY_SOCKET");

        rewrite(f, "[Policy]\nDecision=never\n");
        assert_int_equal(kill(f->tdpd_pid, SIGHUP), 0);
        wait_notify(fd, "RELOADING=1\nMONOTONIC_USEC=");
        wait_notify(fd, "READY=1\nSTATUS=Serving");
        assert_policy(f, "never");

        rewrite(f, "[Policy]\nDecision=perhaps\n");
        assert_int_equal(kill(f->tdpd_pid, SIGHUP), 0);
        wait_notify(fd, "RELOADING=1");
        wait_notify(fd, "READY=1\nSTATUS=The new configuration is refused");
        assert_policy(f, "never");

        fixture_stop(f);
        unlink(path);
        close(fd);
}

/* Runs tdpd to its end, with such a file; gives its exit status, and what it has said. */
static int run(const char *text, const char *arg, char *output, size_t size) {
        char path[] = "/tmp/tdpd-test-config-XXXXXX", config[64];
        int fd = mkstemp(path), pipes[2], status;
        size_t n = 0;
        ssize_t got;
        pid_t pid;

        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), (ssize_t) strlen(text));
        close(fd);
        snprintf(config, sizeof(config), "--config=%s", path);
        assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                dup2(pipes[1], STDERR_FILENO);
                execl(getenv("TDPD"), "tdpd", "--bus=unix:path=/nonexistent", config, arg, NULL);
                _exit(127);
        }
        close(pipes[1]);
        while ((got = read(pipes[0], output + n, size - 1 - n)) > 0)
                n += (size_t) got;
        output[n] = '\0';
        close(pipes[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        unlink(path);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void test_start(void **state) {
        char output[4096];

        /* EX_CONFIG, and not the one of the bus that is not there. */
        assert_int_equal(run("[Limits]\nMaxVMs=lots\n", NULL, output, sizeof(output)), 78);
        assert_non_null(strstr(output, ":2: [Limits] MaxVMs=lots makes no sense"));
        assert_int_equal(run("[Limits]\nMaxVMs=1\n", NULL, output, sizeof(output)), 1);
        assert_non_null(strstr(output, "unix:path=/nonexistent"));
}

static void test_check(void **state) {
        char output[4096];

        assert_int_equal(run("[Limits]\nMaxVMs=0x1\n", "--check-config", output, sizeof(output)), 1);
        assert_non_null(strstr(output, ":2: [Limits] MaxVMs=0x1 makes no sense"));
        assert_int_equal(run("[Limits]\nMaxVMs=1\n", "--check-config", output, sizeof(output)), 0);
        assert_string_equal(output, "");

        /* What is not known: told with its place, and read on. */
        assert_int_equal(
                        run("Early=1\n[Limits]\nNew=1\nMaxVMs=1\n[Future]\nA=1\nB=2\n[policy]\nDecision=x\n",
                            "--check-config", output, sizeof(output)),
                        0);
        assert_non_null(strstr(output, ":1: Early= comes before the first [section], ignoring it"));
        assert_non_null(strstr(output, ":3: [Limits] has no New=, ignoring it"));
        assert_non_null(strstr(output,
                               ":6: there is no section [Future], ignoring its A= and what follows"));
        assert_null(strstr(output, "B="));
        assert_non_null(strstr(output, ":9: there is no section [policy]"));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_reload, fixture_teardown),
                cmocka_unit_test_teardown(test_bad_reload_changes_nothing, fixture_teardown),
                cmocka_unit_test_teardown(test_hangup, fixture_teardown),
                cmocka_unit_test(test_start),
                cmocka_unit_test(test_check),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
