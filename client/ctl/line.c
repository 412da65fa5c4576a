/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Lines of JSON. */

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "cleanup.h"
#include "line.h"

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
