/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>

#include "args.h"
#include "progress.h"
#include "qemu-args.h"
#include "runtime.h"
#include "tdp/tdp.h"

/*
 * "run --incoming": QEMU as the destination of a migration. What to run is read from a socket, one line of
 * JSON (see migrate-spec.c); what comes of it is told there, line by line, until it is ready:
 *
 *   {"kind": "error"|"notice", "text"}   {"phase", "done", "total"}   {"ready": {"pid", "qmp", ...}}
 *
 * From then on it can be told to commit, as if that were a command of QEMU's (see run-commit.c):
 *
 *   {"execute": "tdpctl-commit", "arguments": {"message": BASE64}}
 *
 * and tells what has come of it as if by an event of QEMU's, with the message for the source if there is
 * one:
 *
 *   {"event": "TDPCTL_COMMIT", "data": {"message": BASE64}}
 */
#define INCOMING_COMMIT    "tdpctl-commit"
#define INCOMING_COMMITTED "TDPCTL_COMMIT"

enum incoming_mode {
        INCOMING_HANDOFF, /* memory of a VM that was prepared for */
        INCOMING_RESERVE, /* the source has no tdpd: reserved here */
        INCOMING_PLAIN,   /* no tdpd here */
        _INCOMING_MODE_MAX,
};

struct incoming {
        int fd; /* to who has asked; -1: nobody is there (any more) */
        struct args args;
        json_object *spec;
        char **argv;
        enum incoming_mode mode;
        const char *id; /* of the handoff */
        struct tdp_handoff *handoff;
        struct tdp_message *commit; /* to be delivered once all is loaded */
        bool commits;               /* it has been */
        bool post_copy;
        bool loaded;  /* QEMU has all that the guest needs to run */
        bool resumed; /* the guest runs */
        bool settled; /* and is this host's: it is a run as any other */
        uint64_t owner_since_usec, orphan_since_usec;
};

const char *incoming_mode_to_string(enum incoming_mode mode);

int incoming_open(struct incoming *in, const struct args *args);
void incoming_done(struct incoming *in);
void incoming_watch(struct incoming *in, struct progress *progress);
void incoming_ready(struct incoming *in, const struct runtime *runtime, pid_t pid, struct tdp_vm *vm);
/* What it is told then: to commit. */
void incoming_hear(struct incoming *in);
/* message: for the source, or NULL. */
void incoming_tell_committed(struct incoming *in, const struct tdp_message *message);

/* Whether the memory has the shape that the guest had: QEMU cannot be told otherwise. */
int incoming_check_parts(const struct incoming *in, const struct qemu_part *parts, size_t n_parts);
/* Memory of that shape, which is nobody's but QEMU's. */
int incoming_plain_parts(const struct incoming *in, struct qemu_part **ret, size_t *ret_n);
