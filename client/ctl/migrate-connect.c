/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* migrate: who takes part: this host's QEMU, and the tdpd of both hosts. */

#include <errno.h>
#include <string.h>

#include "handoff.h"
#include "log.h"
#include "migrate.h"
#include "verbs.h"

#define PING_USEC    UINT64_C(1200000)
#define COMMAND_USEC UINT64_C(10000000)

static int connect_qemu(struct migrate *m) {
        json_object *v;
        const char *status;
        int fd, r;

        r = runtime_init(&m->runtime, m->name);
        if (r == -EINVAL)
                return log_error(r, "\"%s\" is not the name of a VM.", m->name);
        if (r >= 0)
                r = runtime_read(&m->runtime, &m->vm_json);
        if (r < 0)
                return log_error(
                                r,
                                "VM \"%s\" cannot be migrated from here: no \"tdpctl run\" of this user runs it "
                                "now%s%s (%s).",
                                m->name, m->runtime.folder ? ", in " : "", m->runtime.folder ?: "",
                                strerror(-r));
        if (!runtime_is_orphaned(&m->runtime, m->left))
                m->left[0] = '\0';
        m->mark = runtime_mark(&m->runtime, m->left[0] != '\0' ? m->left : "plain");
        if (m->mark < 0)
                return log_error(m->mark,
                                 m->mark == -EBUSY ? "VM \"%s\" is being migrated by another tdpctl."
                                                   : "VM \"%s\" cannot be marked as being migrated: %s",
                                 m->name, strerror(-m->mark));

        fd = unix_connect(m->runtime.qmp);
        if (fd < 0)
                return log_error(fd, "QEMU's control socket %s cannot be reached: %s", m->runtime.qmp,
                                 strerror(-fd));
        qmp_init(&m->here, fd);
        m->here.on_event = migrate_on_event_here;
        m->here.userdata = m;
        r = qmp_execute(&m->here, "qmp_capabilities", COMMAND_USEC, migrate_check, m);
        if (r >= 0)
                r = qmp_execute(&m->here, "query-status", COMMAND_USEC, migrate_check, m);
        if (r < 0)
                return log_error(r, "QEMU does not answer at %s (is somebody else connected to it?): %s",
                                 m->runtime.qmp, strerror(-r));
        v = json_object_object_get(qmp_result(&m->here), "status");
        status = v ? json_object_get_string(v) : "";
        m->runs_here = strcmp(status, "running") == 0;
        m->has_left = strcmp(status, "postmigrate") == 0 || strcmp(status, "finish-migrate") == 0;
        return 0;
}

/* A tdpd, and whether it can do handoffs; or NULL with the reason said. host: NULL is this one. */
static int connect_tdpd(struct migrate *m, const char *host, struct tdp_ctx **ret, bool *ret_handoffs) {
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *first = NULL;
        const char *whose = host ? "the destination's" : "this host's";
        int r;

        r = tdp_new(&ctx);
        if (r >= 0)
                r = tdp_set_host(ctx, host);
        if (r < 0)
                return log_error(r, "Out of memory.");

        /* (A ping to another host is answered by the bridge on it.) */
        r = host ? 0 : tdp_ping(ctx, PING_USEC);
        if (r >= 0)
                r = tdp_list_handoffs(ctx, &first);
        if (r == -EOPNOTSUPP)
                log_notice("Without a handoff: %s tdpd does not know of such a thing.", whose);
        else if (r == -EACCES)
                return migrate_fail(m, ctx, r, whose);
        else if (r < 0)
                log_notice("Without %s tdpd: %s", whose, tdp_error_message(ctx));

        /* An older one can still reserve, or split. */
        if (r >= 0 || r == -EOPNOTSUPP)
                *ret = TAKE_PTR(ctx);
        *ret_handoffs = r >= 0;
        return 0;
}

/* Whether it can be gone on with: only a guest that stands still behind its migration is of such a handoff.
 * One that is over here is of this guest only if the tdpctl that was left says so: a guest of that name may
 * have left this host before, and have come back. */
static bool goes_on(const struct migrate *m, const struct tdp_handoff *h) {
        static const char *const states[] = { "committing", "serving", "releasing" };
        const char *state = tdp_handoff_get_state(h) ?: "";

        if (!m->has_left)
                return false;
        for (size_t i = 0; i < ELEMENTSOF(states); i++)
                if (strcmp(state, states[i]) == 0)
                        return true;
        return strcmp(state, "released") == 0 && strcmp(tdp_handoff_get_id(h), m->left) == 0;
}

/* A handoff of this VM that was left, and is not over, or can be gone on with. */
static int find_left(struct migrate *m) {
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *first = NULL;
        struct tdp_handoff *h;
        int r;

        r = tdp_list_handoffs(m->source, &first);
        if (r < 0)
                return migrate_fail(m, m->source, r, "this host's");
        tdp_handoff_foreach(first, h) {
                if (strcmp(tdp_handoff_get_role(h), "source") != 0 ||
                    strcmp(tdp_handoff_get_vm_name(h), m->name) != 0)
                        continue;
                m->goes_on = goes_on(m, h);
                if (!m->goes_on && handoff_has_ended(h))
                        continue;
                r = tdp_get_handoff(m->source, tdp_handoff_get_id(h), "source", &m->out);
                if (r < 0)
                        return migrate_fail(m, m->source, r, "this host's");
                runtime_mark_set(m->mark, tdp_handoff_get_id(m->out));
                m->mode = INCOMING_HANDOFF;
                return 0;
        }
        runtime_mark_set(m->mark, "plain");
        return 0;
}

static int go_on(struct migrate *m) {
        int r;

        if (!m->destination)
                return log_error(-EHOSTDOWN,
                                 "VM \"%s\" stands still, as it is not known which host has it, and the "
                                 "destination's tdpd cannot be asked. Try again when it is there.",
                                 m->name);
        m->owner = OWNER_UNKNOWN;
        log_notice("Another tdpctl has left the migration of VM \"%s\" in the middle: going on with it.",
                   m->name);
        r = tdp_get_handoff(m->destination, tdp_handoff_get_id(m->out), "destination", &m->in);
        return r == -ENOENT || r >= 0 ? 0 : migrate_fail(m, m->destination, r, "the destination's");
}

/* It did not come to commit: nothing of it is of use. */
static void undo_left(struct migrate *m) {
        if (m->destination)
                (void) tdp_get_handoff(m->destination, tdp_handoff_get_id(m->out), "destination", &m->in);
        log_notice("Another tdpctl has left a migration of VM \"%s\" in the middle: undoing it first.",
                   m->name);
        m->copying = true;
        migrate_undo(m);
        m->copying = false;
        m->out = tdp_handoff_free(m->out);
        m->in = tdp_handoff_free(m->in);
        runtime_mark_set(m->mark, "plain");
}

/* With a handoff, if both can; else with what is left of it. */
static int choose_mode(struct migrate *m, bool can) {
        int r;

        if (m->source) {
                r = tdp_get_vm(m->source, m->name, &m->vm);
                if (r == -ENOENT)
                        log_notice("Without a handoff: this host's tdpd does not know the VM (any more).");
                else if (r < 0)
                        return migrate_fail(m, m->source, r, "this host's");
                else if (tdp_vm_get_pid(m->vm) == 0) {
                        log_notice("Without a handoff: this host's tdpd has the VM's memory, and is not attached to it.");
                        can = false;
                }
        }
        m->mode = can && m->vm ? INCOMING_HANDOFF : m->destination ? INCOMING_RESERVE : INCOMING_PLAIN;
        if (m->mode == INCOMING_PLAIN)
                log_notice("The destination maps the guest's memory on demand.");
        return 0;
}

int migrate_connect(struct migrate *m) {
        bool here = false, there = false;
        int r;

        r = connect_qemu(m);
        if (r >= 0)
                r = connect_tdpd(m, NULL, &m->source, &here);
        if (r >= 0)
                r = connect_tdpd(m, m->args->to, &m->destination, &there);
        if (r >= 0 && here)
                r = find_left(m);
        if (r < 0)
                return r;
        if (m->goes_on)
                return go_on(m);
        if (m->out)
                undo_left(m);
        if (!m->runs_here)
                return log_error(
                                -EINVAL,
                                "The guest of VM \"%s\" does not run: let it go on, or end it. A guest that stands "
                                "still is not migrated.",
                                m->name);
        return choose_mode(m, here && there);
}
