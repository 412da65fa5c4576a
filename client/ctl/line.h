/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-c/json.h>

/* Lines of JSON over pipes and sockets that later carry something else: nothing behind a line is read. */

#define LINE_MAX_SIZE (1U << 20)

/* Waits for one. -ECONNRESET: there is none, it has ended. -EMSGSIZE, -EBADMSG. */
int line_read(int fd, json_object **ret);

/* All of it, or a negative errno. The object is not consumed. */
int line_send(int fd, json_object *o);

/* The other way: whatever comes, kept until a line of it is complete. */
struct line_buffer {
        char *data;
        size_t length, allocated, used;
};

void line_buffer_done(struct line_buffer *b);

/* Reads once. 0: nothing is there now. -ECONNRESET: it has ended. -EMSGSIZE: no end of a line in reach. */
int line_buffer_read(struct line_buffer *b, int fd);

/* The next line and its size, with its end; or NULL. It is there until the next call of either. */
char *line_buffer_next(struct line_buffer *b, size_t *ret_size);
