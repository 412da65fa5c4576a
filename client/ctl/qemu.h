/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "terminal.h"

/* The QEMU process. */
struct qemu {
        pid_t pid; /* 0: not started */
        int pidfd;
        bool ended;
        int code; /* when ended: exit status, or 128 + signal */
        bool signaled;
        struct terminal terminal; /* as it was before */
};

/* Exit codes of tdpctl if QEMU cannot be executed, as in env(1). */
#define EXIT_QEMU_NOT_EXECUTABLE 126
#define EXIT_QEMU_NOT_FOUND      127

/*
 * Starts it with these descriptors left open (fds ends with -1). Returns 0, or a negative errno: that of
 * execvp() if it is what failed.
 */
int qemu_start(struct qemu *q, char *const *argv, const int *fds);

/* Notices its end, without waiting. True if it has ended. */
bool qemu_has_ended(struct qemu *q);

void qemu_kill(struct qemu *q, int signo);

/* Ends it: politely, then by force. */
void qemu_end(struct qemu *q);

void qemu_done(struct qemu *q);
