/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* QMP over a socket: lines of JSON. */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "cleanup.h"
#include "qmp.h"

#define CHECK_MSEC 100

void qmp_init(struct qmp *q, int fd) {
        *q = (struct qmp){ .fd = fd };
        (void) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void qmp_done(struct qmp *q) {
        if (q->reply)
                json_object_put(q->reply);
        line_buffer_done(&q->lines);
        q->fd = close_keep_errno(q->fd);
        *q = (struct qmp){ .fd = -1 };
}

static int on_line(struct qmp *q, const char *line) {
        json_object *o = json_tokener_parse(line), *v;

        if (!o)
                return -EPROTO;

        if (json_object_object_get_ex(o, "event", &v)) {
                if (q->on_event && json_object_is_type(v, json_type_string)) {
                        const char *event = json_object_get_string(v);

                        q->on_event(event, json_object_object_get(o, "data"), q->userdata);
                }
        } else if (json_object_object_get_ex(o, "QMP", NULL))
                q->greeted = true;
        else {
                if (q->reply)
                        json_object_put(q->reply);
                q->reply = json_object_get(o);
        }
        json_object_put(o);
        return 0;
}

int qmp_process(struct qmp *q) {
        char *line;
        size_t size;
        int r;

        while (!q->closed) {
                r = line_buffer_read(&q->lines, q->fd);
                if (r == 0)
                        return 0;
                while (r > 0 && (line = line_buffer_next(&q->lines, &size))) {
                        line[size - 1] = '\0';
                        if (size > 2)
                                r = on_line(q, line) < 0 ? -EPROTO : r;
                }
                if (r < 0) {
                        /* Whatever comes after what makes no sense is not kept, and not waited for. */
                        q->closed = true;
                        return r == -EMSGSIZE ? -EPROTO : r;
                }
        }
        return -ECONNRESET;
}

static uint64_t now_usec(void) {
        struct timespec ts;

        (void) clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* Waits until the greeting, or an answer, has come. */
static int wait_for(struct qmp *q, bool greeting, uint64_t deadline, int (*check)(void *userdata),
                    void *userdata) {
        for (;;) {
                struct pollfd p = { .fd = q->fd, .events = POLLIN };
                int r;

                r = qmp_process(q);
                if (greeting ? q->greeted : !!q->reply)
                        return 0;
                if (r < 0)
                        return r;

                r = check ? check(userdata) : 0;
                if (r < 0)
                        return r;
                if (now_usec() >= deadline)
                        return -ETIMEDOUT;
                (void) poll(&p, 1, CHECK_MSEC);
        }
}

static int send_all(int fd, const char *text, size_t size, uint64_t deadline) {
        while (size > 0) {
                struct pollfd p = { .fd = fd, .events = POLLOUT };
                ssize_t n = send(fd, text, size, MSG_NOSIGNAL);

                if (n < 0 && errno != EAGAIN && errno != EINTR)
                        return -ECONNRESET;
                if (n > 0) {
                        text += n;
                        size -= (size_t) n;
                        continue;
                }
                if (now_usec() >= deadline)
                        return -ETIMEDOUT;
                (void) poll(&p, 1, CHECK_MSEC);
        }
        return 0;
}

/* Consumes the arguments. */
static int send_command(struct qmp *q, const char *command, json_object *arguments, uint64_t deadline) {
        json_object *o = json_object_new_object();
        _cleanup_free_ char *text = NULL;
        int n;

        json_object_object_add(o, "execute", json_object_new_string(command));
        if (arguments)
                json_object_object_add(o, "arguments", arguments);
        n = asprintf(&text, "%s\n", json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
        json_object_put(o);
        if (n < 0) {
                text = NULL;
                return -ENOMEM;
        }
        return send_all(q->fd, text, (size_t) n, deadline);
}

int qmp_send(struct qmp *q, const char *command, json_object *arguments, uint64_t timeout_usec) {
        return send_command(q, command, arguments, now_usec() + timeout_usec);
}

int qmp_call(struct qmp *q, const char *command, json_object *arguments, uint64_t timeout_usec,
             int (*check)(void *userdata), void *userdata) {
        uint64_t deadline = now_usec() + timeout_usec;
        json_object *v;
        int r;

        r = wait_for(q, true, deadline, check, userdata);
        if (r < 0) {
                if (arguments)
                        json_object_put(arguments);
                return r;
        }

        if (q->reply) {
                json_object_put(q->reply);
                q->reply = NULL;
        }
        r = send_command(q, command, arguments, deadline);
        if (r >= 0)
                r = wait_for(q, false, deadline, check, userdata);
        if (r < 0)
                return r;
        return json_object_object_get_ex(q->reply, "return", &v) ? 0 : -EREMOTEIO;
}

int qmp_execute(struct qmp *q, const char *command, uint64_t timeout_usec, int (*check)(void *userdata),
                void *userdata) {
        return qmp_call(q, command, NULL, timeout_usec, check, userdata);
}

json_object *qmp_result(const struct qmp *q) {
        return q->reply ? json_object_object_get(q->reply, "return") : NULL;
}

const char *qmp_error(const struct qmp *q) {
        json_object *error = NULL, *text = NULL;

        if (!q->reply || !json_object_object_get_ex(q->reply, "error", &error) ||
            !json_object_object_get_ex(error, "desc", &text))
                return "";
        return json_object_get_string(text);
}

int qmp_wait(struct qmp *q, int msec) {
        struct pollfd p = { .fd = q->fd, .events = POLLIN };

        if (q->closed)
                return -ECONNRESET;
        (void) poll(&p, 1, msec);
        return qmp_process(q);
}
