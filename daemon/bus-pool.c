/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bus-pool.h"

#include <errno.h>
#include <stdio.h>

#include "auth.h"
#include "bus-error.h"
#include "job.h"
#include "log.h"
#include "pool-resize.h"

static int read_options(sd_bus_message *message, PoolRequest *q, sd_bus_error *error) {
        int r;

        r = sd_bus_message_enter_container(message, 'a', "{sv}");
        if (r < 0)
                return r;
        while ((r = sd_bus_message_enter_container(message, 'e', "sv")) > 0) {
                const char *key, *contents, *type, *mode;
                int b;

                r = sd_bus_message_read(message, "s", &key);
                if (r < 0)
                        return r;
                type = streq(key, "mode") ? "s" : "b";
                if (!streq(key, "mode") && !streq(key, "allow-partial") && !streq(key, "drop-caches"))
                        return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                                 "option \"%.80s\" is unknown here: there are mode, "
                                                 "allow-partial, drop-caches",
                                                 key);
                r = sd_bus_message_peek_type(message, NULL, &contents);
                if (r < 0)
                        return r;
                if (!contents || !streq(contents, type))
                        return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                                 "option \"%s\" has type '%s': it must be '%s'", key,
                                                 contents ?: "?", type);
                if (streq(key, "mode")) {
                        r = sd_bus_message_read(message, "v", "s", &mode);
                        if (r < 0)
                                return r;
                        q->mode = pool_mode_from_string(mode);
                        if (q->mode < 0)
                                return sd_bus_error_setf(
                                                error, TDP_ERROR_INVALID,
                                                "mode \"%.80s\" is unknown: use set, grow or shrink", mode);
                } else {
                        r = sd_bus_message_read(message, "v", "b", &b);
                        if (r < 0)
                                return r;
                        *(streq(key, "drop-caches") ? &q->drop_caches : &q->allow_partial) = b;
                }
                r = sd_bus_message_exit_container(message);
                if (r < 0)
                        return r;
        }
        if (r < 0)
                return r;
        return sd_bus_message_exit_container(message);
}

int bus_pool_method_set(Manager *m, unsigned id, sd_bus_message *message, sd_bus_error *error) {
        PoolRequest q = { .mode = POOL_SET };
        uint64_t page_size;
        Caller caller;
        Job *j;
        int r;

        r = sd_bus_message_read(message, "tt", &page_size, &q.pages);
        if (r < 0)
                return r;
        r = read_options(message, &q, error);
        if (r < 0)
                return r;
        r = auth_get_admin(m, message, AUTH_POOLS, &caller, error);
        if (r != 0)
                return r;

        r = pools_set(m, caller.uid, id, page_size, &q, &j, error);
        if (r < 0)
                return r;
        return sd_bus_reply_method_return(message, "o", j->path);
}

int bus_pool_append_available(Manager *m, const Node *n, sd_bus_message *reply) {
        _cleanup_free_ Claim *claims = NULL;
        size_t n_claims;
        int r;

        r = manager_claims(m, &claims, &n_claims);
        if (r < 0)
                return r;
        r = sd_bus_message_open_container(reply, 'a', "(ttt)");
        for (size_t i = 0; i < n->n_pools && r >= 0; i++) {
                const Pool *p = &n->pools[i];

                r = sd_bus_message_append(reply, "(ttt)", p->page_size,
                                          placement_available(n, claims, n_claims, p->page_size) /
                                                          p->page_size,
                                          placement_set_aside(n, p, claims, n_claims));
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

int bus_pool_append_targets(Manager *m, const Node *n, sd_bus_message *reply) {
        int r;

        r = sd_bus_message_open_container(reply, 'a', "(ttts)");
        for (size_t i = 0; i < m->pools.n_targets && r >= 0; i++) {
                const PoolTarget *t = &m->pools.targets[i];

                if (t->node == n->id)
                        r = sd_bus_message_append(reply, "(ttts)", t->page_size, t->pages, t->got,
                                                  pool_target_state_to_string(t->state));
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

void bus_pools_changed(Manager *m, unsigned node) {
        char path[64];
        int r;

        snprintf(path, sizeof(path), "/org/tdpd1/node/%u", node);
        r = sd_bus_emit_properties_changed(m->bus, path, "org.tdpd1.Node", "Pools", "Available", "Targets",
                                           NULL);
        if (r < 0)
                log_warning_errno(r, "Signal PropertiesChanged cannot be sent");
}

void bus_pool_low(Manager *m, unsigned node, uint64_t page_size, uint64_t available, uint64_t total) {
        int r;

        r = sd_bus_emit_signal(m->bus, "/org/tdpd1", "org.tdpd1.Manager", "PoolLow", "uttt", node, page_size,
                               available, total);
        if (r < 0)
                log_warning_errno(r, "Signal PoolLow cannot be sent");
}
