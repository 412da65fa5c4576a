/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Reaching the daemon, and what to say if it cannot be reached. */

#include <string.h>
#include <systemd/sd-bus.h>

#include "cleanup.h"
#include "daemon.h"
#include "log.h"

#define UNIT         "tdpd.service"
#define PING_USEC    UINT64_C(1200000)
#define SYSTEMD_USEC UINT64_C(300000) /* two calls: all in all below two seconds */

struct unit_state {
        char *load, *active, *sub, *result;
};

static void unit_state_done(struct unit_state *s) {
        free(s->load);
        free(s->active);
        free(s->sub);
        free(s->result);
}

static void log_library(int priority, const char *file, int line, const char *func, const char *format,
                        va_list ap, void *userdata) __attribute__((format(printf, 5, 0)));
static void log_library(int priority, const char *file, int line, const char *func, const char *format,
                        va_list ap, void *userdata) {
        fprintf(stderr, "libtdp: %s: ", func);
        vfprintf(stderr, format, ap);
        fputc('\n', stderr);
}

static int unit_state_read(struct unit_state *ret) {
        static const char *const names[] = { "LoadState", "ActiveState", "SubState" };
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        char **fields[] = { &ret->load, &ret->active, &ret->sub };
        const char *path;
        int r;

        r = sd_bus_open_system(&bus);
        if (r < 0)
                return r;
        (void) sd_bus_set_method_call_timeout(bus, SYSTEMD_USEC);

        /* Not GetUnit(): that knows loaded units only. */
        r = sd_bus_call_method(bus, "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
                               "org.freedesktop.systemd1.Manager", "LoadUnit", NULL, &reply, "s", UNIT);
        if (r < 0)
                return r;
        r = sd_bus_message_read(reply, "o", &path);
        if (r < 0)
                return r;

        for (unsigned i = 0; i < ELEMENTSOF(names); i++) {
                r = sd_bus_get_property_string(bus, "org.freedesktop.systemd1", path,
                                               "org.freedesktop.systemd1.Unit", names[i], NULL, fields[i]);
                if (r < 0)
                        return r;
        }
        (void) sd_bus_get_property_string(bus, "org.freedesktop.systemd1", path,
                                          "org.freedesktop.systemd1.Service", "Result", NULL, &ret->result);
        return 0;
}

/* One sentence on the unit's state, one on what to do.  false: it does not come by itself. */
static bool explain_unit(void) {
        _cleanup_(unit_state_done) struct unit_state s = {};

        if (unit_state_read(&s) < 0) {
                (void) log_error(0,
                                 "systemd could not be asked for the state of %s. See "
                                 "\"systemctl status tdpd\".",
                                 UNIT);
                return true;
        }

        if (strcmp(s.load, "not-found") == 0)
                (void) log_error(0, "%s is not installed here. Install the package \"tdpd\".", UNIT);
        else if (strcmp(s.load, "masked") == 0)
                (void) log_error(0, "%s is masked. Allow it with \"systemctl unmask tdpd\" and start it.",
                                 UNIT);
        else if (strcmp(s.active, "failed") == 0)
                (void) log_error(0,
                                 "%s has failed (%s). See why with \"journalctl -u tdpd "
                                 "-e\", then start it with "
                                 "\"systemctl start tdpd\".",
                                 UNIT, s.result ?: "unknown result");
        else if (strcmp(s.active, "active") == 0)
                (void) log_error(0,
                                 "%s is active (%s), but does not answer on the bus. See "
                                 "\"journalctl -u tdpd -e\".",
                                 UNIT, s.sub);
        else if (strcmp(s.active, "inactive") == 0)
                (void) log_error(0, "%s is not running. Start it with \"systemctl start tdpd\".", UNIT);
        else
                (void) log_error(0,
                                 "%s is %s (%s). Try again in a moment, or see \"systemctl status tdpd\".",
                                 UNIT, s.active, s.sub);
        return strcmp(s.load, "loaded") == 0 && strcmp(s.active, "failed") != 0;
}

int daemon_failed(struct tdp_ctx *ctx, int r) {
        const char *name = tdp_error_name(ctx);

        if (name)
                (void) log_error(0, "%s (%s)", tdp_error_message(ctx), name);
        else
                (void) log_error(0, "%s", tdp_error_message(ctx));
        return r == -EHOSTDOWN || r == -ENOTCONN ? EXIT_NO_DAEMON : EXIT_FAILED;
}

static int cannot_reach(const struct args *args, struct tdp_ctx *ctx, int r) {
        (void) log_error(0, "tdpd cannot be reached: %s", tdp_error_message(ctx));
        if (args->host)
                (void) log_error(0, "See \"systemctl -H %s status tdpd\".", args->host);
        else
                (void) explain_unit();
        return r;
}

int daemon_connect(const struct args *args, struct tdp_ctx **ret) {
        struct tdp_ctx *ctx;
        int r;

        r = tdp_new(&ctx);
        if (r < 0)
                return log_error(r, "Out of memory.");

        tdp_set_log_fn(ctx, log_library, NULL);
        if (args->debug)
                tdp_set_log_priority(ctx, 7);

        r = tdp_set_host(ctx, args->host);
        /* Through SSH the way alone may take long. */
        if (r >= 0)
                r = tdp_ping(ctx, args->host ? 0 : PING_USEC);
        if (r == -ETIMEDOUT && !args->host) {
                (void) log_error(0, "tdpd has not answered yet.");
                if (!explain_unit()) {
                        tdp_unref(ctx);
                        return -EHOSTDOWN;
                }
                (void) log_error(0, "Waiting for it.");
                r = tdp_ping(ctx, 0);
        }
        if (r < 0) {
                if (r == -EACCES)
                        (void) daemon_failed(ctx, r);
                else
                        r = cannot_reach(args, ctx, r);
                tdp_unref(ctx);
                return r;
        }

        *ret = ctx;
        return 0;
}
