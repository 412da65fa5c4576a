/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* systemd is told that the loop turns, as long as it does. */
#include "fixture.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "standin.h"

#define PERIOD_USEC UINT64_C(1000000)

static char dir[64];
static int notify = -1;

/* What systemd gives a unit with Type=notify and WatchdogSec=. */
static int setup(void **state) {
        struct sockaddr_un sa = { .sun_family = AF_UNIX };
        char usec[32];

        snprintf(dir, sizeof(dir), "/tmp/tdpd-test-watchdog-XXXXXX");
        assert_non_null(mkdtemp(dir));
        snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/notify", dir);
        notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_true(notify >= 0);
        assert_int_equal(bind(notify, (struct sockaddr *) &sa, sizeof(sa)), 0);
        snprintf(usec, sizeof(usec), "%llu", (unsigned long long) PERIOD_USEC);
        setenv("NOTIFY_SOCKET", sa.sun_path, 1);
        setenv("WATCHDOG_USEC", usec, 1);
        return 0;
}

static int teardown(void **state) {
        char path[128];

        unsetenv("NOTIFY_SOCKET");
        unsetenv("WATCHDOG_USEC");
        snprintf(path, sizeof(path), "%s/notify", dir);
        (void) unlink(path);
        (void) rmdir(dir);
        close(notify);
        return fixture_teardown(state);
}

/* How many pings there are in that time, and the longest time without one. */
static unsigned count_pings(uint64_t usec, uint64_t *ret_longest) {
        uint64_t start = now_usec(), last = start, now;
        unsigned n = 0;

        for (*ret_longest = 0; (now = now_usec()) < start + usec;) {
                struct pollfd p = { .fd = notify, .events = POLLIN };
                char text[512];
                ssize_t size;

                if (poll(&p, 1, (int) ((start + usec - now) / 1000) + 1) <= 0)
                        continue;
                size = recv(notify, text, sizeof(text) - 1, MSG_DONTWAIT);
                assert_true(size >= 0);
                text[size] = '\0';
                if (!strstr(text, "WATCHDOG=1"))
                        continue;
                now = now_usec();
                if (now - last > *ret_longest)
                        *ret_longest = now - last;
                last = now;
                n++;
        }
        if (now_usec() - last > *ret_longest)
                *ret_longest = now_usec() - last;
        return n;
}

static void drain(void) {
        char text[512];

        while (recv(notify, text, sizeof(text), MSG_DONTWAIT) >= 0)
                ;
        assert_int_equal(errno, EAGAIN);
}

/* A job of ten minutes is no reason to be killed: it is not the loop that works. */
static void case_12_watchdog_is_fed_during_a_long_job(void **state) {
        Fixture *f = standin_start("never-ends");
        uint64_t longest;

        (void) standin_attach(f, spawn_vmm(1, 0), "always");
        assert_state(f, "building");
        drain();
        assert_true(count_pings(4 * PERIOD_USEC, &longest) >= 4);
        assert_true(longest < PERIOD_USEC);
        assert_state(f, "building");
        fixture_stop(f);
}

/* Nor is it fed by anything but the loop: one that hangs is found out. */
static void test_watchdog_starves_with_the_loop(void **state) {
        Fixture *f = standin_start("never-ends");
        uint64_t longest;

        (void) standin_attach(f, spawn_vmm(1, 0), "always");
        assert_int_equal(kill(f->tdpd_pid, SIGSTOP), 0);
        usleep(100000);
        drain();
        assert_int_equal(count_pings(2 * PERIOD_USEC, &longest), 0);
        assert_int_equal(kill(f->tdpd_pid, SIGCONT), 0);
        assert_true(count_pings(2 * PERIOD_USEC, &longest) >= 1);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(case_12_watchdog_is_fed_during_a_long_job, setup, teardown),
                cmocka_unit_test_setup_teardown(test_watchdog_starves_with_the_loop, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
