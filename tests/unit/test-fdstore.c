/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is said to a service manager that cannot be reached now and then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fdstore.h"

static struct sockaddr_un address = { .sun_family = AF_UNIX };
static int sock = -1;

static void reachable(bool yes) {
        assert_int_equal(yes ? setenv("NOTIFY_SOCKET", address.sun_path, 1) : unsetenv("NOTIFY_SOCKET"), 0);
}

static int setup(void **state) {
        snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/tdpd-test-fdstore-%i", (int) getpid());
        sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(sock >= 0);
        assert_int_equal(bind(sock, (struct sockaddr *) &address, sizeof(address)), 0);
        reachable(true);
        return 0;
}

static int teardown(void **state) {
        close(sock);
        unlink(address.sun_path);
        return 0;
}

/* The next message, or (NULL) none. */
static void assert_said(const char *line, const char *name) {
        char message[256] = "", expected[64];
        ssize_t n = recv(sock, message, sizeof(message) - 1, 0);

        if (!line) {
                assert_true(n < 0);
                return;
        }
        assert_true(n > 0);
        snprintf(expected, sizeof(expected), "FDNAME=%s", name);
        if (strncmp(message, line, strlen(line)) != 0 || !strstr(message, expected))
                fail_msg("%s of %s was expected: %s", line, name, message);
}

/* A removal that was late is not done to what has got that name since. */
static void test_late_before_new(void **state) {
        _cleanup_(fdstore_freep) FdStore *s = NULL;
        const FdName name = { FD_MEMORY, 0, 0xabc }, other = { FD_HANDLE, 0, 0xabc };
        int fd = memfd_create("x", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(fdstore_new(&s), 0);
        assert_int_equal(fdstore_push(s, name, fd), 0);
        assert_said("FDSTORE=1\n", "tdp1-m0-0000000000000abc");

        reachable(false);
        assert_int_equal(fdstore_remove(s, name), -ENOTCONN);
        assert_int_equal(fdstore_push(s, other, fd), -ENOTCONN);
        assert_int_equal(fdstore_count(s), 1);

        reachable(true);
        assert_int_equal(fdstore_push(s, name, fd), 0);
        assert_said("FDSTOREREMOVE=1\n", "tdp1-m0-0000000000000abc");
        assert_said("FDSTORE=1\n", "tdp1-m0-0000000000000abc");
        assert_int_equal(fdstore_remove_late(s), 0);
        assert_said(NULL, NULL);
        assert_int_equal(fdstore_count(s), 1);
        close(fd);
}

/* The store is full, but for what it is to be told of. */
static void test_late_makes_room(void **state) {
        _cleanup_(fdstore_freep) FdStore *s = NULL;
        const FdName name = { FD_MEMORY, 0, 0xabc };
        int fd = memfd_create("x", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(setenv("FDSTORE", "1", 1), 0);
        assert_int_equal(fdstore_new(&s), 0);
        assert_int_equal(unsetenv("FDSTORE"), 0);
        assert_int_equal(fdstore_push(s, name, fd), 0);
        assert_int_equal(fdstore_push(s, name, fd), -ENOSPC);
        reachable(false);
        assert_int_equal(fdstore_remove(s, name), -ENOTCONN);
        reachable(true);
        assert_int_equal(fdstore_push(s, name, fd), 0);
        close(fd);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_late_before_new, setup, teardown),
                cmocka_unit_test_setup_teardown(test_late_makes_room, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
