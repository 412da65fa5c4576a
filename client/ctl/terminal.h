/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <termios.h>

/* How the terminal on standard input was set before a program that may change it, and may not live to undo
 * that. */
struct terminal {
        bool saved;
        struct termios settings;
        int flags; /* of the open file, which is shared with the program */
};

void terminal_save(struct terminal *t);
void terminal_restore(const struct terminal *t);
