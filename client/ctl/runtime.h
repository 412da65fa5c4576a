/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * What a run leaves for others of the same user while it lasts: a folder (mode 0700) for each VM, with
 * QEMU's control socket ("qmp"), what QEMU was started with ("vm.json"), and a mark that a migration is
 * under way
 * ("migration", locked by who does it).
 *
 * Below $TDPCTL_RUNTIME_DIR, or /run/tdpctl for root and $XDG_RUNTIME_DIR/tdpctl for others.
 */
struct runtime {
        char *base, *folder, *qmp, *vm, *migration;
        int lock_fd; /* of who runs the VM, or -1 */
};

/* -ENOENT: this user has no such place. -ENAMETOOLONG, -EINVAL (of the name), -ENOMEM. */
int runtime_init(struct runtime *r, const char *name);
void runtime_done(struct runtime *r);

/* Only the place where the folders are. */
int runtime_make_base(const struct runtime *r);

/* For who runs the VM. -EBUSY: somebody does. */
int runtime_create(struct runtime *r);
/* Until nobody runs it (any more), or -EBUSY. */
int runtime_wait(const struct runtime *r, uint64_t usec);
void runtime_remove(struct runtime *r);

/* A new object, or a negative errno. */
int runtime_read(const struct runtime *r, json_object **ret);

#define RUNTIME_MARK_MAX 64

/*
 * The mark: made (with one line of text, which is replaced if there is one) and held by the returned
 * descriptor. -EBUSY: somebody else holds it.
 */
int runtime_mark(const struct runtime *r, const char *text);
void runtime_mark_set(int fd, const char *text);
void runtime_unmark(const struct runtime *r, int fd);
/* There is a mark, and nobody holds it: a migration was left in the middle. text: what its mark says. */
bool runtime_is_orphaned(const struct runtime *r, char text[static RUNTIME_MARK_MAX]);

/* A stream socket that is connected to that path, or a negative errno. */
int unix_connect(const char *path);
/* One that listens there. */
int unix_listen(const char *path);
