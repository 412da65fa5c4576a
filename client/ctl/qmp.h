/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

/* The little of QMP, QEMU's control protocol, that "run" needs. */
struct qmp {
        int fd;
        bool greeted, closed;
        char *buffer;
        size_t length, allocated;
        json_object *reply;

        void (*on_event)(const char *event, void *userdata);
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
