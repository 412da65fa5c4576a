/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Handoffs: what the daemon tells by itself. */

#include <string.h>

#include "libtdp-private.h"

#define HANDOFF TDP_SERVICE ".Handoff"
#define WAITING "Waiting for a handoff"

static int on_changed(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        struct tdp_handoff *h = userdata;
        _cleanup_(tdp_value_freep) struct tdp_value *values = NULL;
        const char *interface;

        if (sd_bus_message_read(m, "s", &interface) < 0 || strcmp(interface, HANDOFF) != 0)
                return 0;
        h->changed = true;
        if (value_read_dict(m, &values) < 0 ||
            replace_string(&h->state, tdp_value_get_string(tdp_value_find(values, "State"))) < 0)
                log_debug(h->ctx, "Ignoring what a PropertiesChanged signal says");
        return 0;
}

static int watch(struct tdp_handoff *h) {
        int r;

        r = bus_connect(h->ctx);
        if (r < 0)
                return r;
        if (h->watch && sd_bus_slot_get_bus(h->watch) == h->ctx->bus)
                return 0;
        h->watch = sd_bus_slot_unref(h->watch);
        r = sd_bus_match_signal(h->ctx->bus, &h->watch, TDP_SERVICE, h->path,
                                "org.freedesktop.DBus.Properties", "PropertiesChanged", on_changed, h);
        return r < 0 ? ctx_fail(h->ctx, r, NULL, "Signals cannot be listened to: %s", strerror(-r)) : 0;
}

TDP_EXPORT int tdp_handoff_wait(struct tdp_handoff *h, uint64_t timeout_usec) {
        const bool nothing = false;
        int r;

        r = watch(h);
        if (r >= 0)
                r = bus_process_until(h->ctx, &h->changed, timeout_usec, WAITING);
        if (r >= 0) /* the last word of several */
                r = bus_process_until(h->ctx, &nothing, 0, WAITING);
        if (r < 0)
                return r;
        r = h->changed;
        h->changed = false;
        return r;
}
