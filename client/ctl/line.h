/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-c/json.h>

/* Lines of JSON over pipes and sockets that later carry something else: nothing behind a line is read. */

#define LINE_MAX_SIZE (1U << 20)

/* Waits for one. -ECONNRESET: there is none, it has ended. -EMSGSIZE, -EBADMSG. */
int line_read(int fd, json_object **ret);

/* All of it, or a negative errno. The object is not consumed. */
int line_send(int fd, json_object *o);
