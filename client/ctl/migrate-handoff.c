/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* migrate: the handoff, until the data goes: offer, answer, start. */

#include <errno.h>
#include <string.h>

#include "handoff.h"
#include "log.h"
#include "migrate.h"
#include "signals.h"
#include "verbs.h"

#define SPLIT_LEAF 4096

int migrate_offer(struct migrate *m) {
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL, *reserve = NULL;
        _cleanup_(tdp_message_freep) struct tdp_message *offer = NULL, *answer = NULL;
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;
        uint64_t page_size;
        int r;

        if (m->mode != INCOMING_HANDOFF)
                return 0;

        r = offer_options(m->args, &options);
        if (r >= 0)
                r = request_options(m->args, REQUEST_RESERVE, &reserve);
        page_size = tdp_value_get_uint(tdp_value_find(tdp_vm_get_properties(m->vm), "PageSize"));
        /* QEMU brings pages one by one, and they must be the same on both sides. */
        if (r >= 0 && m->args->post_copy && page_size > 0 && !args_given(m->args, OPT_PAGE_SIZES))
                r = tdp_options_set_u64_list(options, "page-sizes", &page_size, 1);
        if (r < 0)
                return r;

        r = tdp_vm_offer_handoff(m->vm, options, &m->out, &offer);
        if (r < 0)
                return migrate_fail(m, m->source, r, "this host's");
        runtime_mark_set(m->mark, tdp_handoff_get_id(m->out));
        if (!offer)
                return log_error(-EBADMSG, "This host's tdpd made no offer.");

        m->phase = PHASE_PREPARE;
        m->phase_usec[PHASE_PREPARE] = migrate_now();
        r = tdp_prepare_incoming(m->destination, offer, reserve, &m->in, &answer, &job);
        if (r >= 0 && !m->in)
                return log_error(-EBADMSG, "The destination's tdpd took the offer, and has no handoff.");
        if (r < 0)
                return migrate_fail(m, m->destination, r, "the destination's");
        if (job) {
                m->progress.check = migrate_check;
                m->progress.userdata = m;
                r = progress_wait(&m->progress, job);
                m->progress.check = NULL;
                if (m->progress.signo > 0)
                        m->signo = m->progress.signo;
                if (r < 0)
                        return migrate_fail(m, m->destination, r, "the destination's");
        }
        if (answer)
                r = tdp_deliver_handoff(m->source, answer, NULL, NULL);
        return r < 0 ? migrate_fail(m, m->source, r, "this host's") : 0;
}

/* The answer goes over as soon as there is one. */
int migrate_prepare(struct migrate *m) {
        const struct tdp_value *p;
        const char *mode;
        int r;

        if (m->mode != INCOMING_HANDOFF)
                return 0;
        for (;;) {
                r = tdp_handoff_refresh(m->out);
                if (r < 0)
                        return migrate_fail(m, m->source, r, "this host's");
                if (strcmp(tdp_handoff_get_state(m->out), "granted") == 0)
                        break;
                if (strcmp(tdp_handoff_get_state(m->out), "offered") != 0) {
                        p = tdp_value_find(tdp_handoff_get_properties(m->out), "Text");
                        return log_error(-ECANCELED, "The handoff is off: %s",
                                         tdp_value_get_string(p) ?: tdp_handoff_get_state(m->out));
                }
                r = migrate_check(m);
                if (r < 0)
                        return r;
                r = migrate_carry(m, false);
                if (r < 0)
                        return r;
                if (r == 0)
                        (void) usleep(20000);
        }

        r = tdp_handoff_refresh(m->in);
        if (r < 0)
                return migrate_fail(m, m->destination, r, "the destination's");
        p = tdp_handoff_get_properties(m->in);
        mode = tdp_value_get_string(tdp_value_find(p, "Mode"));
        if (mode && mode[0] && strcmp(mode, "global") != 0)
                log_notice("The destination maps the guest's memory %s.",
                           strcmp(mode, "on-demand") == 0 ? "on demand" : mode);
        return 0;
}

/* Nobody else knows when the split that a start brings with it has ended. */
static int wait_for_split(struct migrate *m) {
        _cleanup_(tdp_job_freep) struct tdp_job *first = NULL;
        struct tdp_job *job;
        int r;

        r = tdp_list_jobs(m->source, &first);
        if (r < 0)
                return migrate_fail(m, m->source, r, "this host's");
        tdp_job_foreach (first, job) {
                if (strcmp(tdp_job_get_type(job), "split") != 0 ||
                    strcmp(tdp_job_get_vm_name(job) ?: "", m->name) != 0)
                        continue;
                m->progress.check = migrate_check;
                m->progress.userdata = m;
                r = progress_wait(&m->progress, job);
                m->progress.check = NULL;
                if (m->progress.signo > 0)
                        m->signo = m->progress.signo;
                if (m->signo > 0)
                        return -ECANCELED;
                /* What is not split ahead is split when it is logged. */
                if (r < 0)
                        log_notice("Not all large leaves could be split ahead: %s",
                                   tdp_error_message(m->source));
                return 0;
        }
        return 0;
}

/* Without a handoff only the split is left of it. */
static int split_alone(struct migrate *m) {
        int r;

        if (!m->vm || tdp_value_get_uint(tdp_value_find(tdp_vm_get_properties(m->vm), "BuiltBytes")) == 0)
                return 0;
        r = tdp_vm_split(m->vm, NULL, NULL);
        if (r < 0) {
                log_notice("Large leaves are not split ahead: %s", tdp_error_message(m->source));
                return 0;
        }
        m->split_by_us = true;
        return wait_for_split(m);
}

int migrate_split(struct migrate *m) {
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        _cleanup_(tdp_message_freep) struct tdp_message *start = NULL, *reply = NULL;
        const char *argv = json_object_to_json_string(json_object_object_get(m->vm_json, "argv"));
        int r;

        if (m->mode != INCOMING_HANDOFF)
                return split_alone(m);

        r = tdp_options_new(&options);
        if (r >= 0)
                r = tdp_options_set_string(options, "logging",
                                           strstr(argv, "dirty-ring-size=") ? "ring" : "bitmap");
        if (r >= 0)
                r = tdp_options_set_u64(options, "split-leaf", SPLIT_LEAF);
        if (r < 0)
                return log_error(r, "Out of memory.");

        r = tdp_handoff_start(m->out, options, &start);
        if (r < 0)
                return migrate_fail(m, m->source, r, "this host's");
        if (start)
                r = tdp_deliver_handoff(m->destination, start, NULL, &reply);
        if (r < 0)
                return migrate_fail(m, m->destination, r, "the destination's");
        if (reply)
                r = tdp_deliver_handoff(m->source, reply, NULL, NULL);
        return r < 0 ? migrate_fail(m, m->source, r, "this host's") : wait_for_split(m);
}
