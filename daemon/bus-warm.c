/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bus-warm.h"

#include "warm.h"

int bus_get_warm(sd_bus *bus, const char *path, const char *interface, const char *property,
                 sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        Manager *m = userdata;
        int r;

        r = sd_bus_message_open_container(reply, 'a', "(sttiuutss)");
        for (size_t i = 0; i < m->config.warm.n && r >= 0; i++) {
                const WarmSpec *spec = &m->config.warm.specs[i];
                char text[WARM_SPEC_TEXT_MAX];
                WarmStatus s;

                warm_status(m->warm, i, &s);
                r = sd_bus_message_append(reply, "(sttiuutss)", warm_spec_format(spec, text), spec->bytes,
                                          spec->page_size, spec->has_node ? (int) spec->node : -1,
                                          spec->count, s.ready, s.filling, warm_hold_to_string(s.hold),
                                          s.text);
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

static bool same_pool(const Slab *a, const Slab *b) {
        return a->memory->page_size == b->memory->page_size &&
               a->memory->parts[0].node == b->memory->parts[0].node;
}

static const Slab *first_of_pool(const Manager *m, const Slab *s) {
        const Slab *t = warm_first(m->warm);

        while (!same_pool(t, s))
                t = t->next;
        return t;
}

/* One entry for each node and page size: whatever is zeroed, and no VM's yet. */
int bus_get_warm_bytes(sd_bus *bus, const char *path, const char *interface, const char *property,
                       sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        Manager *m = userdata;
        int r;

        r = sd_bus_message_open_container(reply, 'a', "(utt)");
        for (const Slab *s = warm_first(m->warm); s && r >= 0; s = s->next) {
                uint64_t sum = 0;

                if (first_of_pool(m, s) != s)
                        continue;
                for (const Slab *t = s; t; t = t->next)
                        sum += same_pool(s, t) ? slab_facts(t).filled : 0;
                r = sd_bus_message_append(reply, "(utt)", (uint32_t) s->memory->parts[0].node,
                                          s->memory->page_size, sum);
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

void bus_warm_changed(Manager *m) {
        if (m->bus)
                (void) sd_bus_emit_properties_changed(m->bus, "/org/tdpd1", "org.tdpd1.Manager", "Warm",
                                                      "WarmBytes", NULL);
}
