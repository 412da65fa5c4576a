/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* migrate: asking the destination to take the guest, and what has come of it. */

#include <errno.h>
#include <string.h>

#include "json.h"
#include "log.h"
#include "message-file.h"
#include "migrate.h"
#include "verbs.h"

#define SEND_USEC   UINT64_C(5000000)
#define ANSWER_USEC UINT64_C(500000)
#define LOAD_USEC   UINT64_C(60000000)

bool migrate_state_is(const struct tdp_handoff *h, const char *a, const char *b, const char *c) {
        const char *state = h ? tdp_handoff_get_state(h) ?: "" : "";

        return strcmp(state, a) == 0 || strcmp(state, b) == 0 || strcmp(state, c) == 0;
}

/* It decides alone, so its word is enough. */
int migrate_ask_destination(struct migrate *m) {
        int r;

        if (!m->in)
                return -EAGAIN;
        r = tdp_handoff_refresh(m->in);
        if (r < 0)
                return r == -ENOENT ? -EAGAIN
                                    : r; /* gone, which its tdpd says itself when it is asked to commit */
        if (!migrate_state_is(m->in, "owner", "taken", "done"))
                return -EAGAIN;
        m->owner = OWNER_DESTINATION;
        return 0;
}

int migrate_ask_source(struct migrate *m) {
        int r;

        r = tdp_handoff_refresh(m->out);
        if (r < 0)
                return r;
        if (migrate_state_is(m->out, "releasing", "released", "serving"))
                m->owner = OWNER_DESTINATION;
        else if (migrate_state_is(m->out, "undoing", "kept", "none"))
                m->owner = OWNER_SOURCE;
        else
                return -EAGAIN;
        return 0;
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

/* Refused, and not only unanswered: a call whose answer was lost may have been written down. */
static bool is_refused(struct migrate *m) {
        const char *name = tdp_error_name(m->source);

        return name && strncmp(name, "org.tdpd1.Error.", strlen("org.tdpd1.Error.")) == 0;
}

static int say_commit(struct migrate *m, struct tdp_message **ret) {
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        bool refused;
        int r;

        r = make_options(m, &options);
        if (r < 0)
                return r;
        if (m->owner == OWNER_SOURCE)
                m->owner = OWNER_UNKNOWN;
        r = tdp_handoff_commit(m->out, options, ret);
        if (r >= 0)
                return 0;
        refused = is_refused(m);
        if (refused)
                (void) migrate_fail(m, m->source, r, "this host's");
        if (migrate_ask_source(m) >= 0)
                return 0;
        if (refused && migrate_state_is(m->out, "started", "granted", "offered"))
                m->owner = OWNER_SOURCE;
        return r;
}

/* Its "run" is told by the connection that we have with it, and does the rest there. */
static int tell_run(struct migrate *m, const struct tdp_message *commit) {
        _cleanup_free_ char *text = message_to_base64(commit);
        json_object *arguments = json_object_new_object();
        int r;

        json_add_string(arguments, "message", text);
        r = text ? qmp_send(&m->there, INCOMING_COMMIT, arguments, SEND_USEC) : -ENOMEM;
        m->way = r < 0 ? WAY_DAEMON : WAY_RUN;
        m->way_until_usec = migrate_now() + LOAD_USEC;
        return r;
}

bool migrate_run_commits(struct migrate *m) {
        if (m->way != WAY_RUN)
                return false;
        /* Once its QEMU is ready an answer is near. */
        if (m->loaded_there && m->way_until_usec > migrate_now() + ANSWER_USEC)
                m->way_until_usec = migrate_now() + ANSWER_USEC;
        if (m->there.closed || migrate_now() >= m->way_until_usec)
                m->way = WAY_DAEMON;
        return m->way == WAY_RUN;
}

void migrate_on_committed(struct migrate *m, json_object *data) {
        json_object *v = data ? json_object_object_get(data, "message") : NULL;
        const char *text = v ? json_object_get_string(v) : NULL;

        /* It does not deliver before. */
        m->loaded_there = true;
        m->way = WAY_DAEMON;
        m->complete = tdp_message_free(m->complete);
        if (text && message_from_base64(text, strlen(text), &m->complete) < 0)
                m->complete = NULL;
}

/*
 * Its tdpd cannot see whether QEMU there has loaded the guest, and must not take one that cannot run. If
 * that cannot be made sure of, it is called off there: then either it is off, or it has been taken already.
 */
static int make_sure_of_load(struct migrate *m) {
        int r = 0;

        if (m->loaded_there || m->owner == OWNER_DESTINATION || !m->in)
                return 0;
        if (m->there.fd < 0 || m->there.closed)
                r = migrate_incoming_again(m);
        if (r >= 0)
                r = migrate_wait_until_loaded(m);
        if (r < 0)
                r = tdp_handoff_cancel(m->in, "it is not known whether QEMU has loaded the guest");
        if (r < 0 && r != -ENOENT && r != -EALREADY)
                return r;
        m->loaded_there = true;
        return 0;
}

int migrate_ask(struct migrate *m) {
        _cleanup_(tdp_message_freep) struct tdp_message *commit = NULL;
        int r;

        r = say_commit(m, &commit);
        if (r < 0 || !commit)
                return r;
        if (m->way == WAY_NONE && json_object_get_boolean(json_object_object_get(m->ready, "commits")) &&
            tell_run(m, commit) >= 0)
                return 0;
        m->way = WAY_DAEMON;
        r = make_sure_of_load(m);
        if (r < 0)
                return r;
        m->complete = tdp_message_free(m->complete);
        return tdp_deliver_handoff(m->destination, commit, NULL, &m->complete);
}
