/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "draining.h"

#include <errno.h>
#include <sys/stat.h>
#include <utlist.h>

#include "bus-manager.h"
#include "clock.h"
#include "drain-keep.h"
#include "format.h"
#include "log.h"
#include "queue.h"
#include "vm.h"

/* Who has it is looked for when something begins to drain, and when somebody asks and knows too old news;
 * and again and again as long as the kernel does not watch some of it. */
#define HOLDERS_USEC (UINT64_C(5) * 1000000)
#define SCAN_SHARE   10U /* of the time */

static void tell_changed(Manager *m) {
        bus_manager_changed(m, "Draining");
        bus_manager_changed(m, "DrainingBytes");
}

static Draining *draining_free(Draining *d) {
        if (!d)
                return NULL;
        if (d->manager)
                DL_DELETE(d->manager->draining, d);
        drain_free(d->drain);
        charge_return(&d->charge);
        free(d->name);
        free(d);
        return NULL;
}
DEFINE_CLEANUP(Draining, draining_free);

void draining_done(Manager *m) {
        m->drain_scan = drain_scan_free(m->drain_scan);
        m->drain_timer = sd_event_source_disable_unref(m->drain_timer);
        while (m->draining)
                draining_free(m->draining);
}

static void on_over(Drain *drain, void *userdata) {
        Draining *d = userdata;
        Manager *m = d->manager;

        log_info("VM %s: the rest of its memory is free", d->name);
        drain_unkeep(m, d->lease);
        draining_free(d);
        tell_changed(m);
        queue_kick(m);
}

static void look_for_holders(Manager *m);

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        look_for_holders(userdata);
        return 0;
}

static void look_again(Manager *m, uint64_t usec) {
        int r;

        m->drain_timer = sd_event_source_disable_unref(m->drain_timer);
        r = sd_event_add_time_relative(m->event, &m->drain_timer, CLOCK_MONOTONIC, usec, 0, on_timer, m);
        if (r < 0)
                log_warning_errno(r, "Who has memory of released VMs is looked for when somebody asks only");
}

/* Whether some of it is not watched; "missed": nobody was found, this time. */
static bool note_scanned(Draining *d, const DrainScan *scan, bool *missed) {
        bool unwatched = false;
        DrainPids pids = {};
        size_t n;
        const DrainFile *files = drain_files(d->drain, &n);

        for (size_t i = 0; i < n; i++) {
                int found = drain_scan_find(scan, &files[i], &pids);

                if (files[i].gone || files[i].watch >= 0)
                        continue;
                if (found > 0 || (found == 0 && drain_scan_is_complete(scan)))
                        drain_note_looked_for(d->drain, i, found > 0);
                if (!files[i].gone) {
                        unwatched = true;
                        *missed = *missed || found <= 0; /* or it came later than the look began */
                }
        }
        if (memcmp(&pids, &d->holders, sizeof(pids)) != 0) {
                d->holders = pids;
                tell_changed(d->manager);
        }
        return unwatched;
}

static void on_scanned(DrainScan *scan, void *userdata) {
        uint64_t pause = HOLDERS_USEC + SCAN_SHARE * drain_scan_usec(scan);
        bool unwatched = false, missed = false, complete = drain_scan_is_complete(scan);
        Manager *m = userdata;
        Draining *d;

        DL_FOREACH (m->draining, d)
                unwatched |= note_scanned(d, scan, &missed);
        m->drain_scan = drain_scan_free(scan);
        /* Who asks because of that is not answered with another look, or that would never end. */
        m->drain_scan_usec = clock_usec();
        if (unwatched)
                look_again(m, missed && complete ? 0 : pause);
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

        /* One that runs knows nothing of what came later: then the one that follows. */
        if (m->drain_scan || !m->draining)
                return;
        r = collect_files(m, &files, &n);
        if (r >= 0)
                r = drain_scan_start(m->event, m->options.proc_root, files, n, on_scanned, m,
                                     &m->drain_scan);
        if (r >= 0)
                return;
        log_warning_errno(r, "Who has memory of released VMs cannot be looked for now");
        look_again(m, HOLDERS_USEC);
}

void draining_look(Manager *m) {
        if (clock_usec() - m->drain_scan_usec > HOLDERS_USEC)
                look_for_holders(m);
}

/* Takes the drain, whatever comes of it, and the charge if there is one already. */
static int add(Manager *m, const char *name, uint64_t lease, uid_t uid, Drain *drain, Charge *charge,
               Draining **ret) {
        _cleanup_(draining_freep) Draining *d = NULL;
        Amounts amounts = { .vms = 1, .bytes = drain_bytes(drain) };
        int r = 0;

        d = calloc(1, sizeof(*d));
        if (!d) {
                drain_free(drain);
                return -ENOMEM;
        }
        d->drain = drain;
        d->name = strdup(name);
        if (!d->name)
                return -ENOMEM;
        d->lease = lease;
        if (charge) {
                d->charge = *charge;
                *charge = (Charge){};
                (void) charge_set(&d->charge, &amounts, NULL); /* less than before */
        } else
                r = charge_take(&d->charge, &m->accounts, uid, &amounts, NULL);
        if (r < 0)
                return r;
        d->manager = m;
        DL_APPEND(m->draining, d);
        drain_notify(d->drain, on_over, d);
        *ret = TAKE_PTR(d);
        return 0;
}

static int keep(Draining *d) {
        int r = drain_keep(d->manager, d->name, d->charge.account->uid, d->lease, d->drain);

        d->unkept = r < 0;
        return r;
}

static void keep_or_later(Draining *d) {
        int r = keep(d);

        if (r < 0) {
                log_warning_errno(r,
                                  "The record of what VM %s had cannot be written, and this is tried again; "
                                  "the next tdpd would not know that it drains",
                                  d->name);
                keeper_retry_later(d->manager);
        }
}

int draining_keep_late(Manager *m) {
        Draining *d;
        int r = 0;

        DL_FOREACH (m->draining, d)
                if (d->unkept)
                        r = MIN_OF(r, keep(d));
        return r;
}

int draining_add(VM *vm) {
        Draining *d;
        int r;

        r = add(vm->manager, vm->name, vm->kept.lease, vm->uid, TAKE_PTR(vm->drain), &vm->charge, &d);
        if (r < 0)
                return r;
        keep_or_later(d);
        look_for_holders(vm->manager);
        tell_changed(vm->manager);
        return 0;
}

int draining_restore(Manager *m, DrainRecord *r) {
        Drain *drain;
        Draining *d;
        int k;

        k = drain_new_from(m->drain_watch, r->page_size, r->files, r->n_files, &drain);
        if (k < 0)
                return k;
        k = add(m, r->name, r->lease, r->uid, drain, NULL, &d);
        if (k < 0)
                return k;
        log_debug("VM %s of user %u: %s of its memory drained when tdpd ended", r->name, r->uid,
                  format_bytes(drain_bytes(d->drain)));
        return 0;
}

static Draining *find(Manager *m, uint64_t lease) {
        Draining *d;

        DL_FOREACH (m->draining, d)
                if (d->lease == lease)
                        return d;
        return NULL;
}

void draining_drop(Manager *m, uint64_t lease) {
        Draining *d = find(m, lease);

        if (!d)
                return;
        drain_unkeep(m, lease);
        draining_free(d);
}

/* The descriptors stay the store's. */
static Memory *collect_stored(Manager *m, const Record *r) {
        Memory *memory = calloc(1, sizeof(*memory) + r->n_parts * sizeof(MemoryPart));
        struct stat st;

        if (!memory)
                return NULL;
        memory->page_size = r->page_size;
        for (unsigned i = 0; i < r->n_parts; i++) {
                StoredFd *f = fdstore_find(m->keeper.store, (FdName){ FD_MEMORY, i, r->lease });
                MemoryPart *part = &memory->parts[memory->n_parts];

                if (!f || fstat(f->fd, &st) < 0)
                        continue;
                part->fd = f->fd;
                part->node = r->parts[i].node;
                part->bytes = (uint64_t) st.st_size;
                memory->n_parts++;
        }
        return memory;
}

int draining_add_stored(Manager *m, const Record *r) {
        _cleanup_free_ Memory *memory = NULL;
        Drain *drain;
        Draining *d;
        int k;

        /* Its record was written before the first descriptor was taken back. */
        if (find(m, r->lease))
                return 0;
        memory = collect_stored(m, r);
        if (!memory)
                return -ENOMEM;
        if (memory->n_parts == 0)
                return 0;
        k = drain_new(m->drain_watch, memory, &drain);
        if (k < 0)
                return k;
        k = add(m, r->name, r->lease, r->uid, drain, NULL, &d);
        if (k < 0)
                return k;
        keep_or_later(d);
        return 0;
}
