/* SPDX-License-Identifier: LGPL-2.1-or-later */

/*
 * run: looks after a migration, should the tdpctl that does it die or be killed. On the source the guest
 * goes on if the destination cannot have it, and QEMU ends if the destination has it; on the destination
 * QEMU ends if the handoff is off, and the guest runs if it is here. Who owns it, tdpd knows; in doubt it
 * stands still.
 */

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "log.h"
#include "run.h"
#include "verbs.h"

#define LOOK_USEC    UINT64_C(500000)
#define COMMAND_USEC UINT64_C(5000000)
#define DAEMON_USEC  UINT64_C(2000000)
/* The tdpctl that migrates is faster, if it is there. */
#define GRACE_USEC UINT64_C(2000000)
/* All is here, and the source was perhaps asked to commit: whoever comes back may still have it taken. */
#define COMMIT_GRACE_USEC UINT64_C(60000000)

static uint64_t now_usec(void) {
        struct timespec ts;

        (void) clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static bool is_one_of(const char *word, const char *const *words) {
        for (; *words; words++)
                if (strcmp(word, *words) == 0)
                        return true;
        return false;
}

/* A word of an answer of QEMU's; empty if there is none. */
static const char *ask(struct run *run, const char *command) {
        json_object *v;

        if (qmp_execute(&run->qmp, command, COMMAND_USEC, NULL, NULL) < 0 ||
            !json_object_object_get_ex(qmp_result(&run->qmp), "status", &v))
                return "";
        return json_object_get_string(v);
}

/* -ENOENT: there is none (any more). Anything else may change. */
static int look_at(struct run *run, const char *id, const char *role) {
        int r;

        tdp_set_timeout(run->ctx, DAEMON_USEC);
        r = run->incoming.handoff ? tdp_handoff_refresh(run->incoming.handoff)
                                  : tdp_get_handoff(run->ctx, id, role, &run->incoming.handoff);
        tdp_set_timeout(run->ctx, 0);
        return r;
}

/* Nothing is to be looked after any more. */
static void settle(struct run *run) {
        run->looks_after = false;
        run->incoming.settled = true;
        (void) unlink(run->runtime.migration);
        run->incoming.handoff = tdp_handoff_free(run->incoming.handoff);
}

/* Nobody is left who would carry anything, and the guest is not this host's. The destination may call it off
 * by itself as long as it has not taken it; a source that asks hears so. */
static bool is_abandoned(struct run *run) {
        struct incoming *in = &run->incoming;
        char mark[RUNTIME_MARK_MAX];
        uint64_t grace;

        if (!runtime_is_orphaned(&run->runtime, mark)) {
                in->orphan_since_usec = 0;
                return false;
        }
        if (in->orphan_since_usec == 0)
                in->orphan_since_usec = now_usec();
        grace = strcmp(ask(run, "query-migrate"), "completed") == 0 ? COMMIT_GRACE_USEC : GRACE_USEC;
        return now_usec() - in->orphan_since_usec >= grace;
}

static void look_as_destination(struct run *run) {
        static const char *const off[] = { "freeing", "gone", NULL };
        static const char *const waits[] = { "ready", "receiving", NULL };
        struct incoming *in = &run->incoming;
        const char *state;
        int r;

        if (in->mode != INCOMING_HANDOFF) {
                if (in->resumed)
                        settle(run);
                else if (is_abandoned(run) && strcmp(ask(run, "query-migrate"), "completed") != 0) {
                        (void) log_error(0,
                                         "Who migrates has gone, and not all data has come: QEMU is ended.");
                        qemu_kill(&run->qemu, SIGKILL);
                }
                return;
        }

        /* What tdpd has told already needs no asking. */
        r = run_is_owner(run) ? 0 : look_at(run, in->id, "destination");
        if (r < 0 && r != -ENOENT)
                return; /* tdpd is away: it will be back */
        state = r < 0 ? "gone" : tdp_handoff_get_state(in->handoff);
        if (r >= 0 && run_is_owner(run)) {
                if (in->owner_since_usec == 0)
                        in->owner_since_usec = now_usec();
                if (in->resumed)
                        settle(run);
                else if (in->commits || now_usec() - in->owner_since_usec >= GRACE_USEC) {
                        log_notice("VM \"%s\" is this host's now: its guest runs.", run->args->name);
                        (void) qmp_execute(&run->qmp, "cont", COMMAND_USEC, NULL, NULL);
                }
        } else if (is_one_of(state, off) && in->owner_since_usec == 0) {
                (void) log_error(0, "The handoff is off: QEMU is ended.");
                qemu_kill(&run->qemu, SIGKILL);
        } else if (is_one_of(state, waits) && is_abandoned(run))
                (void) tdp_handoff_cancel(in->handoff, "who migrates has gone");
}

/* The guest was here, and is: it runs again. */
static void go_on(struct run *run) {
        static const char *const final[] = { "", "none", "completed", "failed", "cancelled", NULL };

        if (!is_one_of(ask(run, "query-migrate"), final)) {
                (void) qmp_execute(&run->qmp, "migrate_cancel", COMMAND_USEC, NULL, NULL);
                return; /* the next look will see what has come of it */
        }
        /* After one that failed or was canceled QEMU lets it run by itself. */
        if (strcmp(ask(run, "query-status"), "postmigrate") == 0 &&
            qmp_execute(&run->qmp, "cont", COMMAND_USEC, NULL, NULL) < 0)
                return;
        log_notice("The migration of VM \"%s\" was left in the middle: the guest goes on here.",
                   run->args->name);
        settle(run);
}

static void say_once(struct run *run, const char *text) {
        if (!run->doubt_told)
                (void) log_error(0, "The migration of VM \"%s\" was left in the middle: %s", run->args->name,
                                 text);
        run->doubt_told = true;
}

static void look_as_source(struct run *run) {
        static const char *const over[] = { "releasing", "released", NULL };
        static const char *const doubt[] = { "committing", "serving", NULL };
        static const char *const ended[] = { "undoing", "kept", NULL };
        char mark[RUNTIME_MARK_MAX];
        const char *state;
        int r;

        if (access(run->runtime.migration, F_OK) < 0) {
                run->looks_after = false;
                return;
        }
        if (!runtime_is_orphaned(&run->runtime, mark))
                return;

        if (strcmp(mark, "plain") == 0) {
                if (strcmp(ask(run, "query-migrate"), "completed") == 0)
                        say_once(run,
                                 "its guest may run on the destination. If it does, end QEMU here; if it "
                                 "surely does not, let it go on (cont).");
                else
                        go_on(run);
                return;
        }

        r = look_at(run, mark, "source");
        if (r < 0 && r != -ENOENT)
                return;
        state = r < 0 ? "kept" : tdp_handoff_get_state(run->incoming.handoff);
        if (is_one_of(state, over)) {
                log_notice("VM \"%s\" is another host's now: QEMU is ended.", run->args->name);
                (void) qmp_execute(&run->qmp, "quit", COMMAND_USEC, NULL, NULL);
        } else if (is_one_of(state, doubt))
                say_once(run,
                         "it stands still until it is known which host has it. Call \"tdpctl migrate\" again, "
                         "with the same destination.");
        else if (is_one_of(state, ended) ||
                 tdp_handoff_cancel(run->incoming.handoff, "tdpctl has gone") >= 0)
                go_on(run);
}

int run_guard(struct run *run) {
        uint64_t now = now_usec();

        if (!run->looks_after || run->runtime.lock_fd < 0 || run->qmp.closed)
                return -1;
        if (now < run->guard_usec)
                return (int) ((run->guard_usec - now + 999) / 1000);

        if (run->is_incoming && !run->incoming.settled)
                look_as_destination(run);
        else
                look_as_source(run);
        run->guard_usec = now_usec() + LOOK_USEC;
        return run->looks_after ? (int) (LOOK_USEC / 1000) : -1;
}

bool run_guard_cancel(struct run *run) {
        int r;

        r = look_at(run, run->incoming.id, "destination");
        if (r >= 0)
                r = tdp_handoff_cancel(run->incoming.handoff, "the destination's QEMU has ended");
        return r >= 0 || r == -ENOENT;
}
