/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A stand-in for systemd's manager, which tells of one unit: fake-systemd LOAD-STATE ACTIVE-STATE SUB-STATE
 * RESULT [ERROR].  A request to start it gets this error, or no answer. */

#include <stdio.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

#define UNIT_PATH "/org/freedesktop/systemd1/unit/tdpd_2eservice"

static int load_unit(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name;
        int r;

        r = sd_bus_message_read(m, "s", &name);
        if (r < 0)
                return r;
        if (strcmp(name, "tdpd.service") != 0)
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS, "Unit %s is not the one", name);
        return sd_bus_reply_method_return(m, "o", UNIT_PATH);
}

static int property(sd_bus *bus, const char *path, const char *interface, const char *name,
                    sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        static const char *const names[] = { "LoadState", "ActiveState", "SubState", "Result" };
        char **values = userdata;

        for (unsigned i = 0; i < 4; i++)
                if (strcmp(names[i], name) == 0)
                        return sd_bus_message_append(reply, "s", values[i]);
        return -1;
}

static const sd_bus_vtable manager_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD("LoadUnit", "s", "o", load_unit, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_VTABLE_END,
};

static const sd_bus_vtable unit_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("LoadState", "s", property, 0, 0),
        SD_BUS_PROPERTY("ActiveState", "s", property, 0, 0),
        SD_BUS_PROPERTY("SubState", "s", property, 0, 0),
        SD_BUS_VTABLE_END,
};

static const sd_bus_vtable service_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("Result", "s", property, 0, 0),
        SD_BUS_VTABLE_END,
};

static int on_request(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *unit, *name = userdata;
        sd_bus_message *failure = NULL;
        int r;

        r = sd_bus_message_read(m, "s", &unit);
        if (r < 0 || !name)
                return r;
        r = sd_bus_message_new_signal(sd_bus_message_get_bus(m), &failure, "/org/freedesktop/systemd1",
                                      "org.freedesktop.systemd1.Activator", "ActivationFailure");
        if (r < 0)
                return r;
        r = sd_bus_message_append(failure, "sss", unit, name, "It cannot be started.");
        if (r < 0)
                return r;
        r = sd_bus_send_to(NULL, failure, "org.freedesktop.DBus", NULL);
        sd_bus_message_unref(failure);
        return r;
}

int main(int argc, char **argv) {
        sd_bus *bus = NULL;
        sd_event *event = NULL;

        if (argc < 5 || argc > 6 || sd_event_default(&event) < 0 || sd_bus_open_system(&bus) < 0 ||
            sd_bus_attach_event(bus, event, 0) < 0 ||
            sd_bus_add_object_vtable(bus, NULL, "/org/freedesktop/systemd1",
                                     "org.freedesktop.systemd1.Manager", manager_vtable, NULL) < 0 ||
            sd_bus_add_object_vtable(bus, NULL, UNIT_PATH, "org.freedesktop.systemd1.Unit", unit_vtable,
                                     argv + 1) < 0 ||
            sd_bus_add_object_vtable(bus, NULL, UNIT_PATH, "org.freedesktop.systemd1.Service",
                                     service_vtable, argv + 1) < 0 ||
            sd_bus_match_signal(bus, NULL, "org.freedesktop.DBus", NULL,
                                "org.freedesktop.systemd1.Activator", "ActivationRequest", on_request,
                                argc == 6 ? argv[5] : NULL) < 0 ||
            sd_bus_request_name(bus, "org.freedesktop.systemd1", 0) < 0) {
                fprintf(stderr, "fake-systemd: cannot start\n");
                return 1;
        }
        return sd_event_loop(event) < 0;
}
