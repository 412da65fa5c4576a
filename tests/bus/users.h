/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Other users, played by child processes. */

#include "fixture.h"

/* The bus lets only users in that the machine knows: nobody and daemon are on each. */
#define NOBODY   ((uid_t) 65534)
#define SOMEBODY ((uid_t) 1)

/* Any group that a Debian system has, and that nobody is in; skips the test if it has not. */
gid_t test_group(void);

/* Runs f in a child of that user, on a connection of its own; gid 0: in no group. */
pid_t user_start(Fixture *f, uid_t uid, gid_t group, int (*run)(sd_bus *bus, void *userdata),
                 void *userdata);
/* What run() has returned. */
int user_wait(pid_t pid);
int user_run(Fixture *f, uid_t uid, gid_t group, int (*run)(sd_bus *bus, void *userdata), void *userdata);
