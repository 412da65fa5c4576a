/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "users.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

gid_t test_group(void) {
        struct group *g = getgrnam("games");

        if (!g) {
                print_message("there is no group \"games\"\n");
                skip();
        }
        return g->gr_gid;
}

pid_t user_start(Fixture *f, uid_t uid, gid_t group, int (*run)(sd_bus *bus, void *userdata),
                 void *userdata) {
        pid_t parent = getpid(), pid = fork();
        sd_bus *bus;

        assert_true(pid >= 0);
        if (pid > 0)
                return pid;
        if (setgroups(group ? 1 : 0, &group) < 0 || setgid(NOBODY) < 0 || setuid(uid) < 0)
                _exit(100);
        /* Once the user is another one: that takes it away. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(101);
        bus = fixture_connect(f->address);
        if (!bus)
                _exit(102);
        _exit(run(bus, userdata));
}

int user_wait(pid_t pid) {
        int status;

        while (waitpid(pid, &status, 0) < 0)
                assert_int_equal(errno, EINTR);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

int user_run(Fixture *f, uid_t uid, gid_t group, int (*run)(sd_bus *bus, void *userdata), void *userdata) {
        return user_wait(user_start(f, uid, group, run, userdata));
}
