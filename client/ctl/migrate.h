/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "args.h"
#include "incoming.h"
#include "progress.h"
#include "qmp.h"
#include "runtime.h"
#include "tdp/tdp.h"

/* A migration, as "tdpctl migrate" does it. */

enum phase {
        PHASE_CONNECT,
        PHASE_OFFER,
        PHASE_PREPARE,
        PHASE_INCOMING, /* the destination's QEMU, attached and built */
        PHASE_SPLIT,
        PHASE_COPY,
        PHASE_COMMIT,
        PHASE_RESUME,
        PHASE_ARRIVE, /* post-copy: the rest */
        PHASE_RELEASE,
        _PHASE_MAX,
};

/* Whose the guest is. */
enum owner {
        OWNER_SOURCE,
        OWNER_UNKNOWN, /* the destination has been asked to take it */
        OWNER_DESTINATION,
};

/* By whom the destination is asked to take it. */
enum way {
        WAY_NONE,   /* nobody, so far */
        WAY_RUN,    /* its "run", which has not said yet what came of it */
        WAY_DAEMON, /* its tdpd, from here */
};

struct migrate {
        const struct args *args;
        const char *name;

        /* the guest, here */
        struct runtime runtime;
        int mark;                    /* held as long as somebody else must not undo it */
        char left[RUNTIME_MARK_MAX]; /* what the mark of one that died says; empty: there was none */
        json_object *vm_json;
        struct qmp here;
        char status[24];  /* of QEMU's migration, as it tells by itself */
        bool copying;     /* QEMU's migration has been started */
        bool has_left;    /* the guest stands still, behind a migration that was complete */
        bool runs_here;   /* the guest */
        bool split_by_us; /* without a handoff */
        uint64_t bytes_left;

        /* and there */
        enum incoming_mode mode;
        struct qmp there;
        char status_there[24];
        pid_t ssh;
        bool runs_there;
        bool loaded_there; /* the guest: all that it needs to run */
        enum way way;
        uint64_t way_until_usec; /* when it is given up */
        json_object *ready;      /* what the destination's "run" has said of itself */
        unsigned port;

        struct tdp_ctx *source, *destination; /* NULL: there is none */
        struct tdp_vm *vm;
        struct tdp_handoff *out, *in;
        struct tdp_message *complete; /* of the destination's, that the source has not heard yet */
        enum owner owner;
        bool patient; /* what fails is tried again, and not said each time */
        bool undone;  /* both sides have heard that it is off */
        bool goes_on; /* after commit, where another tdpctl has left it */

        struct progress progress;
        enum phase phase;
        uint64_t phase_usec[_PHASE_MAX];
        uint64_t start_usec, deadline_usec, stop_usec, resume_usec, transferred;
        int signo;
};

uint64_t migrate_now(void);
const char *phase_to_string(enum phase phase);

/*
 * The steps. Each returns 0, or a negative errno after having said what is wrong; nothing is undone by it.
 * migrate-connect.c: this host's QEMU, both tdpd, and what can be done with them.
 */
int migrate_connect(struct migrate *m);

/* migrate-handoff.c */
int migrate_offer(struct migrate *m);
int migrate_prepare(struct migrate *m);
int migrate_split(struct migrate *m);

/* migrate-incoming.c: again: to one that is there already. */
int migrate_incoming(struct migrate *m);
int migrate_incoming_again(struct migrate *m);
void migrate_incoming_done(struct migrate *m);

/* migrate-copy.c */
int migrate_copy(struct migrate *m);
/* What has gone over, once it does not matter any more how long asking takes. */
void migrate_count(struct migrate *m);
int migrate_arrive(struct migrate *m);
int migrate_wait_until_loaded(struct migrate *m);
int migrate_resume_there(struct migrate *m);
/* The guest goes on here. Negative if QEMU does not say so. */
int migrate_resume_here(struct migrate *m);
/* Takes note of what QEMU tells, of both. */
void migrate_on_event_here(const char *event, json_object *data, void *userdata);
void migrate_on_event_there(const char *event, json_object *data, void *userdata);

/* migrate-commit.c: owner says what came of it, whatever is returned. */
int migrate_commit(struct migrate *m);
int migrate_release(struct migrate *m);
/* Carries what one has to say to the other one, and its reply back. 1: there was something. */
int migrate_carry(struct migrate *m, bool from_source);

/*
 * migrate-ask.c: whose it is. migrate_ask() says commit, once (more), to whom is nearest; m->complete is the
 * reply. The others ask what this host's tdpd has heard, or what the destination's has decided; -EAGAIN: not
 * yet.
 */
int migrate_ask(struct migrate *m);
/* The destination's "run" has been told, and can still be expected to answer. */
bool migrate_run_commits(struct migrate *m);
void migrate_on_committed(struct migrate *m, json_object *data);
int migrate_ask_source(struct migrate *m);
int migrate_ask_destination(struct migrate *m);
bool migrate_state_is(const struct tdp_handoff *h, const char *a, const char *b, const char *c);

/* migrate-undo.c: all back, in reverse order; only while the source owns the guest. */
void migrate_undo(struct migrate *m);

/* Ctrl-C and the deadline, where it can still be called off. Negative: it is to be. */
int migrate_check(void *userdata);

int migrate_fail(struct migrate *m, struct tdp_ctx *ctx, int r, const char *where);
