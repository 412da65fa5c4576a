/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is read of files of numbers, and of processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "process.h"
#include "sysfs.h"

static int read_number(const char *text, uint64_t *ret) {
        int fd = memfd_create("number", MFD_CLOEXEC), r;

        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), (ssize_t) strlen(text));
        r = sysfs_read_u64(ret, "/proc/self/fd/%i", fd);
        close(fd);
        return r;
}

static void test_numbers(void **state) {
        static const char *const bad[] = {
                "", "\n", "-1\n", "0x10\n", "5 6\n", "5k\n", "18446744073709551616\n"
        };
        uint64_t n = 7;

        assert_int_equal(read_number("0\n", &n), 0);
        assert_int_equal(n, 0);
        assert_int_equal(read_number("18446744073709551615", &n), 0);
        assert_true(n == UINT64_MAX);
        n = 7;
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                assert_int_equal(read_number(bad[i], &n), -EBADMSG);
        assert_int_equal(sysfs_read_u64(&n, "/nonexistent/%s", "file"), -ENOENT);
        assert_int_equal(sysfs_read_u64(&n, "/%05000d", 1), -ENAMETOOLONG);
        assert_int_equal(n, 7);
}

static void test_too_long(void **state) {
        _cleanup_free_ char *text = NULL;
        int fd = memfd_create("text", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, KIB(64) - 1), 0);
        assert_int_equal(sysfs_read(&text, "/proc/self/fd/%i", fd), 0);
        text[0] = 'x';
        freep(&text);
        text = NULL;
        assert_int_equal(ftruncate(fd, KIB(64)), 0);
        assert_int_equal(sysfs_read(&text, "/proc/self/fd/%i", fd), -E2BIG);
        assert_null(text);
        close(fd);
}

static void test_process(void **state) {
        struct rlimit limit;
        uint64_t memlock;
        int pidfd = -1;
        uid_t uid = 1;
        pid_t pid;

        assert_int_equal(process_get_uid(getpid(), &uid), 0);
        assert_int_equal(uid, getuid());
        assert_int_equal(process_get_memlock(getpid(), &memlock), 0);
        assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
        assert_true(memlock == UINT64_MAX || memlock == limit.rlim_cur);

        assert_int_equal(process_open(0, &pidfd), -ESRCH);
        assert_int_equal(process_open(-1, &pidfd), -ESRCH);
        assert_int_equal(pidfd, -1);

        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
                _exit(pause());
        assert_int_equal(process_open(pid, &pidfd), 0);
        assert_true(process_is_alive(pidfd));
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_false(process_is_alive(pidfd));
        close(pidfd);
        /* Another one may have got the number meanwhile, so this may also find somebody. */
        assert_true(process_get_uid(pid, &uid) == -ESRCH || process_get_uid(pid, &uid) == 0);
}

/* As the daemon is: root, without CAP_SYS_RESOURCE.  The wait status of whoever asks. */
static int ask_memlock(pid_t of, uint64_t expected) {
        pid_t pid = fork();
        int status;

        assert_true(pid >= 0);
        if (pid == 0) {
                struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
                struct __user_cap_data_struct caps[2];
                uint64_t memlock = 0;
                struct rlimit limit;

                if (syscall(SYS_capget, &header, caps) < 0)
                        _exit(2);
                caps[0].effective &= ~(1U << CAP_SYS_RESOURCE);
                caps[0].permitted &= ~(1U << CAP_SYS_RESOURCE);
                caps[0].inheritable &= ~(1U << CAP_SYS_RESOURCE);
                if (syscall(SYS_capset, &header, caps) < 0)
                        _exit(3);
                /* Or else this shows nothing. */
                if (prlimit(of, RLIMIT_MEMLOCK, NULL, &limit) >= 0 || errno != EPERM)
                        _exit(4);
                if (process_get_memlock(of, &memlock) != 0)
                        _exit(5);
                _exit(memlock == expected ? 0 : 6);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return status;
}

/* Another user's, who has no capabilities then. */
static pid_t start_with_memlock(rlim_t soft) {
        pid_t pid;
        int p[2];
        char c;

        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                struct rlimit limit;

                if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
                        _exit(1);
                limit.rlim_cur = soft;
                if (setrlimit(RLIMIT_MEMLOCK, &limit) < 0 || setresgid(65534, 65534, 65534) < 0 ||
                    setresuid(65534, 65534, 65534) < 0 || write(p[1], "", 1) != 1)
                        _exit(1);
                _exit(pause());
        }
        close(p[1]);
        assert_int_equal(read(p[0], &c, 1), 1);
        close(p[0]);
        return pid;
}

static void test_memlock_of_others(void **state) {
        static const rlim_t limits[] = { 12345, 0, RLIM_INFINITY };
        struct rlimit ours;
        uint64_t memlock;

        if (geteuid() != 0)
                skip();
        assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &ours), 0);
        for (size_t i = 0; i < ELEMENTSOF(limits); i++) {
                pid_t pid;

                if (limits[i] > ours.rlim_max) {
                        print_message("not tried without a limit: this machine has one\n");
                        continue;
                }
                pid = start_with_memlock(limits[i]);
                assert_int_equal(ask_memlock(pid, limits[i] == RLIM_INFINITY ? UINT64_MAX : limits[i]), 0);
                kill(pid, SIGKILL);
                assert_int_equal(waitpid(pid, NULL, 0), pid);
        }
        assert_int_equal(process_get_memlock(INT32_MAX, &memlock), -ESRCH);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_numbers),
                cmocka_unit_test(test_too_long),
                cmocka_unit_test(test_process),
                cmocka_unit_test(test_memlock_of_others),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
