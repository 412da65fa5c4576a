/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the library's files share. Nothing of this is exported. */

#include <syslog.h>
#include <systemd/sd-bus.h>

#include "cleanup.h"
#include "tdp/tdp.h"

#define TDP_EXPORT __attribute__((visibility("default")))

#define TDP_SERVICE      "org.tdpd1"
#define TDP_PATH         "/org/tdpd1"
#define TDP_ERROR_PREFIX "org.tdpd1.Error."

struct tdp_ctx {
        unsigned n_ref;
        sd_bus *bus;
        char *address, *host;
        char *owner; /* unique name of the daemon, known to be trusted */
        uint64_t timeout_usec;

        struct tdp_job *jobs; /* those to which a JobRemoved signal may apply */

        char *error_name;
        char *error_message;

        tdp_log_fn_t log_fn;
        void *log_userdata;
        int log_priority;
};

struct tdp_value {
        char *key;
        enum tdp_value_type type;
        union {
                bool b;
                uint64_t u;
                int64_t i;
                double d;
                char *s;
                struct tdp_value *first;
        };
        struct tdp_value *next;
};

struct tdp_vm {
        struct tdp_ctx *ctx;
        char *name, *path, *state;
        uint32_t pid;
        uint64_t bytes;
        struct tdp_value *properties;
        struct tdp_vm *next;
};

struct tdp_job {
        struct tdp_ctx *ctx;
        uint32_t id;
        char *path, *type, *state, *vm_name;
        struct tdp_value *properties;
        bool ended;
        char *result, *error_name, *error_message; /* when ended */
        struct tdp_job *next;                      /* in a list from tdp_list_jobs() */
        struct tdp_job *ctx_next, **ctx_prevp;     /* in ctx->jobs */
};

struct tdp_message {
        size_t size;
        unsigned char data[];
};

struct tdp_handoff {
        struct tdp_ctx *ctx;
        char *path, *id, *vm_name, *role, *state;
        struct tdp_value *properties;
        sd_bus_slot *watch; /* of a connection that may be closed by now */
        bool changed;       /* told since the last look */
        struct tdp_handoff *next;
};

DEFINE_CLEANUP_FUNC(struct tdp_ctx *, tdp_unref);
DEFINE_CLEANUP_FUNC(struct tdp_value *, tdp_value_free);
DEFINE_CLEANUP_FUNC(struct tdp_vm *, tdp_vm_free);
DEFINE_CLEANUP_FUNC(struct tdp_job *, tdp_job_free);
DEFINE_CLEANUP_FUNC(struct tdp_node *, tdp_node_free);
DEFINE_CLEANUP_FUNC(struct tdp_memory *, tdp_memory_free);
DEFINE_CLEANUP_FUNC(struct tdp_plan *, tdp_plan_free);
DEFINE_CLEANUP_FUNC(struct tdp_handoff *, tdp_handoff_free);
DEFINE_CLEANUP_FUNC(struct tdp_message *, tdp_message_free);

/* ctx.c: log, and remember a failure. ctx_fail() returns r, so that it can be returned. */
void ctx_log(struct tdp_ctx *ctx, int priority, const char *file, int line, const char *func,
             const char *format, ...) _printf_(6, 7);
int ctx_fail(struct tdp_ctx *ctx, int r, const char *name, const char *format, ...) _printf_(4, 5);
int ctx_fail_bus(struct tdp_ctx *ctx, int r, const sd_bus_error *error, const char *what);
int error_name_to_errno(const char *name);

#define log_debug(ctx, ...) ctx_log(ctx, LOG_DEBUG, __FILE__, __LINE__, __func__, __VA_ARGS__)

/* bus.c */
int bus_connect(struct tdp_ctx *ctx);
int bus_call_message(struct tdp_ctx *ctx, sd_bus_message *m, const char *what, sd_bus_message **ret_reply);
int bus_new_call(struct tdp_ctx *ctx, const char *path, const char *interface, const char *member,
                 sd_bus_message **ret);
int bus_get_all(struct tdp_ctx *ctx, const char *path, const char *interface, struct tdp_value **ret);
/* Handles what arrives, so long, or until done is set by it. */
int bus_process_until(struct tdp_ctx *ctx, const bool *done, uint64_t timeout_usec, const char *what);
int bus_parse_failed(struct tdp_ctx *ctx, int r, const char *what);

/* value.c */
int value_read_dict(sd_bus_message *m, struct tdp_value **ret); /* a{sv} */
int value_read(sd_bus_message *m, struct tdp_value **ret);      /* one complete type */

int replace_string(char **field, const char *value); /* no value: left as it is */

/* options.c */
int options_append(const struct tdp_options *options, sd_bus_message *m, const char *name,
                   const uint64_t *bytes);

/* vm.c, job.c */
int vm_new(struct tdp_ctx *ctx, const char *name, const char *path, struct tdp_vm **ret);
int job_new(struct tdp_ctx *ctx, uint32_t id, const char *path, const char *type, const char *vm_path,
            struct tdp_job **ret);
int job_new_from_path(struct tdp_ctx *ctx, const char *path, const char *type, const char *vm_path,
                      struct tdp_job **ret);
int job_on_removed(sd_bus_message *m, void *userdata, sd_bus_error *ret_error);
int job_on_name_owner_changed(sd_bus_message *m, void *userdata, sd_bus_error *ret_error);
