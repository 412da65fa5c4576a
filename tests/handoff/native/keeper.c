/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * keeper COMMAND...: keeps a daemon as systemd does, with Restart=always, RestartSec=500ms and an FD store,
 * until it is told to end (SIGTERM). Says "PID DESCRIPTORS" for each daemon that it starts, the second for
 * what it is given.
 */
#include "store.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RESTART_NSEC 500000000L

static sigset_t signals;

static pid_t start(char *argv[]) {
        size_t n = store_count();
        pid_t parent = getpid(), pid;

        store_before_fork();
        pid = fork();
        store_after_fork();
        if (pid == 0) {
                (void) sigprocmask(SIG_UNBLOCK, &signals, NULL);
                store_in_child();
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() != parent)
                        _exit(1);
                execv(argv[0], argv);
                perror(argv[0]);
                _exit(127);
        }
        printf("%i %zu\n", (int) pid, n);
        fflush(stdout);
        return pid;
}

/* true: to end. */
static bool wait_for_signal(const struct timespec *timeout) {
        return sigtimedwait(&signals, NULL, timeout) == SIGTERM;
}

int main(int argc, char *argv[]) {
        struct timespec pause = { .tv_nsec = RESTART_NSEC }, forever = { .tv_sec = 3600 };
        bool ends = false;
        pid_t pid;

        if (argc < 2) {
                fprintf(stderr, "keeper COMMAND...\n");
                return 2;
        }
        (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
        (void) sigemptyset(&signals);
        (void) sigaddset(&signals, SIGTERM);
        (void) sigaddset(&signals, SIGCHLD);
        (void) sigprocmask(SIG_BLOCK, &signals, NULL);
        store_begin();

        while (!ends) {
                pid = start(argv + 1);
                if (pid < 0) {
                        perror("fork");
                        break;
                }
                while (waitpid(pid, NULL, WNOHANG) == 0) {
                        ends = wait_for_signal(&forever);
                        if (ends) {
                                (void) kill(pid, SIGTERM);
                                (void) waitpid(pid, NULL, 0);
                                break;
                        }
                }
                if (!ends)
                        ends = wait_for_signal(&pause);
        }
        store_end();
        return 0;
}
