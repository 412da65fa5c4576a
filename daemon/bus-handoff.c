/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bus-handoff.h"

#include <errno.h>
#include <stdio.h>
#include <utlist.h>

#include "auth.h"
#include "bus-error.h"
#include "bus-object.h"
#include "handoff-calls.h"
#include "handoff-error.h"
#include "vm.h"

static int authorise(Handoff *h, sd_bus_message *message, sd_bus_error *error) {
        Caller caller;

        return auth_get_admin(h->manager, message, AUTH_HANDOFF, &caller, error);
}

/* What there is to be said: for methods of which it is the result. */
static int reply_with_message(Handoff *h, sd_bus_message *message) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_free_ uint8_t *data = NULL;
        size_t size;
        int r;

        r = handoff_take(h, &data, &size);
        if (r >= 0)
                r = sd_bus_message_new_method_return(message, &reply);
        if (r >= 0)
                r = sd_bus_message_append_array(reply, 'y', data, size);
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}

static int method_next(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        int r = authorise(userdata, message, error);

        return r != 0 ? r : reply_with_message(userdata, message);
}

static int method_start(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        HandoffOptions o;
        int r;

        r = handoff_options_read(message, HANDOFF_USE_START, &o, error);
        if (r < 0)
                return r;
        r = authorise(userdata, message, error);
        if (r != 0)
                return r;
        r = handoff_start(userdata, &o, error);
        return r < 0 ? r : reply_with_message(userdata, message);
}

static int method_commit(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        HandoffOptions o;
        int r;

        r = handoff_options_read(message, HANDOFF_USE_COMMIT, &o, error);
        if (r < 0)
                return r;
        r = authorise(userdata, message, error);
        if (r != 0)
                return r;
        r = handoff_commit(userdata, &o, error);
        return r < 0 ? r : reply_with_message(userdata, message);
}

/* Calls that bring nothing, or the reason of an abort. */
static int happen(Handoff *h, sd_bus_message *message, HandoffEvent e, const HandoffMessage *body,
                  sd_bus_error *error) {
        HandoffStep step;
        int r;

        r = authorise(h, message, error);
        if (r != 0)
                return r;
        r = handoff_event(h, e, body, &step, error);
        return r < 0 ? r : sd_bus_reply_method_return(message, NULL);
}

static int method_arrived(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        Handoff *h = userdata;

        /* The table takes what is too early for a defect: it has no call for this. */
        if (h->r.side == HANDOFF_DESTINATION && h->r.state < HANDOFF_D_TAKEN)
                return handoff_refuse(h, HANDOFF_TOO_EARLY, error);
        return happen(h, message, HANDOFF_ARRIVED, NULL, error);
}

static int method_cancel(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        HandoffMessage why;
        const char *text;
        int r;

        r = sd_bus_message_read(message, "s", &text);
        if (r < 0)
                return r;
        handoff_set_abort(&why, HANDOFF_REASON_CANCELED, "%s", *text ? text : "canceled by a call");
        return happen(userdata, message, HANDOFF_CALL_CANCEL, &why, error);
}

static int method_forget(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        Handoff *h = userdata;
        HandoffStep step = handoff_next(h->r.state, HANDOFF_FORGET);
        int r;

        r = authorise(h, message, error);
        if (r != 0)
                return r;
        if (step.refusal != HANDOFF_ACCEPTED)
                return handoff_refuse(h, step.refusal, error);
        r = sd_bus_reply_method_return(message, NULL);
        handoff_drop(h);
        return r;
}

static int get_text(sd_bus *bus, const char *path, const char *interface, const char *property,
                    sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Handoff *h = userdata;
        bool off = h->r.abort.reason != 0;
        const char *s = "";

        if (streq(property, "VM"))
                s = h->r.vm;
        else if (streq(property, "Role"))
                s = handoff_role_to_string(h->r.side);
        else if (streq(property, "State"))
                s = handoff_state_to_string(h->r.state);
        else if (streq(property, "Reason") && off)
                s = handoff_reason_to_string(h->r.abort.reason);
        else if (streq(property, "Text") && off)
                s = h->r.abort.text;
        else if (streq(property, "Error") && off)
                s = handoff_reason_error(h->r.abort.reason);
        return sd_bus_message_append(reply, "s", s);
}

static int get_id(sd_bus *bus, const char *path, const char *interface, const char *property,
                  sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", ((Handoff *) userdata)->id);
}

static int get_object(sd_bus *bus, const char *path, const char *interface, const char *property,
                      sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        VM *vm = handoff_vm(userdata);

        if (streq(property, "Job"))
                return sd_bus_message_append(reply, "o", vm && vm->job ? vm->job->path : "/");
        return sd_bus_message_append(reply, "o", vm ? vm->path : "/");
}

/* "Mode" is what the VM has on this host, "PeerMode" on the other one: "" if that is not known. */
static int get_mode(sd_bus *bus, const char *path, const char *interface, const char *property,
                    sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Handoff *h = userdata;
        bool of_source = (h->r.side == HANDOFF_SOURCE) == streq(property, "Mode");
        HandoffMode mode = of_source ? h->r.offer.mode : h->r.answer.mode;

        return sd_bus_message_append(reply, "s", mode ? handoff_mode_to_string(mode) : "");
}

static int get_number(sd_bus *bus, const char *path, const char *interface, const char *property,
                      sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Handoff *h = userdata;
        bool ends = handoff_next(h->r.state, HANDOFF_DEADLINE).next != h->r.state;
        uint64_t n = 0;

        if (streq(property, "Bytes"))
                n = h->r.answer.page_size > 0 ? h->r.answer.bytes : h->r.offer.bytes;
        else if (streq(property, "PageSize"))
                n = h->r.answer.page_size;
        else if (streq(property, "BytesLeft"))
                n = h->r.state == HANDOFF_S_SERVING || h->r.state == HANDOFF_D_TAKEN
                                    ? h->r.complete.bytes_left
                                    : 0;
        else if (streq(property, "Holes"))
                n = h->r.complete.holes;
        else if (streq(property, "ReleasedBytes"))
                n = h->r.released_bytes;
        else if (ends)
                n = handoff_time_left(h);
        return sd_bus_message_append(reply, "t", n);
}

static int get_pending(sd_bus *bus, const char *path, const char *interface, const char *property,
                       sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Handoff *h = userdata;

        return sd_bus_message_append(reply, "u", (uint32_t) (h->pending != HANDOFF_SEND_NONE));
}

static int find(sd_bus *bus, const char *path, const char *interface, void *userdata, void **ret_found,
                sd_bus_error *error) {
        Manager *m = userdata;
        Handoff *h;

        DL_FOREACH (m->handoffs->list, h)
                if (streq(h->path, path)) {
                        *ret_found = h;
                        return 1;
                }
        return 0;
}

static int enumerate(sd_bus *bus, const char *prefix, void *userdata, char ***ret_nodes,
                     sd_bus_error *error) {
        Manager *m = userdata;
        size_t n = 0;
        char **nodes;
        Handoff *h;

        DL_COUNT(m->handoffs->list, h, n);
        nodes = calloc(n + 1, sizeof(char *));
        if (!nodes)
                return -ENOMEM;
        n = 0;
        DL_FOREACH (m->handoffs->list, h)
                if (bus_set_path(nodes, n++, h->path) < 0)
                        return -ENOMEM;
        *ret_nodes = nodes;
        return 0;
}

static void tell_manager(Handoff *h, const char *signal) {
        bus_check_signal(sd_bus_emit_signal(h->manager->bus, "/org/tdpd1", "org.tdpd1.Manager", signal, "so",
                                            h->key, h->path),
                         signal);
}

static void tell_vm(Handoff *h) {
        VM *vm = handoff_vm(h);

        if (vm)
                bus_check_signal(sd_bus_emit_properties_changed(h->manager->bus, vm->path, "org.tdpd1.VM",
                                                                "Handoff", NULL),
                                 "PropertiesChanged");
}

void bus_handoff_added(Handoff *h) {
        h->told = true;
        bus_check_signal(sd_bus_emit_object_added(h->manager->bus, h->path), "InterfacesAdded");
        tell_manager(h, "HandoffNew");
        tell_vm(h);
}

void bus_handoff_removed(Handoff *h) {
        bus_check_signal(sd_bus_emit_object_removed(h->manager->bus, h->path), "InterfacesRemoved");
        tell_manager(h, "HandoffRemoved");
        tell_vm(h);
}

void bus_handoff_changed(Handoff *h) {
        if (!h->told)
                return;
        bus_check_signal(sd_bus_emit_properties_changed(h->manager->bus, h->path, "org.tdpd1.Handoff",
                                                        "State", "Pending", "VMObject", NULL),
                         "PropertiesChanged");
        if (handoff_state_is_final(h->r.state))
                tell_vm(h);
}

#define CONST   SD_BUS_VTABLE_PROPERTY_CONST
#define CHANGES SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE

static const sd_bus_vtable vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD_WITH_ARGS("Next", SD_BUS_NO_ARGS, SD_BUS_RESULT("ay", message), method_next,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Start", SD_BUS_ARGS("a{sv}", options), SD_BUS_RESULT("ay", start),
                                method_start, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Commit", SD_BUS_ARGS("a{sv}", options), SD_BUS_RESULT("ay", commit),
                                method_commit, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("Arrived", "", "", method_arrived, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Cancel", SD_BUS_ARGS("s", text), SD_BUS_NO_RESULT, method_cancel,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("Forget", "", "", method_forget, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_PROPERTY("Id", "s", get_id, 0, CONST),
        SD_BUS_PROPERTY("VM", "s", get_text, 0, CONST),
        SD_BUS_PROPERTY("VMObject", "o", get_object, 0, CHANGES),
        SD_BUS_PROPERTY("Job", "o", get_object, 0, 0),
        SD_BUS_PROPERTY("Role", "s", get_text, 0, CONST),
        SD_BUS_PROPERTY("State", "s", get_text, 0, CHANGES),
        SD_BUS_PROPERTY("Pending", "u", get_pending, 0, CHANGES),
        SD_BUS_PROPERTY("Uid", "u", NULL, offsetof(Handoff, r.uid), CONST),
        SD_BUS_PROPERTY("Mode", "s", get_mode, 0, 0),
        SD_BUS_PROPERTY("PeerMode", "s", get_mode, 0, 0),
        SD_BUS_PROPERTY("Generation", "t", NULL, offsetof(Handoff, r.generation), CONST),
        SD_BUS_PROPERTY("Bytes", "t", get_number, 0, 0),
        SD_BUS_PROPERTY("PageSize", "t", get_number, 0, 0),
        SD_BUS_PROPERTY("BytesLeft", "t", get_number, 0, 0),
        SD_BUS_PROPERTY("Holes", "t", get_number, 0, 0),
        SD_BUS_PROPERTY("ReleasedBytes", "t", get_number, 0, 0),
        SD_BUS_PROPERTY("DeadlineUSec", "t", get_number, 0, 0),
        SD_BUS_PROPERTY("Reason", "s", get_text, 0, 0),
        SD_BUS_PROPERTY("Text", "s", get_text, 0, 0),
        SD_BUS_PROPERTY("Error", "s", get_text, 0, 0),
        SD_BUS_VTABLE_END,
};

int bus_handoff_register(Manager *m) {
        int r;

        r = sd_bus_add_fallback_vtable(m->bus, NULL, HANDOFF_PREFIX, "org.tdpd1.Handoff", vtable, find, m);
        if (r < 0)
                return r;
        return sd_bus_add_node_enumerator(m->bus, NULL, HANDOFF_PREFIX, enumerate, m);
}
