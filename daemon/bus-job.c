/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bus-job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

#include "auth.h"
#include "bus-object.h"
#include "job.h"
#include "vm.h"

#define JOB_PREFIX "/org/tdpd1/job"

static int method_cancel(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        Job *j = userdata;
        Caller caller;
        int r;

        r = auth_get_job_changer(j, message, &caller, error);
        if (r != 0)
                return r;

        job_cancel(j);
        return sd_bus_reply_method_return(message, NULL);
}

static int get_string(sd_bus *bus, const char *path, const char *interface, const char *property,
                      sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        Job *j = userdata;
        const char *s;

        if (streq(property, "Type"))
                s = job_type_to_string(j->type);
        else if (streq(property, "State"))
                s = job_state_to_string(j);
        else
                s = job_phase_to_string(j->phase);
        return sd_bus_message_append(reply, "s", s);
}

static int get_vm(sd_bus *bus, const char *path, const char *interface, const char *property,
                  sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        Job *j = userdata;

        return sd_bus_message_append(reply, "o", job_vm_path(j));
}

const char *job_vm_path(const Job *j) {
        return j->vm ? j->vm->path : "/";
}

static int get_done(sd_bus *bus, const char *path, const char *interface, const char *property,
                    sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "t", job_progress(userdata));
}

static int find(sd_bus *bus, const char *path, const char *interface, void *userdata, void **ret_found,
                sd_bus_error *error) {
        uint32_t id;
        int end = 0;
        Job *j;

        if (sscanf(path, JOB_PREFIX "/%" SCNu32 "%n", &id, &end) != 1 || path[end] != '\0')
                return 0;
        j = job_find(userdata, id);
        if (!j || !streq(j->path, path))
                return 0;
        *ret_found = j;
        return 1;
}

static int enumerate(sd_bus *bus, const char *prefix, void *userdata, char ***ret_nodes,
                     sd_bus_error *error) {
        Manager *m = userdata;
        size_t n = 0;
        char **nodes;
        Job *j;
        int r;

        DL_COUNT(m->jobs, j, n);
        nodes = calloc(n + 1, sizeof(char *));
        if (!nodes)
                return -ENOMEM;
        n = 0;
        DL_FOREACH (m->jobs, j) {
                r = bus_set_path(nodes, n++, j->path);
                if (r < 0)
                        return r;
        }
        *ret_nodes = nodes;
        return 0;
}

void bus_job_added(Job *j) {
        bus_check_signal(sd_bus_emit_object_added(j->manager->bus, j->path), "InterfacesAdded");
        bus_check_signal(sd_bus_emit_signal(j->manager->bus, "/org/tdpd1", "org.tdpd1.Manager", "JobNew",
                                            "uo", j->id, j->path),
                         "JobNew");
}

void bus_job_removed(Job *j, const char *result) {
        bus_check_signal(sd_bus_emit_object_removed(j->manager->bus, j->path), "InterfacesRemoved");
        bus_check_signal(sd_bus_emit_signal(j->manager->bus, "/org/tdpd1", "org.tdpd1.Manager", "JobRemoved",
                                            "uosss", j->id, j->path, result, j->failed ? j->error.name : "",
                                            j->failed ? j->error.message : ""),
                         "JobRemoved");
}

void bus_job_changed(Job *j, const char *property) {
        bus_check_signal(sd_bus_emit_properties_changed(j->manager->bus, j->path, "org.tdpd1.Job", property,
                                                        NULL),
                         "PropertiesChanged");
}

static const sd_bus_vtable vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD("Cancel", "", "", method_cancel, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_PROPERTY("Id", "u", NULL, offsetof(Job, id), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Type", "s", get_string, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("State", "s", get_string, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("Phase", "s", get_string, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("VM", "o", get_vm, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Object", "o", NULL, offsetof(Job, object), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Done", "t", get_done, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("Total", "t", NULL, offsetof(Job, total), SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_VTABLE_END,
};

int bus_job_register(Manager *m) {
        int r;

        r = sd_bus_add_fallback_vtable(m->bus, NULL, JOB_PREFIX, "org.tdpd1.Job", vtable, find, m);
        if (r < 0)
                return r;
        return sd_bus_add_node_enumerator(m->bus, NULL, JOB_PREFIX, enumerate, m);
}
