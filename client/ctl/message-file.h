/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "args.h"
#include "tdp/tdp.h"

/* Messages of handoffs as files or standard streams, in the encoding that the arguments say. */

/* path "-": standard input. 0, or a negative errno after having said what is wrong. */
int message_read(const struct args *args, const char *path, struct tdp_message **ret);

/* To --output, or standard output. A terminal gets no binary. */
int message_write(const struct args *args, const struct tdp_message *message);

/* Apart for tests, and for JSON. A new string, or NULL if memory is short. */
char *message_to_base64(const struct tdp_message *message);
char *message_to_hex(const struct tdp_message *message);

/* -EBADMSG: the text is none. White space does not count. */
int message_from_base64(const char *text, size_t size, struct tdp_message **ret);
int message_from_hex(const char *text, size_t size, struct tdp_message **ret);

int encoding_check(const struct args *args);
