/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <utlist.h>

#include "auth.h"
#include "bus-error.h"
#include "bus-handoff.h"
#include "cgroup.h"
#include "handoff-calls.h"
#include "refusal.h"
#include "vm.h"

/* All of these calls return a handoff and what its side says now. */
static int make_reply(sd_bus_message *message, const char *path, const uint8_t *data, size_t size,
                      sd_bus_message **ret) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        int r;

        r = sd_bus_message_new_method_return(message, &reply);
        if (r >= 0)
                r = sd_bus_message_append(reply, "o", path);
        if (r >= 0)
                r = sd_bus_message_append_array(reply, 'y', data, size);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(reply);
        return 0;
}

int bus_method_offer_handoff(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_free_ uint8_t *data = NULL;
        HandoffOptions o;
        VM *vm = userdata;
        Caller caller;
        Handoff *h;
        size_t size;
        int r;

        r = handoff_options_read(message, HANDOFF_USE_OFFER, &o, error);
        if (r < 0)
                return r;
        r = auth_get_admin(vm->manager, message, AUTH_HANDOFF, &caller, error);
        if (r != 0)
                return r;
        r = handoff_offer(vm, caller.uid, &o, &h, error);
        if (r < 0)
                return refusal_log("hand over", vm->name, caller.uid, r, error);
        r = handoff_take(h, &data, &size);
        if (r >= 0)
                r = make_reply(message, h->path, data, size, &reply);
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}

static int read_message(sd_bus_message *message, HandoffMessage *ret, sd_bus_error *error) {
        const void *data;
        size_t size;
        int r;

        r = sd_bus_message_read_array(message, 'y', &data, &size);
        return r < 0 ? r : handoff_read_message(data, size, ret, error);
}

static int reply_incoming(Handoff *h, sd_bus_message *message) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_free_ uint8_t *data = NULL;
        VM *vm = handoff_vm(h);
        size_t size = 0;
        int r;

        r = handoff_take(h, &data, &size);
        if (r >= 0)
                r = make_reply(message, h->path, data, size, &reply);
        if (r >= 0)
                r = sd_bus_message_append(reply, "o", vm && vm->job ? vm->job->path : "/");
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}

static int prepare_incoming(Manager *m, sd_bus_message *message, const HandoffMessage *offer,
                            sd_bus_error *error) {
        _cleanup_free_ char *cgroup = NULL;
        VMOptions options;
        Caller caller;
        Handoff *h;
        int r;

        r = options_read(message, OPTION_RESERVE | OPTION_INCOMING, &options, error);
        if (r < 0)
                return r;
        r = auth_get_admin(m, message, AUTH_HANDOFF, &caller, error);
        if (r != 0)
                return r;
        if (offer->type != HANDOFF_OFFER)
                return sd_bus_error_setf(
                                error, TDP_ERROR_INVALID,
                                "this is the %s of a handoff of VM \"%s\", and no offer: give it to "
                                "DeliverHandoff",
                                handoff_type_to_string(offer->type), offer->vm);
        if (!options.cgroup && caller.pid > 0 && cgroup_of_process(caller.pid, &cgroup) >= 0)
                options.cgroup = cgroup;
        options.pid = caller.pid;
        r = handoff_prepare(m, caller.uid, offer, &options, &h, error);
        if (r < 0)
                return refusal_log("prepare for", offer->vm, caller.uid, r, error);
        return reply_incoming(h, message);
}

int bus_method_prepare_incoming(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        HandoffMessage offer;
        int r;

        r = read_message(message, &offer, error);
        if (r < 0)
                return r;
        r = prepare_incoming(userdata, message, &offer, error);
        handoff_message_done(&offer);
        return r;
}

static int deliver(Manager *m, sd_bus_message *message, const HandoffMessage *delivered,
                   sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_free_ uint8_t *data = NULL;
        Caller caller;
        size_t size;
        Handoff *h;
        int r;

        r = auth_get_admin(m, message, AUTH_HANDOFF, &caller, error);
        if (r != 0)
                return r;
        r = handoff_deliver(m, delivered, &h, &data, &size, error);
        if (r >= 0)
                r = make_reply(message, h ? h->path : "/", data, size, &reply);
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}

int bus_method_deliver_handoff(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        HandoffMessage delivered;
        int r;

        r = read_message(message, &delivered, error);
        if (r < 0)
                return r;
        r = deliver(userdata, message, &delivered, error);
        handoff_message_done(&delivered);
        return r;
}

int bus_method_list_handoffs(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        Manager *m = userdata;
        Handoff *h;
        int r;

        r = sd_bus_message_new_method_return(message, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(ossss)");
        DL_FOREACH (m->handoffs->list, h) {
                if (r < 0)
                        return r;
                r = sd_bus_message_append(reply, "(ossss)", h->path, h->id, h->r.vm,
                                          handoff_role_to_string(h->r.side),
                                          handoff_state_to_string(h->r.state));
        }
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}

int bus_get_vm_handoff(sd_bus *bus, const char *path, const char *interface, const char *property,
                       sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Handoff *h = handoff_find_by_vm(userdata, HANDOFF_SOURCE);

        if (!h)
                h = handoff_find_by_vm(userdata, HANDOFF_DESTINATION);
        return sd_bus_message_append(reply, "o", h ? h->path : "/");
}
