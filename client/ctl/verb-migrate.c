/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* migrate: a VM that "run" runs changes host, and finds its memory there mapped. */

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "daemon.h"
#include "json.h"
#include "log.h"
#include "migrate.h"
#include "signals.h"
#include "size.h"
#include "verbs.h"

#define DEADLINE_USEC UINT64_C(3600000000)

uint64_t migrate_now(void) {
        struct timespec ts;

        (void) clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static const struct {
        const char *name, *text;
        int (*run)(struct migrate *m);
} steps[_PHASE_MAX] = {
        [PHASE_CONNECT] = { "connect", "both hosts are reached", migrate_connect },
        [PHASE_OFFER] = { "offer", "the VM is offered", migrate_offer },
        [PHASE_PREPARE] = { "prepare", "the destination makes room", migrate_prepare },
        [PHASE_INCOMING] = { "incoming", "the destination's QEMU comes up", migrate_incoming },
        [PHASE_SPLIT] = { "split", "large leaves are split", migrate_split },
        [PHASE_COPY] = { "copy", "memory is copied", migrate_copy },
        [PHASE_COMMIT] = { "commit", "the destination takes the guest", migrate_commit },
        [PHASE_RESUME] = { "resume", "the guest runs there", migrate_resume_there },
        [PHASE_ARRIVE] = { "arrive", "the rest of memory arrives", migrate_arrive },
        [PHASE_RELEASE] = { "release", "this host frees the memory", migrate_release },
};

const char *phase_to_string(enum phase phase) {
        return steps[phase].name;
}

int migrate_fail(struct migrate *m, struct tdp_ctx *ctx, int r, const char *where) {
        const char *name = tdp_error_name(ctx);

        if (m->patient)
                return r;
        return log_error(r, "%c%s tdpd: %s%s%s%s", where[0] - 'a' + 'A', where + 1, tdp_error_message(ctx),
                         name ? " (" : "", name ?: "", name ? ")" : "");
}

int migrate_check(void *userdata) {
        struct migrate *m = userdata;
        int signo = signals_next(NULL);

        if (signo > 0)
                m->signo = signo;
        if (m->signo > 0)
                return -ECANCELED;
        if (migrate_now() >= m->deadline_usec)
                return log_error(-ETIMEDOUT, "The deadline has come.");
        return 0;
}

static int run_step(struct migrate *m, enum phase phase) {
        uint64_t before = migrate_now();
        int r;

        m->phase = phase;
        r = steps[phase].run(m);
        m->phase_usec[phase] = migrate_now() - before;
        return r;
}

/* An offer's job is the destination's preparation. */
static int run_offer(struct migrate *m) {
        uint64_t before = migrate_now(), between;
        int r;

        m->phase = PHASE_OFFER;
        r = migrate_offer(m);
        between = m->phase_usec[PHASE_PREPARE] ?: migrate_now();
        m->phase_usec[PHASE_OFFER] = between - before;
        if (r >= 0) {
                m->phase = PHASE_PREPARE;
                r = migrate_prepare(m);
        }
        m->phase_usec[PHASE_PREPARE] = migrate_now() - between;
        return r;
}

/* It is there: what fails from here on is not undone, and does not make it less there. */
static int after_commit(struct migrate *m) {
        int r;

        r = run_step(m, PHASE_RESUME);
        if (r < 0) {
                /* Another connection, if it is that what has gone; else its "run" lets the guest run. */
                r = migrate_incoming_again(m);
                if (r >= 0)
                        r = migrate_resume_there(m);
                if (r < 0)
                        log_notice("The guest of VM \"%s\" is the destination's; its \"run\" there lets it run.",
                                   m->name);
        }
        if (m->mode != INCOMING_HANDOFF && r < 0) {
                m->owner = OWNER_UNKNOWN;
                return log_error(
                                r,
                                "It is not known whether the guest of VM \"%s\" runs on the destination. If it does "
                                "not, let it go on here (QMP command \"cont\" at %s); if it does, end QEMU here.",
                                m->name, m->runtime.qmp);
        }
        if (m->args->post_copy && !m->goes_on) {
                r = run_step(m, PHASE_ARRIVE);
                if (r < 0)
                        return r;
        }
        migrate_count(m);
        return run_step(m, PHASE_RELEASE);
}

static int migrate(struct migrate *m) {
        int r;

        r = run_step(m, PHASE_CONNECT);
        if (r >= 0 && !m->goes_on) {
                r = run_offer(m);
                for (enum phase p = PHASE_INCOMING; r >= 0 && p <= PHASE_COPY; p++)
                        r = run_step(m, p);
        }
        if (r >= 0)
                r = run_step(m, PHASE_COMMIT);
        return r >= 0 ? after_commit(m) : r;
}

/* Whose the guest is now, and whether something is left to do. */
static void report_failure(struct migrate *m, int r) {
        const char *text = steps[m->phase].text;

        switch (m->owner) {
        case OWNER_SOURCE:
                if (m->signo > 0)
                        log_notice("Canceled while %s.", text);
                else
                        (void) log_error(0, "The migration of VM \"%s\" failed while %s.", m->name, text);
                if (m->phase > PHASE_CONNECT) {
                        migrate_undo(m);
                        log_notice("The guest goes on here, with all that it had; the destination keeps nothing.");
                }
                break;
        case OWNER_UNKNOWN:
                (void) log_error(0, "The migration of VM \"%s\" is in doubt.", m->name);
                break;
        case OWNER_DESTINATION:
                (void) log_error(
                                0,
                                "VM \"%s\" is the destination's, and not all is done while %s. Call the same "
                                "again: it goes on from there.",
                                m->name, text);
                break;
        }
}

static const struct tdp_value *property(struct tdp_handoff *h, const char *key) {
        return h && tdp_handoff_get_properties(h) ? tdp_value_find(tdp_handoff_get_properties(h), key)
                                                  : NULL;
}

static json_object *to_json(struct migrate *m, int r) {
        static const char *const owners[] = { "source", "unknown", "destination" };
        json_object *o = json_object_new_object(), *phases = json_object_new_array(), *phase;

        json_add_string(o, "name", m->name);
        json_add_string(o, "to", m->args->to);
        json_object_object_add(o, "migrated",
                               json_object_new_boolean(r >= 0 && m->owner == OWNER_DESTINATION));
        json_add_string(o, "owner", owners[m->owner]);
        json_add_string(o, "failed_phase", r < 0 ? phase_to_string(m->phase) : NULL);
        json_add_string(o, "how", incoming_mode_to_string(m->mode));
        json_add_string(o, "handoff", m->out ? tdp_handoff_get_id(m->out) : NULL);
        json_add_string(o, "mode", tdp_value_get_string(property(m->out, "Mode")));
        json_add_string(o, "mode_there", tdp_value_get_string(property(m->in, "Mode")));
        json_add_uint(o, "bytes", json_object_get_uint64(json_object_object_get(m->vm_json, "memory")));
        json_add_uint(o, "transferred_bytes", m->transferred);
        json_add_uint(o, "built_bytes",
                      m->ready ? json_object_get_uint64(json_object_object_get(m->ready, "built_bytes"))
                               : 0);
        json_add_uint(o, "total_usec", migrate_now() - m->start_usec);
        json_add_uint(o, "blackout_usec",
                      m->stop_usec > 0 && m->resume_usec > m->stop_usec ? m->resume_usec - m->stop_usec : 0);
        for (enum phase p = 0; p < _PHASE_MAX; p++) {
                phase = json_object_new_object();
                json_add_string(phase, "phase", phase_to_string(p));
                json_add_uint(phase, "usec", m->phase_usec[p]);
                json_object_array_add(phases, phase);
        }
        json_object_object_add(o, "phases", phases);
        return o;
}

static void report_success(struct migrate *m) {
        char total[SIZE_TEXT_MAX], blackout[SIZE_TEXT_MAX], copied[SIZE_TEXT_MAX];

        if (m->goes_on || m->resume_usec <= m->stop_usec) {
                printf("%s: on %s\n", m->name, m->args->to);
                return;
        }
        printf("%s: on %s in %s, %s copied; the guest stood still for %s\n", m->name, m->args->to,
               duration_format(migrate_now() - m->start_usec, total), size_format(m->transferred, copied),
               duration_format(m->resume_usec - m->stop_usec, blackout));
}

static void migrate_done(struct migrate *m) {
        migrate_incoming_done(m);
        qmp_done(&m->here);
        tdp_handoff_free(m->out);
        tdp_handoff_free(m->in);
        tdp_message_free(m->complete);
        tdp_vm_free(m->vm);
        tdp_unref(m->source);
        tdp_unref(m->destination);
        if (m->vm_json)
                json_object_put(m->vm_json);
        runtime_done(&m->runtime);
}

static int check_args(const struct args *args) {
        if (args->host)
                return log_error(-EINVAL,
                                 "\"migrate\" is called where the VM runs: --host has no meaning for "
                                 "it. The destination is --to.");
        if (!args_given(args, OPT_TO))
                return log_error(-EINVAL, "Where to? Give --to=[USER@]HOST.");
        if (args->to[0] == '-')
                return log_error(-EINVAL, "--to=%s is not a host.", args->to);
        if (args->port > UINT16_MAX)
                return log_error(-EINVAL, "--port=%u is not a TCP port.", args->port);
        if (args_given(args, OPT_DEADLINE) && args->deadline == 0)
                return log_error(-EINVAL, "--deadline=0 leaves no time.");
        return 0;
}

int verb_migrate(const struct args *args) {
        _cleanup_(migrate_done) struct migrate m = {
                .args = args,
                .name = args->positional[0],
                .here.fd = -1,
                .there.fd = -1,
                .mark = -1,
                .runtime.lock_fd = -1,
                .start_usec = migrate_now(),
        };
        enum owner owner;
        int r;

        if (check_args(args) < 0)
                return EXIT_USAGE;
        m.deadline_usec = m.start_usec + (args_given(args, OPT_DEADLINE) ? args->deadline * UINT64_C(1000000)
                                                                         : DEADLINE_USEC);
        (void) signal(SIGPIPE, SIG_IGN);
        signals_block();
        progress_init(&m.progress, args);

        r = migrate(&m);
        owner = m.owner;
        if (r < 0)
                report_failure(&m, r);
        else if (args->json == JSON_OFF && !args->quiet)
                report_success(&m);
        /* What is in doubt, or half done or undone, stays marked: "run" looks after it. */
        if (r >= 0 || (owner == OWNER_SOURCE && (m.undone || !m.out)))
                runtime_unmark(&m.runtime, m.mark);
        if (args->json != JSON_OFF && json_print(args, to_json(&m, r)) < 0)
                return EXIT_FAILED;
        if (r >= 0)
                return EXIT_OK;
        if (owner != OWNER_SOURCE)
                return EXIT_IN_DOUBT;
        return m.signo > 0 ? 128 + m.signo : EXIT_FAILED;
}
