/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The connection, and one way to make a call on it. */

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libtdp-private.h"

static int open_bus(struct tdp_ctx *ctx, sd_bus **ret) {
        _cleanup_(sd_bus_unrefp) sd_bus *bus = NULL;
        int r;

        if (ctx->host) {
                r = sd_bus_open_system_remote(&bus, ctx->host);
                if (r < 0)
                        return ctx_fail(ctx, r == -EINVAL ? r : -ENOTCONN, NULL,
                                        "Cannot connect to the system bus of \"%s\": %s", ctx->host,
                                        strerror(-r));
        } else if (ctx->address) {
                r = sd_bus_new(&bus);
                if (r >= 0)
                        r = sd_bus_set_address(bus, ctx->address);
                if (r >= 0)
                        r = sd_bus_set_bus_client(bus, true);
                if (r >= 0)
                        r = sd_bus_negotiate_fds(bus, true);
                if (r >= 0)
                        r = sd_bus_start(bus);
                if (r < 0)
                        return ctx_fail(ctx, r == -EINVAL ? r : -ENOTCONN, NULL,
                                        "Cannot connect to the bus at \"%s\": %s", ctx->address,
                                        strerror(-r));
        } else {
                r = sd_bus_open_system(&bus);
                if (r < 0)
                        return ctx_fail(ctx, -ENOTCONN, NULL, "Cannot connect to the system bus: %s",
                                        strerror(-r));
        }

        *ret = TAKE_PTR(bus);
        return 0;
}

int bus_connect(struct tdp_ctx *ctx) {
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;
        int r;

        if (ctx->bus && sd_bus_is_open(ctx->bus) > 0)
                return 0;
        ctx->bus = sd_bus_flush_close_unref(ctx->bus);
        free(ctx->owner);
        ctx->owner = NULL;

        r = open_bus(ctx, &bus);
        if (r < 0)
                return r;

        /*
         * Subscribed before the first call: a job's end may be told before the call that started it
         * returns. Such signals wait in the queue, which is read in tdp_job_wait() only.
         */
        r = sd_bus_match_signal(bus, NULL, TDP_SERVICE, TDP_PATH, TDP_SERVICE ".Manager", "JobRemoved",
                                job_on_removed, ctx);
        if (r >= 0)
                r = sd_bus_add_match(
                                bus, NULL,
                                "type='signal',sender='org.freedesktop.DBus',path='/org/freedesktop/DBus',"
                                "interface='org.freedesktop.DBus',member='NameOwnerChanged',"
                                "arg0='" TDP_SERVICE "'",
                                job_on_name_owner_changed, ctx);
        if (r < 0)
                return ctx_fail(ctx, -ENOTCONN, NULL, "Cannot connect to the bus%s%s: %s",
                                ctx->host ? " of " : "", ctx->host ?: "", strerror(-r));

        ctx->bus = TAKE_PTR(bus);
        return 0;
}

int bus_new_call(struct tdp_ctx *ctx, const char *path, const char *interface, const char *member,
                 sd_bus_message **ret) {
        int r;

        r = bus_connect(ctx);
        if (r < 0)
                return r;

        r = sd_bus_message_new_method_call(ctx->bus, ret, TDP_SERVICE, path, interface, member);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "Cannot make a call to %s: %s", member, strerror(-r));

        return 0;
}

/*
 * Whoever has the daemon's name is given VMs, and hands out memory.  The bus lets only root have it; we do
 * not rely on how it is configured.  Oneself is no danger to oneself, on a bus of one's own.  0 if nobody is
 * there.
 */
static int check_owner(struct tdp_ctx *ctx, const char *name) {
        _cleanup_(sd_bus_creds_unrefp) sd_bus_creds *creds = NULL;
        const char *unique;
        uid_t uid;
        int r;

        if (ctx->address) /* the program has chosen it */
                return 1;
        if (ctx->owner && strcmp(name, ctx->owner) == 0)
                return 1;
        r = sd_bus_get_name_creds(ctx->bus, name, SD_BUS_CREDS_UNIQUE_NAME | SD_BUS_CREDS_EUID, &creds);
        if (r == -ENXIO)
                return 0;
        if (r >= 0)
                r = sd_bus_creds_get_unique_name(creds, &unique);
        if (r >= 0)
                r = sd_bus_creds_get_euid(creds, &uid);
        if (r < 0)
                return ctx_fail(ctx, -EPERM, NULL,
                                "It cannot be found out whose process %s is, so it is not trusted: %s", name,
                                strerror(-r));
        if (uid != 0 && (ctx->host || uid != geteuid()))
                return ctx_fail(ctx, -EPERM, NULL,
                                "%s on the bus is a process of user %u and not of root, so it is not trusted: look "
                                "at it with \"busctl status %s\"",
                                name, uid, name);
        free(ctx->owner);
        ctx->owner = strdup(unique);
        return ctx->owner ? 1 : ctx_fail(ctx, -ENOMEM, NULL, "Out of memory");
}

static int ping(struct tdp_ctx *ctx, sd_bus_error *error) {
        return sd_bus_call_method(ctx->bus, TDP_SERVICE, TDP_PATH, "org.freedesktop.DBus.Peer", "Ping",
                                  error, NULL, NULL);
}

int bus_call_message(struct tdp_ctx *ctx, sd_bus_message *m, const char *what, sd_bus_message **ret_reply) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        int r;

        log_debug(ctx, "Calling %s.%s on %s", sd_bus_message_get_interface(m), sd_bus_message_get_member(m),
                  sd_bus_message_get_path(m));

        r = ctx->owner ? 1 : check_owner(ctx, TDP_SERVICE);
        if (r < 0)
                return r;
        /* A descriptor is not sent before it is known to whom: have it started first. */
        if (r == 0 && strchr(sd_bus_message_get_signature(m, true) ?: "", 'h')) {
                r = ping(ctx, &error);
                if (r < 0)
                        return ctx_fail_bus(ctx, r, &error, what);
                r = check_owner(ctx, TDP_SERVICE);
                if (r <= 0)
                        return r < 0 ? r : ctx_fail_bus(ctx, -EHOSTDOWN, &error, what);
        }

        r = sd_bus_call(ctx->bus, m, ctx->timeout_usec, &error, &reply);
        if (r < 0)
                return ctx_fail_bus(ctx, r, &error, what);

        /* It may be another one by now. */
        r = check_owner(ctx, sd_bus_message_get_sender(reply) ?: TDP_SERVICE);
        if (r < 0)
                return r;
        if (ret_reply)
                *ret_reply = TAKE_PTR(reply);
        return 0;
}

int bus_parse_failed(struct tdp_ctx *ctx, int r, const char *what) {
        if (r == -ENOMEM)
                return ctx_fail(ctx, r, NULL, "Out of memory");
        return ctx_fail(ctx, -EBADMSG, NULL,
                        "%s: the daemon's answer does not have the expected form; are "
                        "tdpd and libtdp of the "
                        "same version?",
                        what);
}

int bus_get_all(struct tdp_ctx *ctx, const char *path, const char *interface, struct tdp_value **ret) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        int r;

        r = bus_new_call(ctx, path, "org.freedesktop.DBus.Properties", "GetAll", &m);
        if (r < 0)
                return r;

        r = sd_bus_message_append(m, "s", interface);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "Cannot make a call to GetAll: %s", strerror(-r));

        r = bus_call_message(ctx, m, "Reading properties", &reply);
        if (r < 0)
                return r;

        r = value_read_dict(reply, ret);
        if (r < 0)
                return bus_parse_failed(ctx, r, "Reading properties");

        return 0;
}

TDP_EXPORT int tdp_ping(struct tdp_ctx *ctx, uint64_t timeout_usec) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        uint64_t saved = ctx->timeout_usec;
        int r;

        r = bus_new_call(ctx, TDP_PATH, "org.freedesktop.DBus.Peer", "Ping", &m);
        if (r < 0)
                return r;

        ctx->timeout_usec = timeout_usec;
        r = bus_call_message(ctx, m, "Asking the daemon whether it is there", NULL);
        ctx->timeout_usec = saved;
        return r;
}

static uint64_t now_usec(void) {
        struct timespec ts;

        (void) clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int bus_process_until(struct tdp_ctx *ctx, const bool *done, uint64_t timeout_usec, const char *what) {
        uint64_t deadline = now_usec() + timeout_usec;

        while (!*done) {
                uint64_t now;
                int r;

                r = sd_bus_process(ctx->bus, NULL);
                if (r < 0)
                        return ctx_fail_bus(ctx, r, NULL, what);
                if (r > 0)
                        continue;

                now = now_usec();
                if (now >= deadline)
                        return 0;
                r = sd_bus_wait(ctx->bus, deadline - now);
                if (r == -EINTR) /* let the caller see what the signal asked for */
                        return 0;
                if (r < 0)
                        return ctx_fail_bus(ctx, r, NULL, what);
        }
        return 0;
}
