/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* org.freedesktop.LogControl1, as org.freedesktop.LogControl1(5) has it: "systemctl service-log-level" uses
 * it. */

#include "bus-log-control.h"

#include <errno.h>

#include "log.h"

static int get_level(sd_bus *bus, const char *path, const char *interface, const char *property,
                     sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", log_level_to_string(log_get_max_level()));
}

static int set_level(sd_bus *bus, const char *path, const char *interface, const char *property,
                     sd_bus_message *value, void *userdata, sd_bus_error *error) {
        const char *s;
        int r;

        r = sd_bus_message_read(value, "s", &s);
        if (r < 0)
                return r;
        r = log_level_from_string(s);
        if (r < 0)
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                         "\"%.80s\" is no log level: use one of emerg, alert, crit, err, "
                                         "warning, notice, info, debug",
                                         s);
        /* Told at either level, so that the log itself says why it becomes silent or loud. */
        log_info("Log level changes from %s to %s", log_level_to_string(log_get_max_level()),
                 log_level_to_string(r));
        log_set_max_level(r);
        return 0;
}

static int get_target(sd_bus *bus, const char *path, const char *interface, const char *property,
                      sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", log_target_to_string(log_get_target()));
}

static int set_target(sd_bus *bus, const char *path, const char *interface, const char *property,
                      sd_bus_message *value, void *userdata, sd_bus_error *error) {
        const char *s;
        int r;

        r = sd_bus_message_read(value, "s", &s);
        if (r < 0)
                return r;
        r = log_target_from_string(s);
        if (r < 0)
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                         "\"%.80s\" is no log target of tdpd: use console, journal or auto",
                                         s);
        r = log_set_target((LogTarget) r);
        if (r < 0)
                return sd_bus_error_set(
                                error, SD_BUS_ERROR_INVALID_ARGS,
                                "the journal does not read tdpd's standard error, so it cannot be the "
                                "target: use console, or start tdpd as a unit");
        return 0;
}

static int get_identifier(sd_bus *bus, const char *path, const char *interface, const char *property,
                          sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        /* What the journal calls lines on a unit's stderr, unless the unit says otherwise. */
        return sd_bus_message_append(reply, "s", program_invocation_short_name);
}

/* Not unprivileged: sd-bus lets only root, and the user that tdpd runs as, write. */
static const sd_bus_vtable vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_WRITABLE_PROPERTY("LogLevel", "s", get_level, set_level, 0, 0),
        SD_BUS_WRITABLE_PROPERTY("LogTarget", "s", get_target, set_target, 0, 0),
        SD_BUS_PROPERTY("SyslogIdentifier", "s", get_identifier, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_VTABLE_END,
};

int bus_log_control_register(Manager *m) {
        return sd_bus_add_object_vtable(m->bus, NULL, "/org/freedesktop/LogControl1",
                                        "org.freedesktop.LogControl1", vtable, m);
}
