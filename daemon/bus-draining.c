/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bus-draining.h"

#include <utlist.h>

#include "draining.h"

static int append_one(const Draining *d, sd_bus_message *reply) {
        uint32_t pids[DRAIN_PIDS_MAX];
        int r;

        for (size_t i = 0; i < d->holders.n; i++)
                pids[i] = (uint32_t) d->holders.pids[i];
        r = sd_bus_message_open_container(reply, 'r', "stau");
        if (r >= 0)
                r = sd_bus_message_append(reply, "st", d->name, drain_bytes(d->drain));
        if (r >= 0)
                r = sd_bus_message_append_array(reply, 'u', pids, d->holders.n * sizeof(pids[0]));
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

int bus_get_draining(sd_bus *bus, const char *path, const char *interface, const char *property,
                     sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        Manager *m = userdata;
        Draining *d;
        int r;

        draining_look(m);
        r = sd_bus_message_open_container(reply, 'a', "(stau)");
        DL_FOREACH (m->draining, d) {
                if (r >= 0)
                        r = append_one(d, reply);
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

/* Of one pool, from this file on; "first": none before it is of that pool. */
static uint64_t sum_pool(Manager *m, const DrainFile *from, unsigned node, uint64_t page_size, bool *first) {
        uint64_t sum = 0;
        Draining *d;

        *first = true;
        DL_FOREACH (m->draining, d) {
                size_t n;
                const DrainFile *files = drain_files(d->drain, &n);

                for (size_t i = 0; i < n && drain_page_size(d->drain) == page_size; i++) {
                        if (files[i].gone || files[i].node != node)
                                continue;
                        *first = *first && (sum > 0 || &files[i] == from);
                        sum += files[i].bytes;
                }
        }
        return sum;
}

int bus_get_draining_bytes(sd_bus *bus, const char *path, const char *interface, const char *property,
                           sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        Manager *m = userdata;
        Draining *d;
        int r;

        r = sd_bus_message_open_container(reply, 'a', "(utt)");
        DL_FOREACH (m->draining, d) {
                uint64_t page_size = drain_page_size(d->drain);
                size_t n;
                const DrainFile *files = drain_files(d->drain, &n);

                for (size_t i = 0; i < n && r >= 0; i++) {
                        bool first;
                        uint64_t sum = files[i].gone ? 0
                                                     : sum_pool(m, &files[i], files[i].node, page_size,
                                                                &first);

                        if (sum > 0 && first)
                                r = sd_bus_message_append(reply, "(utt)", (uint32_t) files[i].node,
                                                          page_size, sum);
                }
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}
