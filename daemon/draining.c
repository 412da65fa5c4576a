/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "draining.h"

#include <errno.h>
#include <utlist.h>

#include "bus-manager.h"
#include "drain.h"
#include "format.h"
#include "log.h"
#include "vm.h"

struct Draining {
        Manager *manager;
        char *name;
        Drain *drain;
        /* What is not free yet is not free for its user either. */
        Charge charge;
        Draining *prev, *next;
};

static void draining_free(Draining *d) {
        if (!d)
                return;
        if (d->manager)
                DL_DELETE(d->manager->draining, d);
        drain_free(d->drain);
        charge_return(&d->charge);
        free(d->name);
        free(d);
}

void draining_done(Manager *m) {
        while (m->draining)
                draining_free(m->draining);
}

static void on_over(Drain *drain, void *userdata) {
        Draining *d = userdata;
        Manager *m = d->manager;

        log_info("VM %s: the rest of its memory is free", d->name);
        draining_free(d);
        bus_manager_changed(m, "Draining");
}

int draining_add(VM *vm) {
        Manager *m = vm->manager;
        Draining *d;
        int r;

        d = calloc(1, sizeof(*d));
        if (!d)
                return -ENOMEM;
        d->name = strdup(vm->name);
        r = d->name ? drain_watch(vm->drain, m->event, on_over, d) : -ENOMEM;
        if (r < 0) {
                draining_free(d);
                return r;
        }
        d->drain = TAKE_PTR(vm->drain);
        d->charge = vm->charge;
        vm->charge = (Charge){};
        (void) charge_set(&d->charge, &(Amounts){ .vms = 1, .bytes = drain_bytes(d->drain) }, NULL);
        d->manager = m;
        DL_APPEND(m->draining, d);
        bus_manager_changed(m, "Draining");
        return 0;
}

int draining_append(Manager *m, sd_bus_message *reply) {
        Draining *d;
        int r;

        r = sd_bus_message_open_container(reply, 'a', "(stau)");
        DL_FOREACH (m->draining, d) {
                if (r >= 0)
                        r = sd_bus_message_append(reply, "(stau)", d->name, drain_bytes(d->drain), 0);
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}
