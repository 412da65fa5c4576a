/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Lines of JSON. */

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "cleanup.h"
#include "line.h"

#define READ_SIZE  4096
#define BUFFER_MAX (4U << 20)

int line_read(int fd, json_object **ret) {
        _cleanup_free_ char *line = NULL;
        size_t length = 0, allocated = 0;
        json_object *o;

        for (;;) {
                struct pollfd p = { .fd = fd, .events = POLLIN };
                ssize_t n;

                if (length + 1 >= allocated) {
                        char *bigger;

                        if (allocated >= LINE_MAX_SIZE)
                                return -EMSGSIZE;
                        allocated = allocated > 0 ? 2 * allocated : 1024;
                        bigger = realloc(line, allocated);
                        if (!bigger)
                                return -ENOMEM;
                        line = bigger;
                }

                /* One by one, as it may be a pipe: what follows is not ours. */
                n = read(fd, line + length, 1);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN) {
                        (void) poll(&p, 1, -1);
                        continue;
                }
                if (n < 0)
                        return -errno;
                if (n == 0)
                        return -ECONNRESET;
                if (line[length] == '\n')
                        break;
                length++;
        }
        line[length] = '\0';

        o = json_tokener_parse(line);
        if (!o || !json_object_is_type(o, json_type_object)) {
                if (o)
                        json_object_put(o);
                return -EBADMSG;
        }
        *ret = o;
        return 0;
}

int line_send(int fd, json_object *o) {
        _cleanup_free_ char *line = NULL;
        size_t size, sent = 0;

        if (asprintf(&line, "%s\n", json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN)) < 0) {
                line = NULL;
                return -ENOMEM;
        }
        size = strlen(line);
        while (sent < size) {
                struct pollfd p = { .fd = fd, .events = POLLOUT };
                ssize_t n = send(fd, line + sent, size - sent, MSG_NOSIGNAL);

                if (n < 0 && errno == ENOTSOCK)
                        n = write(fd, line + sent, size - sent);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN) {
                        (void) poll(&p, 1, -1);
                        continue;
                }
                if (n < 0)
                        return -errno;
                sent += (size_t) n;
        }
        return 0;
}

void line_buffer_done(struct line_buffer *b) {
        free(b->data);
        *b = (struct line_buffer){};
}

int line_buffer_read(struct line_buffer *b, int fd) {
        ssize_t n;

        if (b->used > 0)
                memmove(b->data, b->data + b->used, b->length - b->used);
        b->length -= b->used;
        b->used = 0;
        if (b->length > BUFFER_MAX)
                return -EMSGSIZE;
        if (b->allocated - b->length < READ_SIZE) {
                char *bigger = realloc(b->data, b->length + 2 * READ_SIZE);

                if (!bigger)
                        return -ENOMEM;
                b->data = bigger;
                b->allocated = b->length + 2 * READ_SIZE;
        }

        n = read(fd, b->data + b->length, READ_SIZE);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n <= 0)
                return -ECONNRESET;
        b->length += (size_t) n;
        return 1;
}

char *line_buffer_next(struct line_buffer *b, size_t *ret_size) {
        char *line, *end;

        if (b->used == b->length)
                return NULL;
        line = b->data + b->used;
        end = memchr(line, '\n', b->length - b->used);
        if (!end)
                return NULL;
        *ret_size = (size_t) (end - line) + 1;
        b->used += *ret_size;
        return line;
}
