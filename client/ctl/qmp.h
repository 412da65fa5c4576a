/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#include "line.h"

/* The little of QMP, QEMU's control protocol, that "run" and "migrate" need. */
struct qmp {
        int fd;
        bool greeted, closed;
        struct line_buffer lines;
        json_object *reply;

        /* data: of the event, NULL if it has none. It must not execute anything. */
        void (*on_event)(const char *event, json_object *data, void *userdata);
        void *userdata;
};

void qmp_init(struct qmp *q, int fd);
void qmp_done(struct qmp *q);

/* Handles what has arrived, without waiting. -ECONNRESET: QEMU closed it. */
int qmp_process(struct qmp *q);

/*
 * Has a command executed and waits for the answer. check is asked several times a second; a negative return
 * ends the wait with it. -ETIMEDOUT, -ECONNRESET, -EREMOTEIO (QEMU refused), -EPROTO.
 */
int qmp_execute(struct qmp *q, const char *command, uint64_t timeout_usec, int (*check)(void *userdata),
                void *userdata);

/* The same with arguments (may be NULL; they are consumed). What QEMU returned is qmp_result() until the
 * next command, and what it says to a refusal is qmp_error(). */
int qmp_call(struct qmp *q, const char *command, json_object *arguments, uint64_t timeout_usec,
             int (*check)(void *userdata), void *userdata);

/* Only sends one. For what tells its outcome by events; the next command does not wait for it. */
int qmp_send(struct qmp *q, const char *command, json_object *arguments, uint64_t timeout_usec);

json_object *qmp_result(const struct qmp *q);
const char *qmp_error(const struct qmp *q);

/* Handles what arrives within that time; returns as soon as something has. As qmp_process(). */
int qmp_wait(struct qmp *q, int msec);
