/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "draining.h"

#include <errno.h>
#include <utlist.h>

#include "bus-manager.h"
#include "clock.h"
#include "drain-scan.h"
#include "format.h"
#include "log.h"
#include "queue.h"
#include "vm.h"

/* Who has it is looked for when something begins to drain, and when somebody asks and knows too old news. */
#define HOLDERS_USEC (UINT64_C(5) * 1000000)

struct Draining {
        Manager *manager;
        char *name;
        Drain *drain;
        /* What is not free yet is not free for its user either. */
        Charge charge;
        DrainPids holders;
        Draining *prev, *next;
};

static void tell_changed(Manager *m) {
        bus_manager_changed(m, "Draining");
        bus_manager_changed(m, "DrainingBytes");
}

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
        m->drain_scan = drain_scan_free(m->drain_scan);
        while (m->draining)
                draining_free(m->draining);
}

static void on_over(Drain *drain, void *userdata) {
        Draining *d = userdata;
        Manager *m = d->manager;

        log_info("VM %s: the rest of its memory is free", d->name);
        draining_free(d);
        tell_changed(m);
        queue_kick(m);
}

static void on_scanned(DrainScan *scan, void *userdata) {
        bool changed = false;
        Manager *m = userdata;
        Draining *d;

        DL_FOREACH (m->draining, d) {
                DrainPids pids = {};
                size_t n;
                const DrainFile *files = drain_files(d->drain, &n);

                for (size_t i = 0; i < n; i++)
                        drain_scan_find(scan, &files[i], &pids);
                changed = changed || memcmp(&pids, &d->holders, sizeof(pids)) != 0;
                d->holders = pids;
        }
        m->drain_scan = drain_scan_free(scan);
        /* Who asks because of that is not answered with another look, or that would never end. */
        m->drain_scan_usec = clock_usec();
        if (changed)
                tell_changed(m);
}

static int collect_files(Manager *m, DrainFile **ret, size_t *ret_n) {
        _cleanup_free_ DrainFile *all = NULL;
        size_t n_all = 0, n;
        Draining *d;

        DL_FOREACH (m->draining, d) {
                (void) drain_files(d->drain, &n);
                n_all += n;
        }
        all = calloc(n_all + 1, sizeof(*all));
        if (!all)
                return -ENOMEM;
        n_all = 0;
        DL_FOREACH (m->draining, d) {
                const DrainFile *files = drain_files(d->drain, &n);

                memcpy(all + n_all, files, n * sizeof(*files));
                n_all += n;
        }
        *ret = TAKE_PTR(all);
        *ret_n = n_all;
        return 0;
}

static void look_for_holders(Manager *m) {
        _cleanup_free_ DrainFile *files = NULL;
        size_t n = 0;
        int r;

        /* One that runs knows nothing of what came later: then the one that follows when somebody asks. */
        if (m->drain_scan || !m->draining)
                return;
        r = collect_files(m, &files, &n);
        if (r >= 0)
                r = drain_scan_start(m->event, m->options.proc_root, files, n, on_scanned, m,
                                     &m->drain_scan);
        if (r < 0)
                log_warning_errno(r, "Who has memory of released VMs cannot be looked for");
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
        look_for_holders(m);
        tell_changed(m);
        return 0;
}

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

int draining_append(Manager *m, sd_bus_message *reply) {
        Draining *d;
        int r;

        if (clock_usec() - m->drain_scan_usec > HOLDERS_USEC)
                look_for_holders(m);
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
                        if (files[i].watch < 0 || files[i].node != node)
                                continue;
                        *first = *first && (sum > 0 || &files[i] == from);
                        sum += files[i].bytes;
                }
        }
        return sum;
}

int draining_append_bytes(Manager *m, sd_bus_message *reply) {
        Draining *d;
        int r;

        r = sd_bus_message_open_container(reply, 'a', "(utt)");
        DL_FOREACH (m->draining, d) {
                uint64_t page_size = drain_page_size(d->drain);
                size_t n;
                const DrainFile *files = drain_files(d->drain, &n);

                for (size_t i = 0; i < n && r >= 0; i++) {
                        bool first;
                        uint64_t sum = files[i].watch < 0 ? 0
                                                          : sum_pool(m, &files[i], files[i].node, page_size,
                                                                     &first);

                        if (sum > 0 && first)
                                r = sd_bus_message_append(reply, "(utt)", (uint32_t) files[i].node,
                                                          page_size, sum);
                }
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}
