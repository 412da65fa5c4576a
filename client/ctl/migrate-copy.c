/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* migrate: QEMU to QEMU, by QMP. */

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "json.h"
#include "log.h"
#include "migrate.h"

#define COMMAND_USEC UINT64_C(20000000)
#define LOOK_USEC    UINT64_C(300000)
#define POLL_MSEC    100
#define LOAD_USEC    UINT64_C(60000000) /* device state, on the destination */
/* QEMU's own is 128 MiB/s. The largest that it takes is larger still. */
#define NO_LIMIT (UINT64_C(1) << 44)

static void note_status(char status[static 24], json_object *data) {
        json_object *v = data ? json_object_object_get(data, "status") : NULL;

        if (v)
                (void) snprintf(status, 24, "%s", json_object_get_string(v));
}

void migrate_on_event_here(const char *event, json_object *data, void *userdata) {
        struct migrate *m = userdata;

        if (strcmp(event, "MIGRATION") == 0)
                note_status(m->status, data);
        else if (strcmp(event, "STOP") == 0) {
                m->stop_usec = migrate_now();
                m->runs_here = false;
        } else if (strcmp(event, "RESUME") == 0)
                m->runs_here = true;
}

/* With post-copy memory follows. */
static void note_status_there(struct migrate *m, json_object *data) {
        note_status(m->status_there, data);
        if (strcmp(m->status_there, "completed") == 0 ||
            (m->args->post_copy && strcmp(m->status_there, "postcopy-active") == 0))
                m->loaded_there = true;
}

void migrate_on_event_there(const char *event, json_object *data, void *userdata) {
        struct migrate *m = userdata;

        if (strcmp(event, "MIGRATION") == 0)
                note_status_there(m, data);
        else if (strcmp(event, INCOMING_COMMITTED) == 0)
                migrate_on_committed(m, data);
        else if (strcmp(event, "RESUME") == 0) {
                m->resume_usec = migrate_now();
                m->runs_there = true;
        }
}

static int call(struct migrate *m, struct qmp *q, const char *command, json_object *arguments) {
        int r;

        r = qmp_call(q, command, arguments, COMMAND_USEC, NULL, NULL);
        if (r == -EREMOTEIO)
                return log_error(r, "QEMU refuses \"%s\": %s", command, qmp_error(q));
        return r < 0 ? log_error(r, "%s QEMU does not answer to \"%s\": %s",
                                 q == &m->here ? "This host's" : "The destination's", command, strerror(-r))
                     : 0;
}

static json_object *capabilities(const struct migrate *m) {
        /* A return path would have the source wait until the destination has loaded all, which "run" there
         * sees sooner; nothing is decided at a pause. What an earlier migration has set is reset. */
        const struct {
                const char *name;
                bool on;
        } all[] = {
                { "events", true },
                { "late-block-activate", true },
                { "pause-before-switchover", false },
                { "return-path", m->args->post_copy },
                { "postcopy-ram", m->args->post_copy },
        };
        json_object *arguments = json_object_new_object(), *list = json_object_new_array();

        for (size_t i = 0; i < ELEMENTSOF(all); i++) {
                json_object *o = json_object_new_object();

                json_add_string(o, "capability", all[i].name);
                json_object_object_add(o, "state", json_object_new_boolean(all[i].on));
                json_object_array_add(list, o);
        }
        json_object_object_add(arguments, "capabilities", list);
        return arguments;
}

static int start(struct migrate *m) {
        json_object *arguments;
        const char *host = m->args->data_address;
        char uri[300];
        int r;

        r = call(m, &m->here, "migrate-set-capabilities", capabilities(m));
        if (r < 0)
                return r;

        arguments = json_object_new_object();
        json_add_uint(arguments, "max-bandwidth",
                      args_given(m->args, OPT_BANDWIDTH) ? m->args->bandwidth : NO_LIMIT);
        if (args_given(m->args, OPT_DOWNTIME_LIMIT))
                json_add_uint(arguments, "downtime-limit", m->args->downtime_limit);
        r = call(m, &m->here, "migrate-set-parameters", arguments);
        if (r < 0)
                return r;

        if (!host) {
                host = strrchr(m->args->to, '@');
                host = host ? host + 1 : m->args->to;
        }
        (void) snprintf(uri, sizeof(uri), strchr(host, ':') ? "tcp:[%s]:%u" : "tcp:%s:%u", host, m->port);
        arguments = json_object_new_object();
        json_add_string(arguments, "uri", uri);
        m->status[0] = '\0';
        m->copying = true;
        return call(m, &m->here, "migrate", arguments);
}

static uint64_t get(json_object *o, const char *key) {
        json_object *v = o ? json_object_object_get(o, key) : NULL;

        return v ? json_object_get_uint64(v) : 0;
}

/* How far it is, and with post-copy whether all has been over there once. */
static int look(struct migrate *m, bool *ret_once) {
        json_object *result, *ram, *v;
        uint64_t total, left;
        int r;

        r = call(m, &m->here, "query-migrate", NULL);
        if (r < 0)
                return r;
        result = qmp_result(&m->here);
        note_status(m->status, result);
        ram = json_object_object_get(result, "ram");
        total = get(ram, "total");
        left = get(ram, "remaining");
        m->transferred = get(ram, "transferred") ?: m->transferred;
        m->bytes_left = left;
        *ret_once = get(ram, "dirty-sync-count") > 1;
        progress_show(&m->progress, "copy", total > left ? total - left : 0, total);

        if (strcmp(m->status, "failed") == 0) {
                v = json_object_object_get(result, "error-desc");
                return log_error(-EIO, "QEMU's migration failed%s%s", v ? ": " : ".",
                                 v ? json_object_get_string(v) : "");
        }
        return 0;
}

/* Whichever of the two QEMUs says something first. */
static int wait_for_events(struct migrate *m) {
        struct pollfd fds[] = { { .fd = m->here.fd, .events = POLLIN },
                                { .fd = m->there.fd, .events = POLLIN } };

        (void) poll(fds, ELEMENTSOF(fds), POLL_MSEC);
        if (qmp_process(&m->here) < 0)
                return log_error(-ECONNRESET, "This host's QEMU has closed its control socket.");
        if (qmp_process(&m->there) < 0)
                return log_error(-ECONNRESET, "The destination's QEMU, or the connection to it, has gone.");
        if (strcmp(m->status_there, "failed") == 0)
                return log_error(-EIO, "The destination's QEMU could not load the guest.");
        return 0;
}

/* It says so by itself, or has, to another connection. */
int migrate_wait_until_loaded(struct migrate *m) {
        uint64_t deadline = migrate_now() + LOAD_USEC;
        int r = 0;

        if (!m->loaded_there) {
                r = qmp_execute(&m->there, "query-migrate", COMMAND_USEC, NULL, NULL);
                if (r >= 0)
                        note_status_there(m, qmp_result(&m->there));
        }
        while (r >= 0 && !m->loaded_there) {
                if (strcmp(m->status_there, "failed") == 0)
                        return log_error(-EIO, "The destination's QEMU could not load the guest.");
                if (migrate_now() >= deadline)
                        return log_error(-ETIMEDOUT, "The destination's QEMU has not loaded the guest.");
                r = qmp_wait(&m->there, POLL_MSEC);
        }
        return r < 0 ? log_error(r, "The destination's QEMU, or the connection to it, has gone.") : 0;
}

int migrate_copy(struct migrate *m) {
        bool once = false, switching = false;
        uint64_t next = 0;
        int r;

        r = start(m);
        while (r >= 0) {
                if (strcmp(m->status, "completed") == 0 || strcmp(m->status, "postcopy-active") == 0)
                        break;
                if (strcmp(m->status, "cancelled") == 0) {
                        r = log_error(-ECANCELED, "Somebody else has canceled QEMU's migration.");
                        break;
                }

                if (migrate_now() >= next || strcmp(m->status, "failed") == 0) {
                        r = look(m, &once);
                        next = migrate_now() + LOOK_USEC;
                        if (r >= 0 && once && m->args->post_copy && !switching) {
                                r = call(m, &m->here, "migrate-start-postcopy", NULL);
                                switching = true;
                                next = UINT64_MAX; /* QEMU says by itself what is left to be said */
                        }
                        continue;
                }
                r = wait_for_events(m);
                if (r >= 0 && !switching)
                        r = migrate_check(m);
        }
        /* "run" there waits for it, where a handoff is to be committed. */
        if (r >= 0 && m->mode != INCOMING_HANDOFF)
                r = migrate_wait_until_loaded(m);
        if (r < 0)
                progress_end(&m->progress, false);
        return r;
}

void migrate_count(struct migrate *m) {
        bool once;

        if (m->copying)
                (void) look(m, &once);
        progress_end(&m->progress, true);
}

int migrate_arrive(struct migrate *m) {
        bool once;
        int r = 0;

        while (strcmp(m->status, "completed") != 0) {
                if (strcmp(m->status, "postcopy-paused") == 0)
                        return log_error(
                                        -ECONNRESET,
                                        "The rest of the guest's memory does not arrive: the connection between "
                                        "the two QEMUs was lost. The guest waits for it on the destination; "
                                        "QEMU here must not be ended. See \"Post-copy recovery\" in QEMU's "
                                        "documentation.");
                r = look(m, &once);
                if (r >= 0)
                        r = qmp_wait(&m->here, POLL_MSEC);
                if (r < 0)
                        break;
                (void) qmp_process(&m->there);
        }
        progress_end(&m->progress, r >= 0);
        return r;
}

int migrate_resume_there(struct migrate *m) {
        uint64_t deadline = migrate_now() + COMMAND_USEC;
        json_object *v;
        int r;

        if (m->runs_there)
                return 0;
        r = qmp_execute(&m->there, "cont", COMMAND_USEC, NULL, NULL);
        if (r == -EREMOTEIO)
                return log_error(r, "The destination's QEMU does not let the guest run: %s",
                                 qmp_error(&m->there));
        while (r >= 0 && !m->runs_there && migrate_now() < deadline) {
                /* One that runs already says nothing. */
                r = qmp_execute(&m->there, "query-status", COMMAND_USEC, NULL, NULL);
                v = r >= 0 ? json_object_object_get(qmp_result(&m->there), "running") : NULL;
                m->runs_there = m->runs_there || (v && json_object_get_boolean(v));
                if (r >= 0 && !m->runs_there)
                        r = qmp_wait(&m->there, POLL_MSEC);
        }
        if (r < 0)
                return r;
        return m->runs_there ? 0 : -ETIMEDOUT;
}

/* After one that failed or was canceled QEMU lets the guest run by itself; after one that was completed it
 * has to be told. */
int migrate_resume_here(struct migrate *m) {
        static const char *const final[] = { "", "none", "completed", "failed", "cancelled" };
        uint64_t deadline = migrate_now() + COMMAND_USEC;
        json_object *v;
        int r;

        for (bool asked = false;; asked = true) {
                bool is_final = false;

                r = qmp_execute(&m->here, "query-migrate", COMMAND_USEC, NULL, NULL);
                if (r < 0)
                        return r;
                m->status[0] = '\0';
                note_status(m->status, qmp_result(&m->here));
                for (size_t i = 0; i < ELEMENTSOF(final); i++)
                        is_final = is_final || strcmp(m->status, final[i]) == 0;
                if (is_final)
                        break;
                if (!asked)
                        (void) qmp_execute(&m->here, "migrate_cancel", COMMAND_USEC, NULL, NULL);
                if (migrate_now() >= deadline)
                        return -ETIMEDOUT;
                (void) qmp_wait(&m->here, POLL_MSEC);
        }

        for (;;) {
                r = qmp_execute(&m->here, "query-status", COMMAND_USEC, NULL, NULL);
                if (r < 0)
                        return r;
                v = json_object_object_get(qmp_result(&m->here), "running");
                m->runs_here = v && json_object_get_boolean(v);
                if (m->runs_here)
                        return 0;
                if (migrate_now() >= deadline)
                        return -ETIMEDOUT;
                r = qmp_execute(&m->here, "cont", COMMAND_USEC, NULL, NULL);
                if (r < 0 && r != -EREMOTEIO)
                        return r;
                (void) qmp_wait(&m->here, POLL_MSEC);
        }
}
