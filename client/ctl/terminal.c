/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The terminal's settings, kept over a QEMU that was killed. */

#include <fcntl.h>
#include <unistd.h>

#include "terminal.h"

void terminal_save(struct terminal *t) {
        *t = (struct terminal){};
        if (tcgetattr(STDIN_FILENO, &t->settings) < 0) /* no terminal */
                return;
        t->flags = fcntl(STDIN_FILENO, F_GETFL);
        t->saved = t->flags >= 0;
}

void terminal_restore(const struct terminal *t) {
        /* In the background it is somebody else's, and would stop us. */
        if (!t->saved || tcgetpgrp(STDIN_FILENO) != getpgrp())
                return;
        (void) tcsetattr(STDIN_FILENO, TCSANOW, &t->settings);
        (void) fcntl(STDIN_FILENO, F_SETFL, t->flags);
}
