/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* migrate: the destination's QEMU, started and reached over one SSH connection. */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "json.h"
#include "line.h"
#include "log.h"
#include "migrate.h"
#include "signals.h"
#include "verbs.h"

#define COMMAND_USEC UINT64_C(20000000)
#define POLL_MSEC    100

/* What is to be run there: what was run here, but for what is about this host. */
static json_object *make_spec(struct migrate *m) {
        json_object *spec = json_object_new_object(), *options = NULL, *argv, *v;

        json_add_string(spec, "name", m->name);
        json_add_string(spec, "mode", incoming_mode_to_string(m->mode));
        if (m->in)
                json_add_string(spec, "handoff", tdp_handoff_get_id(m->in));
        json_object_object_add(spec, "post_copy", json_object_new_boolean(m->args->post_copy));
        static const char *const keys[] = { "memory", "parts", "cwd" };
        for (size_t i = 0; i < ELEMENTSOF(keys); i++)
                if (json_object_object_get_ex(m->vm_json, keys[i], &v))
                        json_object_object_add(spec, keys[i], json_object_get(v));

        if (m->args->n_positional > 1) {
                argv = json_object_new_array();
                for (int i = 1; i < m->args->n_positional; i++)
                        json_object_array_add(argv, json_object_new_string(m->args->positional[i]));
        } else
                argv = json_object_get(json_object_object_get(m->vm_json, "argv"));
        json_object_object_add(spec, "argv", argv);

        (void) json_object_deep_copy(json_object_object_get(m->vm_json, "options"), &options, NULL);
        if (options) {
                if (args_given(m->args, OPT_PAGE_SIZE))
                        json_add_uint(options, "page_size", m->args->page_size);
                if (args_given(m->args, OPT_DECISION))
                        json_add_string(options, "decision", m->args->decision);
                json_object_object_add(spec, "options", options);
        }
        return spec;
}

static int start_ssh(struct migrate *m) {
        int sockets[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
                return log_error(-errno, "A socket cannot be made: %s", strerror(errno));

        m->ssh = fork();
        if (m->ssh < 0) {
                m->ssh = 0;
                close_keep_errno(sockets[0]);
                close_keep_errno(sockets[1]);
                return log_error(-errno, "ssh cannot be started: %s", strerror(errno));
        }
        if (m->ssh == 0) {
                /* Ctrl-C is for us: what it means there is said through this connection. */
                (void) setpgid(0, 0);
                signals_unblock();
                if (dup2(sockets[1], STDIN_FILENO) < 0 || dup2(sockets[1], STDOUT_FILENO) < 0)
                        _exit(127);
                execlp("ssh", "ssh", "-xT", "--", m->args->to, "tdpctl", "incoming", (char *) NULL);
                fprintf(stderr, "tdpctl: ssh cannot be executed: %s\n", strerror(errno));
                _exit(127);
        }
        close_keep_errno(sockets[1]);
        return sockets[0];
}

static int ssh_ended(struct migrate *m) {
        int status = 0;

        if (m->ssh > 0 && waitpid(m->ssh, &status, WNOHANG) == m->ssh) {
                m->ssh = 0;
                if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
                        return log_error(
                                        -ENOENT,
                                        "There is no tdpctl on %s. Install the packages \"tdpctl\" and \"tdpd\" there.",
                                        m->args->to);
                if (WIFEXITED(status) && WEXITSTATUS(status) == 255)
                        return log_error(-EHOSTDOWN, "The connection to %s failed.", m->args->to);
        }
        return log_error(-ECONNRESET, "The destination's QEMU is not ready.");
}

/* 1: it is ready. */
static int on_line(struct migrate *m, json_object *o) {
        json_object *v, *ready;

        if (json_object_object_get_ex(o, "phase", &v)) {
                progress_show(&m->progress, json_object_get_string(v),
                              json_object_get_uint64(json_object_object_get(o, "done")),
                              json_object_get_uint64(json_object_object_get(o, "total")));
                return 0;
        }
        if (json_object_object_get_ex(o, "ready", &ready)) {
                m->ready = json_object_get(ready);
                return 1;
        }
        if (json_object_object_get_ex(o, "kind", &v)) {
                const char *text = json_object_get_string(json_object_object_get(o, "text"));

                if (strcmp(json_object_get_string(v), "error") == 0)
                        (void) log_error(0, "%s: %s", m->args->to, text ?: "");
                else
                        log_notice("%s: %s", m->args->to, text ?: "");
        }
        return 0;
}

static int wait_until_ready(struct migrate *m, int fd) {
        for (;;) {
                struct pollfd p = { .fd = fd, .events = POLLIN };
                json_object *o;
                int r;

                r = migrate_check(m);
                if (r < 0)
                        return r;
                if (poll(&p, 1, POLL_MSEC) <= 0)
                        continue;
                r = line_read(fd, &o);
                if (r < 0) {
                        progress_end(&m->progress, false);
                        (void) usleep(POLL_MSEC * 1000); /* ssh's exit code follows */
                        return ssh_ended(m);
                }
                r = on_line(m, o);
                json_object_put(o);
                if (r > 0) {
                        progress_end(&m->progress, true);
                        return 0;
                }
        }
}

/* Starts ssh, and what is to be there; the same connection is then its QEMU's control channel. */
static int open_there(struct migrate *m, json_object *spec) {
        int fd, r;

        fd = start_ssh(m);
        if (fd < 0) {
                json_object_put(spec);
                return fd;
        }
        r = line_send(fd, spec);
        json_object_put(spec);
        if (r < 0) {
                close_keep_errno(fd);
                return log_error(r, "%s cannot be reached: %s", m->args->to, strerror(-r));
        }
        r = wait_until_ready(m, fd);
        if (r < 0) {
                close_keep_errno(fd);
                return r;
        }

        qmp_init(&m->there, fd);
        m->there.on_event = migrate_on_event_there;
        m->there.userdata = m;
        r = qmp_execute(&m->there, "qmp_capabilities", COMMAND_USEC,
                        m->owner == OWNER_SOURCE ? migrate_check : NULL, m);
        return r < 0 ? log_error(r, "The destination's QEMU does not answer: %s", strerror(-r)) : 0;
}

static json_object *capability(const char *name, bool on) {
        json_object *o = json_object_new_object();

        json_add_string(o, "capability", name);
        json_object_object_add(o, "state", json_object_new_boolean(on));
        return o;
}

static int listen_there(struct migrate *m) {
        json_object *arguments = json_object_new_object(), *list = json_object_new_array(), *v;
        const char *host = m->args->data_address ?: "";
        char uri[256];
        int r;

        json_object_array_add(list, capability("events", true));
        /* Until the guest runs there, its disks are the source's. */
        json_object_array_add(list, capability("late-block-activate", true));
        if (m->args->post_copy)
                json_object_array_add(list, capability("postcopy-ram", true));
        json_object_object_add(arguments, "capabilities", list);
        r = qmp_call(&m->there, "migrate-set-capabilities", arguments, COMMAND_USEC, migrate_check, m);
        if (r < 0)
                return log_error(r, "The destination's QEMU cannot do this migration: %s",
                                 r == -EREMOTEIO ? qmp_error(&m->there) : strerror(-r));

        (void) snprintf(uri, sizeof(uri), strchr(host, ':') ? "tcp:[%s]:%u" : "tcp:%s:%u", host,
                        m->args->port);
        arguments = json_object_new_object();
        json_add_string(arguments, "uri", uri);
        r = qmp_call(&m->there, "migrate-incoming", arguments, COMMAND_USEC, migrate_check, m);
        if (r < 0)
                return log_error(r, "The destination's QEMU cannot listen at \"%s\": %s", uri,
                                 r == -EREMOTEIO ? qmp_error(&m->there) : strerror(-r));

        m->port = m->args->port;
        if (m->port > 0)
                return 0;
        r = qmp_execute(&m->there, "query-migrate", COMMAND_USEC, migrate_check, m);
        v = r >= 0 ? json_object_object_get(qmp_result(&m->there), "socket-address") : NULL;
        v = v ? json_object_array_get_idx(v, 0) : NULL;
        v = v ? json_object_object_get(v, "port") : NULL;
        m->port = v ? (unsigned) strtoul(json_object_get_string(v), NULL, 10) : 0;
        return m->port > 0 ? 0
                           : log_error(-EPROTO,
                                       "The destination's QEMU does not say where it listens. Give --port.");
}

int migrate_incoming(struct migrate *m) {
        int r;

        r = open_there(m, make_spec(m));
        return r < 0 ? r : listen_there(m);
}

int migrate_incoming_again(struct migrate *m) {
        json_object *spec = json_object_new_object();

        migrate_incoming_done(m);
        json_add_string(spec, "name", m->name);
        json_object_object_add(spec, "again", json_object_new_boolean(true));
        return open_there(m, spec);
}

void migrate_incoming_done(struct migrate *m) {
        qmp_done(&m->there);
        if (m->ready)
                json_object_put(m->ready);
        m->ready = NULL;
        if (m->ssh > 0) {
                /* It ends with its connection; one that hangs is not waited for. */
                for (unsigned i = 0; i < 20 && waitpid(m->ssh, NULL, WNOHANG) == 0; i++) {
                        if (i == 10)
                                (void) kill(m->ssh, SIGTERM);
                        (void) usleep(50000);
                }
                m->ssh = 0;
        }
}
