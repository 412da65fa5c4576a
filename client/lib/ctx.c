/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The context: references, where to connect, logging, and the last failure. */

#include <stdarg.h>
#include <string.h>

#include "libtdp-private.h"

static const struct {
        const char *name;
        int error;
} error_table[] = {
        { TDP_ERROR_PREFIX "InvalidArgument", EINVAL },
        { TDP_ERROR_PREFIX "NoSuchVM", ENOENT },
        { TDP_ERROR_PREFIX "NoSuchJob", ENOENT },
        { TDP_ERROR_PREFIX "NoSuchNode", ENOENT },
        { TDP_ERROR_PREFIX "NoSuchHandoff", ENOENT },
        { TDP_ERROR_PREFIX "NameTaken", EEXIST },
        { TDP_ERROR_PREFIX "NoPages", ENOMEM },
        { TDP_ERROR_PREFIX "Partial", ENOSPC },
        { TDP_ERROR_PREFIX "NotPermitted", EACCES },
        { TDP_ERROR_PREFIX "Unsupported", EOPNOTSUPP },
        { TDP_ERROR_PREFIX "Busy", EBUSY },
        { TDP_ERROR_PREFIX "NoSuchProcess", ESRCH },
        { TDP_ERROR_PREFIX "NotVMM", EMEDIUMTYPE },
        { TDP_ERROR_PREFIX "SeveralVMs", ENOTUNIQ },
        { TDP_ERROR_PREFIX "LimitExceeded", EDQUOT },
        { TDP_ERROR_PREFIX "InvalidConfig", EBADMSG },
        { TDP_ERROR_PREFIX "Stale", ESTALE },
        { TDP_ERROR_PREFIX "BadMessage", EBADMSG },
        { TDP_ERROR_PREFIX "TooNew", EPROTONOSUPPORT },
        { TDP_ERROR_PREFIX "Mismatch", EREMCHG },
        { TDP_ERROR_PREFIX "TooEarly", EINPROGRESS },
        { TDP_ERROR_PREFIX "TooLate", EALREADY },
        { TDP_ERROR_PREFIX "Expired", ETIME },
        { TDP_ERROR_PREFIX "Canceled", ECANCELED },
        { TDP_ERROR_PREFIX "Failed", EIO },
        { SD_BUS_ERROR_SERVICE_UNKNOWN, EHOSTDOWN },
        { SD_BUS_ERROR_NAME_HAS_NO_OWNER, EHOSTDOWN },
        { "org.freedesktop.DBus.Error.Spawn.ChildExited", EHOSTDOWN },
        { "org.freedesktop.DBus.Error.Spawn.ChildSignaled", EHOSTDOWN },
        { "org.freedesktop.DBus.Error.Spawn.Failed", EHOSTDOWN },
        { "org.freedesktop.DBus.Error.Spawn.ExecFailed", EHOSTDOWN },
        { "org.freedesktop.systemd1.NoSuchUnit", EHOSTDOWN },
        { "org.freedesktop.systemd1.UnitMasked", EHOSTDOWN },
        { SD_BUS_ERROR_NO_REPLY, EHOSTDOWN }, /* the peer left the bus before it answered */
        { SD_BUS_ERROR_TIMEOUT, ETIMEDOUT },
        { SD_BUS_ERROR_ACCESS_DENIED, EACCES },
        { SD_BUS_ERROR_UNKNOWN_OBJECT, ENOENT },
        { SD_BUS_ERROR_UNKNOWN_METHOD, EOPNOTSUPP },
};

int error_name_to_errno(const char *name) {
        for (size_t i = 0; name && i < ELEMENTSOF(error_table); i++)
                if (strcmp(error_table[i].name, name) == 0)
                        return -error_table[i].error;
        return 0;
}

TDP_EXPORT int tdp_new(struct tdp_ctx **ret_ctx) {
        struct tdp_ctx *ctx;

        ctx = calloc(1, sizeof(*ctx));
        if (!ctx)
                return -ENOMEM;

        ctx->n_ref = 1;
        ctx->log_priority = LOG_WARNING;
        *ret_ctx = ctx;
        return 0;
}

TDP_EXPORT struct tdp_ctx *tdp_ref(struct tdp_ctx *ctx) {
        if (ctx)
                ctx->n_ref++;
        return ctx;
}

TDP_EXPORT struct tdp_ctx *tdp_unref(struct tdp_ctx *ctx) {
        if (!ctx || --ctx->n_ref > 0)
                return NULL;

        /* VMs and jobs hold references, so none is left here. */
        sd_bus_flush_close_unref(ctx->bus);
        free(ctx->address);
        free(ctx->host);
        free(ctx->owner);
        free(ctx->error_name);
        free(ctx->error_message);
        free(ctx);
        return NULL;
}

static int set_target(struct tdp_ctx *ctx, char **field, const char *value) {
        char *copy = NULL;

        if (ctx->bus)
                return ctx_fail(ctx, -EISCONN, NULL, "The address cannot be changed after the first call");
        if (value) {
                copy = strdup(value);
                if (!copy)
                        return -ENOMEM;
        }
        free(*field);
        *field = copy;
        return 0;
}

TDP_EXPORT int tdp_set_address(struct tdp_ctx *ctx, const char *address) {
        return set_target(ctx, &ctx->address, address);
}

TDP_EXPORT int tdp_set_host(struct tdp_ctx *ctx, const char *host) {
        return set_target(ctx, &ctx->host, host);
}

TDP_EXPORT int tdp_set_timeout(struct tdp_ctx *ctx, uint64_t usec) {
        ctx->timeout_usec = usec;
        return 0;
}

TDP_EXPORT void tdp_set_log_fn(struct tdp_ctx *ctx, tdp_log_fn_t fn, void *userdata) {
        ctx->log_fn = fn;
        ctx->log_userdata = userdata;
}

TDP_EXPORT void tdp_set_log_priority(struct tdp_ctx *ctx, int priority) {
        ctx->log_priority = priority;
}

TDP_EXPORT const char *tdp_error_name(const struct tdp_ctx *ctx) {
        return ctx->error_name;
}

TDP_EXPORT const char *tdp_error_message(const struct tdp_ctx *ctx) {
        return ctx->error_message ?: "No error";
}

void ctx_log(struct tdp_ctx *ctx, int priority, const char *file, int line, const char *func,
             const char *format, ...) {
        va_list ap;

        if (!ctx->log_fn || priority > ctx->log_priority)
                return;

        va_start(ap, format);
        ctx->log_fn(priority, file, line, func, format, ap, ctx->log_userdata);
        va_end(ap);
}

static void set_error(struct tdp_ctx *ctx, const char *name, char *message) {
        char *name_copy = name ? strdup(name) : NULL;

        free(ctx->error_name);
        free(ctx->error_message);
        ctx->error_name = name_copy;
        ctx->error_message = message;
        log_debug(ctx, "%s: %s", name ?: "Failed", message ?: "Out of memory");
}

int ctx_fail(struct tdp_ctx *ctx, int r, const char *name, const char *format, ...) {
        char *message = NULL;
        va_list ap;

        va_start(ap, format);
        if (vasprintf(&message, format, ap) < 0)
                message = NULL;
        va_end(ap);

        set_error(ctx, name, message);
        return r;
}

int ctx_fail_bus(struct tdp_ctx *ctx, int r, const sd_bus_error *error, const char *what) {
        int mapped;

        if (!sd_bus_error_is_set(error)) {
                /* No answer from a peer, but a failure on our side of the connection. */
                if (r == -ECONNRESET || r == -ENOTCONN || r == -ESHUTDOWN)
                        return ctx_fail(ctx, -ENOTCONN, NULL, "%s: the connection to the bus is closed",
                                        what);
                return ctx_fail(ctx, r, NULL, "%s: %s", what, strerror(-r));
        }

        mapped = error_name_to_errno(error->name);
        if (mapped == 0)
                mapped = -sd_bus_error_get_errno(error);

        return ctx_fail(ctx, mapped, error->name, "%s", error->message ?: error->name);
}
