/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The little of a service manager that tdpd needs to outlive itself: it takes descriptors (FDSTORE=1),
 * forgets them (FDSTOREREMOVE=1), answers BARRIER=1, and gives to the next tdpd what it has.  A thread does
 * it, so that tdpd never waits for the test.
 */

#include <stdbool.h>
#include <stddef.h>

/* Before fixture_start(): its tdpd is kept, with records in "state" of the fixture's folder. */
void store_begin(void);
bool store_is_on(void);
void store_end(void);

/* Until all that was sent before has been done: also what a tdpd sent that is dead now. */
void store_wait(void);
/* Of VMs. */
size_t store_count(void);
/* Loses what has this in its name, or ("") all: as systemd does when a service is stopped. */
void store_lose(const char *part);
/* Keeps something under that name.  It is the store's then. */
void store_put(const char *name, int fd);
/* What is kept under a name that has this in it, or -1. */
int store_peek(const char *part);

/* Changes the value of a key in a record of tdpd, and makes its checksum right again. */
void record_edit(const char *path, const char *key, const char *value);

/* Around fork(): the child gets it all, and is told so by its environment. */
void store_before_fork(void);
void store_after_fork(void);
void store_in_child(void);
