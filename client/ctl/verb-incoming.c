/* SPDX-License-Identifier: LGPL-2.1-or-later */

/*
 * incoming: the far end of "migrate", which starts it over SSH. It has "run --incoming" started so that it
 * stays when the connection goes, hands on what it says, and then is the way to its QEMU's control socket.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "daemon.h"
#include "incoming.h"
#include "json.h"
#include "line.h"
#include "log.h"
#include "runtime.h"
#include "signals.h"
#include "verbs.h"

#define START_MSEC 30000
/* The destination of an attempt that is off ends as soon as its "run" looks. */
#define END_USEC UINT64_C(10000000)

static void say(const char *kind, const char *text, void *userdata) {
        json_object *o = json_object_new_object();

        json_add_string(o, "kind", kind);
        json_add_string(o, "text", text);
        (void) line_send(STDOUT_FILENO, o);
        json_object_put(o);
}

/* In its own session, without our descriptors, and not our child. */
static void __attribute__((noreturn)) detach(char *const *argv, const char *log_path) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC),
            log = open(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

        if (null < 0 || log < 0 || setsid() < 0 || dup2(null, STDIN_FILENO) < 0 ||
            dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
                _exit(EXIT_FAILED);
        signals_unblock();
        if (fork() == 0) {
                execvp(argv[0], argv);
                fprintf(stderr, "%s cannot be executed: %s\n", argv[0], strerror(errno));
                _exit(EXIT_FAILED);
        }
        _exit(EXIT_OK);
}

/* systemd keeps it apart from the login that it is started from, and has its log. */
static int start(const char *name, const char *socket, const char *log_path) {
        _cleanup_free_ char *unit = NULL, *self = NULL;
        bool by_systemd = geteuid() == 0 && access("/run/systemd/system", F_OK) >= 0;
        int status = 0;
        pid_t pid;

        self = realpath("/proc/self/exe", NULL);
        if (!self || asprintf(&unit, "--unit=tdpctl-%s.service", name) < 0)
                return -ENOMEM;

        char *const systemd[] = { (char *) "systemd-run",
                                  (char *) "--quiet",
                                  (char *) "--collect",
                                  (char *) "--property=KillMode=mixed",
                                  unit,
                                  (char *) "--",
                                  self,
                                  (char *) "run",
                                  (char *) "--incoming",
                                  (char *) socket,
                                  NULL };

        pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0) {
                if (!by_systemd)
                        detach(systemd + 6, log_path);
                (void) dup2(STDERR_FILENO, STDOUT_FILENO); /* the other one is for lines of JSON */
                execvp(systemd[0], systemd);
                _exit(EXIT_FAILED);
        }
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return -errno;
        return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

/* Until it is ready. The control socket's path, or NULL if there is none. */
static int hand_on(int fd, char **ret_qmp) {
        for (;;) {
                json_object *o, *ready, *v;
                int r;

                r = line_read(fd, &o);
                if (r < 0)
                        return r;
                r = line_send(STDOUT_FILENO, o);
                if (r >= 0 && json_object_object_get_ex(o, "ready", &ready)) {
                        v = json_object_object_get(ready, "qmp");
                        *ret_qmp = v ? strdup(json_object_get_string(v)) : NULL;
                        json_object_put(o);
                        return *ret_qmp ? 0 : -ENOENT;
                }
                json_object_put(o);
                if (r < 0)
                        return r;
        }
}

static int write_all(int to, const char *line, size_t size) {
        while (size > 0) {
                ssize_t n = write(to, line, size);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                line += n;
                size -= (size_t) n;
        }
        return 0;
}

/* What is not QEMU's to know (see incoming.h). */
static bool is_for_run(const char *line, size_t size) {
        return memmem(line, size, INCOMING_COMMIT, strlen(INCOMING_COMMIT));
}

/* Line by line: what comes from two is not to be mixed. */
static int pump(struct line_buffer *lines, int from, int to, int run) {
        char *line;
        size_t size;
        int r;

        r = line_buffer_read(lines, from);
        while (r > 0 && (line = line_buffer_next(lines, &size)))
                if (run < 0 || !is_for_run(line, size))
                        r = write_all(to, line, size) < 0 ? -ECONNRESET : r;
                else
                        (void) write_all(run, line, size); /* if it has gone, so has its QEMU */
        return r;
}

/* run: -1 if there is no way to it. */
static void relay(int qmp, int run) {
        struct line_buffer lines[3] = {};
        bool goes_on = true;

        while (goes_on) {
                struct pollfd fds[] = { { .fd = STDIN_FILENO, .events = POLLIN },
                                        { .fd = qmp, .events = POLLIN },
                                        { .fd = run, .events = POLLIN } };

                if (poll(fds, ELEMENTSOF(fds), -1) < 0 && errno != EINTR)
                        break;
                if (fds[0].revents)
                        goes_on = pump(&lines[0], STDIN_FILENO, qmp, run) >= 0;
                if (fds[1].revents)
                        goes_on = pump(&lines[1], qmp, STDOUT_FILENO, -1) >= 0 && goes_on;
                if (fds[2].revents && pump(&lines[2], run, STDOUT_FILENO, -1) < 0)
                        run = -1; /* QEMU's end is seen by itself */
        }
        for (size_t i = 0; i < ELEMENTSOF(lines); i++)
                line_buffer_done(&lines[i]);
}

/* Waits until what was started is there. */
static int accept_within(int listener, int msec) {
        struct pollfd p = { .fd = listener, .events = POLLIN };
        int fd;

        if (poll(&p, 1, msec) <= 0)
                return -ETIMEDOUT;
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

/* ret_run: the way to what was started, which stays open. */
static int bring_up(json_object *spec, const char *name, const struct runtime *runtime, char **ret_qmp,
                    int *ret_run) {
        _cleanup_free_ char *socket = NULL, *log_path = NULL;
        _cleanup_close_ int listener = -1, fd = -1;
        int r;

        if (asprintf(&socket, "%s/%d.incoming", runtime->base, (int) getpid()) < 0 ||
            asprintf(&log_path, "%s/%s.log", runtime->base, name) < 0)
                return log_error(-ENOMEM, "Out of memory.");

        r = runtime_wait(runtime, END_USEC);
        if (r < 0)
                return log_error(r,
                                 "A \"tdpctl run\" on the destination has a VM \"%s\": %s. Give it another "
                                 "name here, or end it there.",
                                 name, strerror(-r));
        (void) unlink(socket);
        listener = unix_listen(socket);
        if (listener < 0)
                return log_error(listener, "A socket cannot be made in \"%s\": %s", runtime->base,
                                 strerror(-listener));
        r = start(name, socket, log_path);
        if (r >= 0)
                fd = r = accept_within(listener, START_MSEC);
        (void) unlink(socket);
        if (r >= 0)
                r = line_send(fd, spec);
        if (r < 0)
                return log_error(r, "\"tdpctl run\" cannot be started on the destination: %s", strerror(-r));
        r = hand_on(fd, ret_qmp);
        if (r < 0)
                return log_error(r, "The destination's QEMU did not come up.");
        *ret_run = TAKE_FD(fd);
        return 0;
}

/* To a QEMU that was started before. */
static int bring_back(const struct runtime *runtime, char **ret_qmp) {
        json_object *o;

        if (access(runtime->qmp, F_OK) < 0)
                return log_error(-errno, "There is no such VM on the destination.");
        *ret_qmp = strdup(runtime->qmp);
        if (!*ret_qmp)
                return log_error(-ENOMEM, "Out of memory.");
        o = json_object_new_object();
        json_object_object_add(o, "ready", json_object_new_object());
        (void) line_send(STDOUT_FILENO, o);
        json_object_put(o);
        return 0;
}

int verb_incoming(const struct args *args) {
        _cleanup_(runtime_done) struct runtime runtime = { .lock_fd = -1 };
        _cleanup_close_ int qmp_fd = -1, run_fd = -1, mark = -1;
        _cleanup_free_ char *qmp = NULL;
        json_object *spec, *name;
        bool again;
        int r;

        (void) signal(SIGPIPE, SIG_IGN);
        log_set_sink(say, NULL);
        r = line_read(STDIN_FILENO, &spec);
        if (r < 0)
                return log_error(EXIT_USAGE, "This is for \"tdpctl migrate\": it has to say what to run.");

        again = json_object_object_get_ex(spec, "again", NULL);
        name = json_object_object_get(spec, "name");
        r = name ? runtime_init(&runtime, json_object_get_string(name)) : -EINVAL;
        if (r >= 0)
                r = runtime_make_base(&runtime);
        if (r < 0)
                (void) log_error(r, "There is no place for a VM's control socket: %s", strerror(-r));
        else
                r = again ? bring_back(&runtime, &qmp)
                          : bring_up(spec, json_object_get_string(name), &runtime, &qmp, &run_fd);
        json_object_put(spec);
        if (r < 0)
                return EXIT_FAILED;

        if (!again)
                mark = runtime_mark(&runtime, "incoming");
        qmp_fd = unix_connect(qmp);
        if (qmp_fd < 0)
                return log_error(EXIT_FAILED, "QEMU's control socket cannot be reached: %s",
                                 strerror(-qmp_fd));
        log_set_sink(NULL, NULL);
        relay(qmp_fd, run_fd);
        return EXIT_OK;
}
