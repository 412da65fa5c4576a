/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Signals that ask tdpctl to stop. */

#include <errno.h>
#include <stddef.h>
#include <sys/signalfd.h>
#include <time.h>

#include "signals.h"

static sigset_t stop_signals(void) {
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGHUP);
        return set;
}

void signals_block(void) {
        sigset_t set = stop_signals();

        (void) sigprocmask(SIG_BLOCK, &set, NULL);
}

void signals_unblock(void) {
        sigset_t set = stop_signals();

        (void) sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int signals_next(siginfo_t *ret_info) {
        static const struct timespec no_wait;
        sigset_t set = stop_signals();
        int signo;

        do
                signo = sigtimedwait(&set, ret_info, &no_wait);
        while (signo < 0 && errno == EINTR);

        return signo < 0 ? 0 : signo;
}

int signals_fd(void) {
        sigset_t set = stop_signals();
        int fd;

        fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        return fd < 0 ? -errno : fd;
}
