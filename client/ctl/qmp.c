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

#define READ_SIZE      4096
#define LINE_MAX_BYTES (4U << 20)
#define CHECK_MSEC     100

void qmp_init(struct qmp *q, int fd) {
        *q = (struct qmp){ .fd = fd };
        (void) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void qmp_done(struct qmp *q) {
        if (q->reply)
                json_object_put(q->reply);
        free(q->buffer);
        q->fd = close_keep_errno(q->fd);
        *q = (struct qmp){ .fd = -1 };
}

static int on_line(struct qmp *q, const char *line) {
        json_object *o = json_tokener_parse(line), *v;

        if (!o)
                return -EPROTO;

        if (json_object_object_get_ex(o, "event", &v)) {
                if (q->on_event && json_object_is_type(v, json_type_string))
                        q->on_event(json_object_get_string(v), q->userdata);
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

static int on_data(struct qmp *q) {
        char *end;
        int r;

        while ((end = memchr(q->buffer, '\n', q->length))) {
                size_t used = (size_t) (end - q->buffer) + 1;

                *end = '\0';
                r = used > 2 ? on_line(q, q->buffer) : 0;
                memmove(q->buffer, q->buffer + used, q->length - used);
                q->length -= used;
                if (r < 0)
                        return r;
        }
        return q->length > LINE_MAX_BYTES ? -EPROTO : 0;
}

int qmp_process(struct qmp *q) {
        int r;

        while (!q->closed) {
                ssize_t n;

                if (q->allocated - q->length < READ_SIZE) {
                        char *bigger = realloc(q->buffer, q->length + 2 * READ_SIZE);

                        if (!bigger)
                                return -ENOMEM;
                        q->buffer = bigger;
                        q->allocated = q->length + 2 * READ_SIZE;
                }

                n = read(q->fd, q->buffer + q->length, READ_SIZE);
                if (n < 0 && errno == EAGAIN)
                        return 0;
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        break;
                q->length += (size_t) n;
                r = on_data(q);
                if (r < 0) {
                        /* Whatever comes after what makes no sense is not kept, and not waited for. */
                        q->closed = true;
                        return r;
                }
        }
        q->closed = true;
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

int qmp_execute(struct qmp *q, const char *command, uint64_t timeout_usec, int (*check)(void *userdata),
                void *userdata) {
        uint64_t deadline = now_usec() + timeout_usec;
        char text[128];
        json_object *v;
        int n, r;

        r = wait_for(q, true, deadline, check, userdata);
        if (r < 0)
                return r;

        if (q->reply) {
                json_object_put(q->reply);
                q->reply = NULL;
        }
        n = snprintf(text, sizeof(text), "{\"execute\": \"%s\"}\n", command);
        /* Far below the size of a socket's buffer: never cut short. */
        if (send(q->fd, text, (size_t) n, MSG_NOSIGNAL) != n)
                return -ECONNRESET;

        r = wait_for(q, false, deadline, check, userdata);
        if (r < 0)
                return r;
        return json_object_object_get_ex(q->reply, "return", &v) ? 0 : -EREMOTEIO;
}
