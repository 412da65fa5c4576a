/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Clients that go, and limits of the daemon's own. */
#include "users.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/capability.h>

/* So much that it takes a while. */
#define LARGE (256 * MIB)

static int reserve_and_go(sd_bus *bus, void *userdata) {
        sd_bus_message *m = NULL;

        if (sd_bus_message_new_method_call(bus, &m, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "Reserve") <
                            0 ||
            sd_bus_message_append(m, "sta{sv}", "left", LARGE, 1, "page-size", "t", UINT64_C(4096)) < 0 ||
            sd_bus_call(bus, m, 0, NULL, NULL) < 0)
                return 1;
        return 0; /* and the connection is closed, with the job under way */
}

static void case_69_client_loss_does_not_cancel(void **state) {
        Reservation r;
        Fixture *f;
        char *s;

        require_root();
        f = fixture_start(NULL, NULL);
        assert_int_equal(user_run(f, 0, 0, reserve_and_go, NULL), 0);
        assert_string_equal(wait_job(f, "/org/tdpd1/job/1")->result, "done");
        s = vm_state(f, "/org/tdpd1/vm/left");
        assert_string_equal(s, "populated");
        free(s);
        release(f, "/org/tdpd1/vm/left");

        /* Cancel does, and leaves nothing. */
        r = reserve(f, "db", LARGE, 4096);
        sd_bus_message_unref(call(f->bus, NULL, r.job, "org.tdpd1.Job", "Cancel", NULL));
        assert_string_equal(wait_job(f, r.job)->result, "canceled");
        wait_vms(f, 0);
        fixture_stop(f);
}

/* Runs tdpd up to where it finds no bus, with that limit and no right to pass it, or as we are; gives what
 * it has said. */
static void run_limited(const struct rlimit *memlock, char *output, size_t size) {
        int pipes[2], status;
        size_t n = 0;
        ssize_t got;
        pid_t pid;

        assert_int_equal(pipe(pipes), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                dup2(pipes[1], STDERR_FILENO);
                if (memlock &&
                    (setrlimit(RLIMIT_MEMLOCK, memlock) < 0 || prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK) < 0))
                        _exit(100);
                execl(getenv("TDPD"), "tdpd", "--bus=unix:path=/nonexistent", "--config=/dev/null", NULL);
                _exit(127);
        }
        close(pipes[1]);
        while ((got = read(pipes[0], output + n, size - 1 - n)) > 0)
                n += (size_t) got;
        output[n] = '\0';
        close(pipes[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(WEXITSTATUS(status), 1);
}

static void case_51_memlock_too_small(void **state) {
        char output[4096];

        require_root();
        run_limited(&(struct rlimit){ 65536, 65536 }, output, sizeof(output));
        assert_non_null(strstr(output,
                               "tdpd may lock 64 KiB (RLIMIT_MEMLOCK), and its VMs could need up to "));
        assert_non_null(strstr(output, "LimitMEMLOCK=infinity"));
        run_limited(NULL, output, sizeof(output));
        assert_non_null(strstr(output, "cannot be reached"));
        if (prctl(PR_CAPBSET_READ, CAP_IPC_LOCK) == 1)
                assert_null(strstr(output, "RLIMIT_MEMLOCK"));
}

/* A VM takes two descriptors of the daemon's, and one for each node. */
static void test_descriptors_are_limited(void **state) {
        Reservation r;
        Fixture *f;

        require_root();
        f = fixture_start("[Limits]\nMaxFDs=7\n", NULL);
        r = reserve(f, "a", MIB, 4096);
        wait_job(f, r.job);
        wait_job(f, reserve(f, "b", MIB, 4096).job);
        assert_call_fails(f, ERR("LimitExceeded"), "MaxFDs=", "Reserve", "sta{sv}", "c", MIB, 1, "page-size",
                          "t", UINT64_C(4096));
        assert_int_equal(count_vms(f), 2);
        release(f, r.vm);
        wait_job(f, reserve(f, "c", MIB, 4096).job);
        fixture_stop(f);
}

/* What the release waits for is charged, and a second one can wait too. */
static int release_twice(sd_bus *bus, void *userdata) {
        return sd_bus_call_method(bus, "org.tdpd1", userdata, "org.tdpd1.VM", "Release", NULL, NULL, NULL) <
               0;
}

static void test_two_wait_for_a_release(void **state) {
        Reservation r;
        pid_t users[2];
        Fixture *f;

        require_root();
        f = fixture_start("[Limits]\nMaxCalls=2\n", NULL);
        r = reserve(f, "db", LARGE, 4096);
        wait_job(f, r.job);
        for (unsigned i = 0; i < 2; i++)
                users[i] = user_start(f, 0, 0, release_twice, r.vm);
        /* One of them at least; the other one may come when all is over. */
        assert_true(user_wait(users[0]) + user_wait(users[1]) <= 1);
        assert_int_equal(count_vms(f), 0);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(case_69_client_loss_does_not_cancel, fixture_teardown),
                cmocka_unit_test(case_51_memlock_too_small),
                cmocka_unit_test_teardown(test_descriptors_are_limited, fixture_teardown),
                cmocka_unit_test_teardown(test_two_wait_for_a_release, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
