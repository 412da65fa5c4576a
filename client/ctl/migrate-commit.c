/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* migrate: the change of owner, which one host decides, and what follows from it. */

#include <errno.h>
#include <string.h>

#include "log.h"
#include "migrate.h"
#include "signals.h"
#include "verbs.h"

#define RETRY_USEC   UINT64_C(500000)
#define LOOK_USEC    UINT64_C(100000)
#define CALL_USEC    UINT64_C(5000000) /* in doubt an answer that does not come is as good as none */
#define RELEASE_USEC UINT64_C(180000000)

int migrate_carry(struct migrate *m, bool from_source) {
        struct tdp_ctx *ctx[] = { from_source ? m->source : m->destination,
                                  from_source ? m->destination : m->source };
        const char *whose[] = { from_source ? "this host's" : "the destination's",
                                from_source ? "the destination's" : "this host's" };
        struct tdp_handoff *h = from_source ? m->out : m->in;
        _cleanup_(tdp_message_freep) struct tdp_message *message = NULL, *reply = NULL;
        int r;

        if (!h)
                return 0;
        r = tdp_handoff_next(h, &message);
        if (r < 0)
                return migrate_fail(m, ctx[0], r, whose[0]);
        if (!message)
                return 0;
        r = tdp_deliver_handoff(ctx[1], message, NULL, &reply);
        if (r < 0)
                return migrate_fail(m, ctx[1], r, whose[1]);
        if (reply) {
                r = tdp_deliver_handoff(ctx[0], reply, NULL, NULL);
                if (r < 0)
                        return migrate_fail(m, ctx[0], r, whose[0]);
        }
        return 1;
}

static void in_doubt(bool *told, int r) {
        if (!*told)
                log_notice("Not known yet which host has the guest, which stands still: %s. Asking on.",
                           strerror(-r));
        *told = true;
}

/* What the destination has said goes to this host's tdpd, which knows what it means, and is nearer. */
static void pass_on(struct migrate *m, bool ask_anyway) {
        if (m->owner == OWNER_UNKNOWN && !m->complete && m->in && !migrate_run_commits(m))
                (void) tdp_handoff_next(m->in, &m->complete);
        if (m->complete)
                (void) tdp_deliver_handoff(m->source, m->complete, NULL, NULL);
        if (m->owner == OWNER_UNKNOWN && (m->complete || ask_anyway))
                (void) migrate_ask_source(m);
        m->complete = tdp_message_free(m->complete);
}

static void wait_a_moment(struct migrate *m, int msec) {
        if (m->there.fd < 0 || m->there.closed)
                (void) usleep((useconds_t) msec * 1000);
        else
                (void) qmp_wait(&m->there, msec);
}

/*
 * Asks until there is an answer. The first time is the one that counts for the guest, which stands still:
 * nothing is done in it that can be done later.
 */
int migrate_commit(struct migrate *m) {
        bool told = false;
        uint64_t again = 0, look = 0;
        int pause = 2, r;

        if (m->mode != INCOMING_HANDOFF) {
                /* Nobody to ask: both QEMUs say that it is complete. */
                m->owner = OWNER_DESTINATION;
                return 0;
        }

        /* The last moment at which nothing has been decided. With post-copy it was before. */
        if (m->owner == OWNER_SOURCE && !m->args->post_copy) {
                r = migrate_check(m);
                if (r < 0)
                        return r;
        }

        for (;;) {
                if (migrate_now() >= again && !migrate_run_commits(m)) {
                        r = migrate_ask(m);
                        if (r < 0 && m->owner == OWNER_UNKNOWN)
                                in_doubt(&told, r);
                        again = migrate_now() + RETRY_USEC;
                        look = look ?: migrate_now() + LOOK_USEC;
                        tdp_set_timeout(m->destination, CALL_USEC);
                }

                pass_on(m, told);
                /* Or it has been said, and was lost. */
                if (m->owner == OWNER_UNKNOWN && migrate_now() >= look && !migrate_run_commits(m)) {
                        (void) migrate_ask_destination(m);
                        look = migrate_now() + LOOK_USEC;
                }
                if (m->owner == OWNER_SOURCE)
                        return log_error(-ECANCELED, "The destination does not take the guest.");
                if (m->owner == OWNER_DESTINATION)
                        return 0;

                if (signals_next(NULL) > 0)
                        log_notice("Too late to cancel: the destination has been asked to take the guest.");
                if (migrate_now() >= m->deadline_usec)
                        return log_error(
                                        -ETIMEDOUT,
                                        "It is not known which host has the guest of VM \"%s\": tdpd of %s has been "
                                        "asked to take it, and does not answer. The guest stands still here, and "
                                        "must go on nowhere by hand. Bring tdpd there back, then call \"tdpctl "
                                        "migrate %s --to=%s\" again: it goes on from here.",
                                        m->name, m->args->to, m->name, m->args->to);
                wait_a_moment(m, pause);
                pause = pause < 50 ? 2 * pause : pause;
        }
}

/* What "run" was told here holds there, too, unless "migrate" was told otherwise. */
static void keep_decision(const struct migrate *m, struct args *args) {
        json_object *options = json_object_object_get(m->vm_json, "options"), *v;

        if (args_given(args, OPT_DECISION) || !json_object_object_get_ex(options, "decision", &v))
                return;
        args->decision = json_object_get_string(v);
        if (args->decision)
                args->given |= OPT_BIT(OPT_DECISION);
}

/* What post-copy leaves: it is there, and can be built. */
static int tell_arrived(struct migrate *m) {
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        struct args args = *m->args;
        uint32_t pid;
        int r;

        keep_decision(m, &args);
        r = tdp_handoff_arrived(m->in);
        if (r < 0)
                return migrate_fail(m, m->destination, r, "the destination's");
        pid = m->ready ? (uint32_t) json_object_get_uint64(json_object_object_get(m->ready, "pid")) : 0;
        if (pid == 0 || request_options(&args, REQUEST_ATTACH, &options) < 0)
                return 0;
        r = tdp_attach_pid(m->destination, m->name, pid, options, NULL, &job);
        if (r >= 0)
                r = progress_wait(&m->progress, job);
        if (r < 0)
                log_notice("The destination maps the guest's memory on demand: %s",
                           tdp_error_message(m->destination));
        return 0;
}

/* It has been said, and may have been lost on its way to the source. */
static int tell_complete(struct migrate *m) {
        int r = 0;

        if (!m->complete)
                r = migrate_ask(m);
        if (r >= 0 && m->complete)
                r = tdp_deliver_handoff(m->source, m->complete, NULL, NULL);
        m->complete = tdp_message_free(m->complete);
        return r;
}

/* All that is to be said until the source's memory is free. 1: it is. */
static int carry_on(struct migrate *m) {
        int carried, r;

        r = tdp_handoff_refresh(m->out);
        if (r < 0)
                return r == -ENOENT ? 1 : r;
        if (migrate_state_is(m->out, "committing", "serving", "serving"))
                (void) tell_complete(m);
        /* The destination keeps the record until it hears this. */
        carried = migrate_carry(m, true);
        if (carried < 0)
                return carried;
        if (carried == 0 && migrate_state_is(m->out, "released", "released", "released"))
                return 1;
        /* Its guest has just begun to run: it is left alone unless there may be something to hear. */
        if (migrate_state_is(m->out, "releasing", "released", "released"))
                return 0;
        r = migrate_carry(m, false);
        return r < 0 ? r : 0;
}

int migrate_release(struct migrate *m) {
        uint64_t deadline = migrate_now() + RELEASE_USEC;
        int r;

        if (m->mode == INCOMING_HANDOFF && m->args->post_copy && !m->goes_on) {
                r = tell_arrived(m);
                if (r < 0)
                        return r;
        }

        /* A tdpd that is started anew goes on where it was: what fails meanwhile is tried again. */
        m->patient = true;
        while (m->mode == INCOMING_HANDOFF) {
                /* What is told from here on is not missed; without that it is looked at more rarely. */
                bool listens = tdp_handoff_wait(m->out, 0) >= 0;

                r = carry_on(m);
                if (r > 0)
                        break;
                if (migrate_now() >= deadline && r < 0) {
                        m->patient = false;
                        return migrate_fail(m, m->source, r, "this host's");
                }
                if (migrate_now() >= deadline)
                        return log_error(
                                        -ETIMEDOUT,
                                        "This host's tdpd has not freed the guest's memory yet (state \"%s\").",
                                        tdp_handoff_get_state(m->out));
                if (r < 0 || !listens || tdp_handoff_wait(m->out, RETRY_USEC) < 0)
                        (void) usleep(RETRY_USEC);
        }
        /* Its "run" ends with it. */
        (void) qmp_execute(&m->here, "quit", CALL_USEC, NULL, NULL);
        return 0;
}
