/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The folder of records, one file for each VM.  A record is prepared under another name first, and then
 * takes the place of the one before in one step: at any time the old or the new one is there, as a whole.
 */

#include "macro.h"

typedef struct State State;

/* Makes the folder if it is not there.  -EBUSY: another tdpd has it. */
int state_open(const char *path, State **ret);
/* The same for files that end in "suffix", instead of VMs' ".vm"; "durable": what is committed survives a
 * power cut. */
int state_open_as(const char *path, const char *suffix, bool durable, State **ret);
State *state_free(State *s);
DEFINE_CLEANUP(State, state_free);
const char *state_path(const State *s);

int state_prepare(State *s, const char *name, const char *text, size_t size);
int state_commit(State *s, const char *name);
int state_forget_prepared(State *s, const char *name);
int state_write(State *s, const char *name, const char *text, size_t size); /* both */
int state_remove(State *s, const char *name);

typedef struct StateEntry {
        char *file;    /* its name in the folder */
        char *name;    /* of the VM, or NULL: a file that is none of ours */
        bool prepared; /* and not committed */
        char *text;    /* NULL: see "error" */
        size_t size;
        int error; /* why it cannot be read: -EFBIG, -EISDIR, -ELOOP, ... */
} StateEntry;

/* All there is, records before prepared ones. */
int state_list(State *s, size_t size_max, StateEntry **ret, size_t *ret_n);
void state_entries_free(StateEntry *entries, size_t n);
/* By its name in the folder. */
int state_unlink(State *s, const char *file);
