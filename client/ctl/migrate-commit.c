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

static bool state_is(const struct tdp_handoff *h, const char *a, const char *b, const char *c) {
        const char *state = h ? tdp_handoff_get_state(h) ?: "" : "";

        return strcmp(state, a) == 0 || strcmp(state, b) == 0 || strcmp(state, c) == 0;
}

/* What the destination has decided: it decides alone, so its word is enough. -EAGAIN: not yet. */
static int ask_destination(struct migrate *m) {
        int r;

        if (!m->in)
                return -EAGAIN;
        r = tdp_handoff_refresh(m->in);
        if (r < 0)
                return r == -ENOENT ? -EAGAIN
                                    : r; /* gone, which its tdpd says itself when it is asked to commit */
        if (!state_is(m->in, "owner", "taken", "done"))
                return -EAGAIN;
        m->owner = OWNER_DESTINATION;
        return 0;
}

/* And what the source has heard of it. */
static int ask_source(struct migrate *m) {
        int r;

        r = tdp_handoff_refresh(m->out);
        if (r < 0)
                return r;
        if (state_is(m->out, "releasing", "released", "serving"))
                m->owner = OWNER_DESTINATION;
        else if (state_is(m->out, "undoing", "kept", "none"))
                m->owner = OWNER_SOURCE;
        else
                return -EAGAIN;
        return 0;
}

/* Refused, and not only unanswered: a call whose answer was lost may have been written down. */
static bool is_refused(struct migrate *m) {
        const char *name = tdp_error_name(m->source);

        return name && strncmp(name, "org.tdpd1.Error.", strlen("org.tdpd1.Error.")) == 0;
}

/* Commit, once (more). The reply is the source's to hear, but the guest comes first. */
static int ask_once(struct migrate *m, const struct tdp_options *options, struct tdp_message **ret_reply) {
        _cleanup_(tdp_message_freep) struct tdp_message *commit = NULL;
        bool refused;
        int r;

        if (m->owner == OWNER_SOURCE)
                m->owner = OWNER_UNKNOWN;
        r = tdp_handoff_commit(m->out, options, &commit);
        if (r < 0) {
                refused = is_refused(m);
                if (refused)
                        (void) migrate_fail(m, m->source, r, "this host's");
                if (ask_source(m) >= 0)
                        return 0;
                if (refused && state_is(m->out, "started", "granted", "offered"))
                        m->owner = OWNER_SOURCE;
                return r;
        }
        return commit ? tdp_deliver_handoff(m->destination, commit, NULL, ret_reply) : 0;
}

static void in_doubt(bool *told, int r) {
        if (!*told)
                log_notice("Not known yet which host has the guest, which stands still: %s. Asking on.",
                           strerror(-r));
        *told = true;
}

static int make_options(struct migrate *m, struct tdp_options **ret) {
        int r;

        r = tdp_options_new(ret);
        if (r >= 0 && m->args->post_copy) {
                r = tdp_options_set_bool(*ret, "post-copy", true);
                if (r >= 0)
                        r = tdp_options_set_u64(*ret, "bytes-left", m->bytes_left);
        }
        return r < 0 ? log_error(r, "Out of memory.") : 0;
}

/*
 * Asks until there is an answer. The first time is the one that counts for the guest, which stands still:
 * nothing is done in it that can be done later.
 */
int migrate_commit(struct migrate *m) {
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        bool told = false;
        uint64_t again = 0, look = migrate_now() + LOOK_USEC;
        useconds_t pause = 2000;
        int r;

        if (m->mode != INCOMING_HANDOFF) {
                /* Nobody to ask: both QEMUs say that it is complete. */
                m->owner = OWNER_DESTINATION;
                return 0;
        }
        r = make_options(m, &options);
        if (r < 0)
                return r;

        for (;;) {
                _cleanup_(tdp_message_freep) struct tdp_message *reply = NULL;

                if (migrate_now() >= again) {
                        r = ask_once(m, options, &reply);
                        if (r < 0 && m->owner == OWNER_UNKNOWN)
                                in_doubt(&told, r);
                        again = migrate_now() + RETRY_USEC;
                        tdp_set_timeout(m->destination, CALL_USEC);
                }

                /* What it says goes to this host's tdpd, which knows what it means, and is nearer. */
                if (m->owner == OWNER_UNKNOWN && !reply && m->in)
                        (void) tdp_handoff_next(m->in, &reply);
                if (reply)
                        (void) tdp_deliver_handoff(m->source, reply, NULL, NULL);
                if (m->owner == OWNER_UNKNOWN && (reply || told))
                        (void) ask_source(m);
                /* Or it has been said, and was lost. */
                if (m->owner == OWNER_UNKNOWN && migrate_now() >= look) {
                        (void) ask_destination(m);
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
                (void) usleep(pause);
                pause = pause < 50000 ? 2 * pause : pause;
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
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        int r;

        if (!m->complete) {
                r = make_options(m, &options);
                if (r >= 0)
                        r = ask_once(m, options, &m->complete);
                if (r < 0)
                        return r;
        }
        r = m->complete ? tdp_deliver_handoff(m->source, m->complete, NULL, NULL) : 0;
        m->complete = tdp_message_free(m->complete);
        return r;
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
                int carried;

                r = tdp_handoff_refresh(m->out);
                if (r == -ENOENT)
                        break;
                if (r < 0) {
                        if (migrate_now() >= deadline) {
                                m->patient = false;
                                return migrate_fail(m, m->source, r, "this host's");
                        }
                        (void) usleep(RETRY_USEC);
                        continue;
                }
                if (state_is(m->out, "committing", "serving", "serving"))
                        (void) tell_complete(m);
                /* The destination keeps the record until it hears this. */
                carried = migrate_carry(m, true);
                if (carried >= 0 && state_is(m->out, "released", "released", "released") && carried == 0)
                        break;
                r = migrate_carry(m, false);
                if (carried < 0 || r < 0) {
                        if (migrate_now() >= deadline)
                                return log_error(-ETIMEDOUT,
                                                 "Not all that was to be said could be carried.");
                        (void) usleep(RETRY_USEC);
                } else if (carried == 0 && r == 0) {
                        if (migrate_now() >= deadline)
                                return log_error(
                                                -ETIMEDOUT,
                                                "This host's tdpd has not freed the guest's memory yet (state "
                                                "\"%s\").",
                                                tdp_handoff_get_state(m->out));
                        (void) usleep(20000);
                }
        }
        /* Its "run" ends with it. */
        (void) qmp_execute(&m->here, "quit", CALL_USEC, NULL, NULL);
        return 0;
}
