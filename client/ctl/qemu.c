/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The QEMU process: start, end, signals. */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#include "cleanup.h"
#include "qemu.h"
#include "signals.h"

#define END_MSEC 5000

static void __attribute__((noreturn)) child(char *const *argv, const int *fds, int error_fd) {
        int error;

        for (size_t i = 0; fds[i] >= 0; i++)
                if (fcntl(fds[i], F_SETFD, 0) < 0)
                        goto fail;

        (void) signal(SIGPIPE, SIG_DFL);
        signals_unblock();
        execvp(argv[0], argv);
fail:
        error = errno;
        (void) !write(error_fd, &error, sizeof(error));
        _exit(127);
}

int qemu_start(struct qemu *q, char *const *argv, const int *fds) {
        _cleanup_close_ int read_end = -1, write_end = -1;
        int pipe_fds[2], error;
        struct terminal terminal;
        pid_t pid;
        ssize_t n;

        if (pipe2(pipe_fds, O_CLOEXEC) < 0)
                return -errno;
        read_end = pipe_fds[0];
        write_end = pipe_fds[1];

        terminal_save(&terminal);
        pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0)
                child(argv, fds, write_end);

        /* Closed without a word when the new program runs. */
        write_end = close_keep_errno(write_end);
        do
                n = read(read_end, &error, sizeof(error));
        while (n < 0 && errno == EINTR);
        if (n == sizeof(error)) {
                (void) waitpid(pid, NULL, 0);
                return -error;
        }

        *q = (struct qemu){ .pid = pid, .pidfd = pidfd_open(pid, 0), .terminal = terminal };
        if (q->pidfd < 0) {
                error = errno;
                (void) kill(pid, SIGKILL);
                (void) waitpid(pid, NULL, 0);
                q->pid = 0;
                return -error;
        }
        (void) fcntl(q->pidfd, F_SETFD, FD_CLOEXEC);
        return 0;
}

bool qemu_has_ended(struct qemu *q) {
        siginfo_t info = {};

        if (q->pid == 0 || q->ended)
                return true;
        if (waitid(P_PID, (id_t) q->pid, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
                return false;

        q->ended = true;
        q->signaled = info.si_code != CLD_EXITED;
        q->code = q->signaled ? 128 + info.si_status : info.si_status;
        if (q->signaled) /* it had no time to leave the terminal as it was */
                terminal_restore(&q->terminal);
        return true;
}

void qemu_kill(struct qemu *q, int signo) {
        if (q->pid > 0 && !q->ended)
                (void) kill(q->pid, signo); /* not reaped yet, so the pid is still its own */
}

void qemu_end(struct qemu *q) {
        struct pollfd p = { .fd = q->pidfd, .events = POLLIN };

        if (qemu_has_ended(q))
                return;

        qemu_kill(q, SIGTERM);
        (void) poll(&p, 1, END_MSEC);
        while (!qemu_has_ended(q)) {
                qemu_kill(q, SIGKILL);
                (void) poll(&p, 1, END_MSEC);
        }
}

void qemu_done(struct qemu *q) {
        if (q->pid > 0)
                q->pidfd = close_keep_errno(q->pidfd);
}
