/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Output through a pager. */

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "cleanup.h"
#include "pager.h"

static pid_t pager_pid;

static const char *pager_command(void) {
        const char *command = getenv("TDPCTL_PAGER") ?: getenv("PAGER");

        return command ?: "if command -v less >/dev/null; then exec less; else exec cat; fi";
}

void pager_open(void) {
        const char *command = pager_command();
        int fds[2];

        if (!isatty(STDOUT_FILENO) || command[0] == '\0' || strcmp(command, "cat") == 0)
                return;
        if (pipe(fds) < 0)
                return;

        pager_pid = fork();
        if (pager_pid < 0) {
                pager_pid = 0;
                close_keep_errno(fds[0]);
                close_keep_errno(fds[1]);
                return;
        }
        if (pager_pid == 0) {
                (void) dup2(fds[0], STDIN_FILENO);
                close_keep_errno(fds[0]);
                close_keep_errno(fds[1]);
                /* Leave at once if all fits on the screen; long lines are cut, not wrapped. */
                (void) setenv("LESS", "FRSXMK", 0);
                execl("/bin/sh", "sh", "-c", command, (char *) NULL);
                _exit(127);
        }

        (void) dup2(fds[1], STDOUT_FILENO);
        close_keep_errno(fds[0]);
        close_keep_errno(fds[1]);
        /* The pager may be left early: that is no error. */
        (void) signal(SIGPIPE, SIG_IGN);
}

void pager_close(void) {
        if (pager_pid <= 0)
                return;
        (void) fflush(stdout);
        (void) close(STDOUT_FILENO);
        while (waitpid(pager_pid, NULL, 0) < 0 && errno == EINTR)
                ;
        pager_pid = 0;
}
