/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* migrate: all back, as long as the source owns the guest. */

#include <errno.h>
#include <string.h>

#include "handoff.h"
#include "log.h"
#include "migrate.h"
#include "signals.h"
#include "verbs.h"

#define COMMAND_USEC UINT64_C(5000000)
#define UNDO_USEC    UINT64_C(120000000)
#define BACK_USEC    UINT64_C(15000000)
#define RETRY_USEC   UINT64_C(300000)

/* A tdpd that is started anew is soon back. Whether this side has heard of it. */
static bool cancel_one(struct migrate *m, struct tdp_handoff *h) {
        const char *text = m->signo > 0 ? "canceled with tdpctl" : "the migration failed";
        uint64_t deadline = migrate_now() + BACK_USEC;
        int r;

        for (;;) {
                r = tdp_handoff_cancel(h, text);
                if (r >= 0 || r == -ENOENT)
                        return true;
                if ((r != -EHOSTDOWN && r != -ENOTCONN && r != -ETIMEDOUT) || migrate_now() >= deadline)
                        return false;
                (void) usleep(RETRY_USEC);
        }
}

/* Both sides hear of it; each by itself, if the other one cannot be reached. */
static void cancel_handoff(struct migrate *m) {
        _cleanup_(tdp_message_freep) struct tdp_message *abort = NULL;

        m->undone = true;
        if (m->out) {
                m->undone = cancel_one(m, m->out);
                if (!m->undone)
                        log_notice("This host's tdpd could not be told: %s. The VM's \"run\" tells it, or it "
                                   "calls the handoff off at its deadline.",
                                   tdp_error_message(m->source));
                if (tdp_handoff_next(m->out, &abort) >= 0 && abort && m->destination)
                        (void) tdp_deliver_handoff(m->destination, abort, NULL, NULL);
        }
        /* What is said to one that is off already does no harm. */
        if (m->in && !cancel_one(m, m->in))
                log_notice("The destination's tdpd could not be told: %s. It frees what it has at its deadline, "
                           "or when QEMU there ends.",
                           tdp_error_message(m->destination));
}

/* Until leaves are large again. */
static void wait_until_kept(struct migrate *m) {
        uint64_t deadline = migrate_now() + UNDO_USEC;

        while (m->out) {
                int r;

                r = tdp_handoff_refresh(m->out);
                if (r == -ENOENT || (r >= 0 && handoff_has_ended(m->out)) || !m->undone)
                        return;
                if (migrate_now() >= deadline || signals_next(NULL) > 0) {
                        log_notice("tdpd makes the large leaves again; that is not waited for.");
                        return;
                }
                (void) usleep(20000);
        }
}

static void collapse(struct migrate *m) {
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;

        if (tdp_vm_collapse(m->vm, NULL, &job) < 0 || progress_wait(&m->progress, job) < 0)
                log_notice("Large leaves could not be made again: %s", tdp_error_message(m->source));
}

void migrate_undo(struct migrate *m) {
        int r = 0;

        /* The guest first: it may stand still. */
        if (m->copying)
                r = migrate_resume_here(m);
        if (r < 0)
                (void) log_error(
                                r,
                                "QEMU does not say that the guest goes on here: %s. Its \"run\" sees to it.",
                                r == -EREMOTEIO ? qmp_error(&m->here) : strerror(-r));

        if (m->there.fd >= 0 && !m->there.closed)
                (void) qmp_execute(&m->there, "quit", COMMAND_USEC, NULL, NULL);
        cancel_handoff(m);
        wait_until_kept(m);
        if (m->split_by_us)
                collapse(m);
}
