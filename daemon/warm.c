/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "warm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

#include "bus-error.h"
#include "bus-warm.h"
#include "cut.h"
#include "format.h"
#include "job.h"
#include "log-message.h"
#include "psi.h"
#include "queue.h"

/* While there is something to do and a reason not to. */
#define HOLD_USEC     (UINT64_C(1000) * 1000)
#define NO_PAGES_USEC (UINT64_C(5000) * 1000)
#define RESERVED_USEC (UINT64_C(200) * 1000)

static const char *const hold_table[_WARM_HOLD_MAX] = {
        [WARM_HOLD_NONE] = "",
        [WARM_HOLD_RESERVATION] = "reservation",
        [WARM_HOLD_PRESSURE] = "pressure",
        [WARM_HOLD_LOAD] = "load",
        [WARM_HOLD_NO_PAGES] = "no-pages",
        [WARM_HOLD_FAILED] = "failed",
};

typedef struct Hold {
        WarmHold why;
        char text[400];
} Hold;

struct Warm {
        Manager *manager;
        Slab *slabs;   /* the complete ones, and the one that is being filled */
        Slab *filling; /* of these */
        Slab *leaving; /* closed one after the other, in a thread */
        Cut *cut;      /* of the first of them */
        sd_event_source *timer;
        Hold host;                  /* what holds all of them up */
        Hold specs[WARM_SPECS_MAX]; /* and one flavour */
};

const char *warm_hold_to_string(WarmHold h) {
        return h >= 0 && h < _WARM_HOLD_MAX ? hold_table[h] : NULL;
}

static void _printf_(3, 4) hold(Hold *h, WarmHold why, const char *format, ...) {
        va_list ap;

        h->why = why;
        va_start(ap, format);
        vsnprintf(h->text, sizeof(h->text), format, ap);
        va_end(ap);
}

static void again_after(Warm *w, uint64_t usec) {
        (void) sd_event_source_set_time_relative(w->timer, usec);
        (void) sd_event_source_set_enabled(w->timer, SD_EVENT_ONESHOT);
}

void warm_kick(Warm *w) {
        again_after(w, 0);
}

void warm_reconfigure(Warm *w) {
        memset(w->specs, 0, sizeof(w->specs));
        warm_kick(w);
        bus_warm_changed(w->manager);
}

const Slab *warm_first(const Warm *w) {
        return w->slabs;
}

size_t warm_count(const Warm *w) {
        const Slab *s;
        size_t n = 0;

        DL_FOREACH (w->slabs, s)
                n++;
        return n;
}

static uint32_t count_of(const Warm *w, const WarmSpec *spec, bool ready_only) {
        const Slab *s;
        uint32_t n = 0;

        DL_FOREACH (w->slabs, s)
                n += warm_spec_equal(&s->spec, spec) && (!ready_only || slab_is_ready(s));
        return n;
}

void warm_status(const Warm *w, size_t i, WarmStatus *ret) {
        const WarmSpec *spec = &w->manager->config.warm.specs[i];
        const Hold *h = w->host.why != WARM_HOLD_NONE ? &w->host : &w->specs[i];

        *ret = (WarmStatus){ .ready = count_of(w, spec, true) };
        if (w->filling && warm_spec_equal(&w->filling->spec, spec))
                ret->filling = slab_facts(w->filling).filled;
        if (ret->ready < spec->count) {
                ret->hold = h->why;
                ret->text = h->text;
        } else
                ret->text = "";
}

/* Whether the host has time and memory for what nobody has asked for yet. */
static bool is_held_up(Warm *w, uint64_t *ret_usec) {
        const Config *c = &w->manager->config;
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        uint64_t value, cpus = 0, ours = 0;
        Job *j;

        *ret_usec = HOLD_USEC;
        DL_FOREACH (w->manager->jobs, j)
                if (j->type == JOB_RESERVE && j->phase != JOB_PHASE_WAIT) {
                        *ret_usec = RESERVED_USEC;
                        hold(&w->host, WARM_HOLD_RESERVATION, "%s is being populated", j->what);
                        return true;
                }

        if (queue_stops_warm(w->manager)) {
                *ret_usec = RESERVED_USEC;
                hold(&w->host, WARM_HOLD_RESERVATION, "a request needs the pages of a slab");
                return true;
        }

        /* Kernels without PSI measure no pressure. */
        if (psi_read_memory(w->manager->options.proc_root, &value) >= 0 &&
            value > c->warm_max_pressure * 100) {
                hold(&w->host, WARM_HOLD_PRESSURE,
                     "tasks waited for memory %" PRIu64 ".%02" PRIu64
                     "%% of the last ten seconds, of at most "
                     "WarmMaxPressure=%" PRIu64,
                     value / 100, value % 100, c->warm_max_pressure);
                return true;
        }

        if (c->warm_max_load == UINT64_MAX || node_table_load(w->manager->options.sysfs_root, &nodes) < 0)
                return false;
        for (size_t i = 0; i < nodes->n_nodes; i++)
                cpus += idset_count(&nodes->nodes[i].cpus);
        if (w->filling)
                ours = slab_threads(w->manager, nodes, w->filling->memory->parts[0].node);
        if (loadavg_read(w->manager->options.proc_root, &value) >= 0 &&
            value > cpus * c->warm_max_load + ours * 100) {
                hold(&w->host, WARM_HOLD_LOAD,
                     "the load is %" PRIu64 ".%02" PRIu64 " with %" PRIu64
                     " CPUs, more than WarmMaxLoad=%" PRIu64 " percent",
                     value / 100, value % 100, cpus, c->warm_max_load);
                return true;
        }
        return false;
}

static void close_next(Warm *w);

static void on_closed(Worker *worker, int result, void *userdata) {
        Warm *w = userdata;
        Slab *s = w->leaving;

        w->cut = cut_free(w->cut);
        DL_DELETE(w->leaving, s);
        slab_free(s);
        queue_kick(w->manager);
        close_next(w);
}

static void close_next(Warm *w) {
        if (!w->leaving || w->cut)
                return;
        while (w->leaving &&
               cut_start(w->manager->event, w->leaving->memory, 0, on_closed, w, &w->cut) < 0) {
                Slab *s = w->leaving;

                DL_DELETE(w->leaving, s); /* no thread: then it takes the event loop's time */
                slab_free(s);
        }
        warm_kick(w);
}

static void remove_slab(Warm *w, Slab *s) {
        DL_DELETE(w->slabs, s);
        if (w->filling == s)
                w->filling = NULL;
}

void warm_close(Warm *w, Slab *s) {
        DL_APPEND(w->leaving, s);
        close_next(w);
}

static void let_leave(Warm *w, Slab *s) {
        remove_slab(w, s);
        warm_close(w, s);
}

/* What the configuration does not want, or not so often. */
static Slab *find_surplus(Warm *w) {
        const WarmSpecs *specs = &w->manager->config.warm;
        Slab *s;

        DL_FOREACH (w->slabs, s) {
                uint32_t wanted = 0;

                for (size_t i = 0; i < specs->n; i++)
                        if (warm_spec_equal(&specs->specs[i], &s->spec))
                                wanted = specs->specs[i].count;
                if (count_of(w, &s->spec, false) > wanted)
                        return s;
        }
        return NULL;
}

/* Small pages are what everybody lives on: under pressure the host gets them back. */
static Slab *find_small(Warm *w) {
        Slab *s;

        DL_FOREACH (w->slabs, s)
                if (s->memory->page_size == base_page_size())
                        return s;
        return NULL;
}

/* false: there is nothing to fill now. */
static bool start_next(Warm *w) {
        const WarmSpecs *specs = &w->manager->config.warm;

        for (size_t i = 0; i < specs->n && !w->filling; i++) {
                __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
                Slab *s;
                int r;

                if (count_of(w, &specs->specs[i], false) >= specs->specs[i].count)
                        continue;
                r = slab_new(w->manager, &specs->specs[i], &s, &error);
                if (r < 0) {
                        hold(&w->specs[i],
                             sd_bus_error_has_name(&error, TDP_ERROR_NO_PAGES) ? WARM_HOLD_NO_PAGES
                                                                               : WARM_HOLD_FAILED,
                             "%s", error.message ?: strerror(-r));
                        continue;
                }
                DL_APPEND(w->slabs, s);
                w->filling = s;
        }
        return w->filling;
}

static void fill(Warm *w);

static void failed(Warm *w, const sd_bus_error *error) {
        char text[WARM_SPEC_TEXT_MAX];
        Slab *s = w->filling;
        Hold *h = NULL;

        for (size_t i = 0; i < w->manager->config.warm.n; i++)
                if (warm_spec_equal(&w->manager->config.warm.specs[i], &s->spec))
                        h = &w->specs[i];
        if (h) {
                if (h->why != WARM_HOLD_FAILED)
                        log_message(MESSAGE_WARM_FAILED,
                                    FIELDS(FIELD_TEXT("TDP_WARM", warm_spec_format(&s->spec, text)),
                                           FIELD_BYTES(s->spec.bytes),
                                           FIELD_TEXT("TDP_REASON", error->message)),
                                    "Warm slab %s cannot be filled: %s", text,
                                    error->message ?: "no memory for the daemon itself");
                hold(h, WARM_HOLD_FAILED, "%s", error->message ?: "no memory for the daemon itself");
        }
        let_leave(w, s);
        again_after(w, NO_PAGES_USEC);
}

static void on_step(Worker *worker, int result, void *userdata) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        char text[WARM_SPEC_TEXT_MAX];
        Warm *w = userdata;
        Slab *s = w->filling;

        if (result == -ECANCELED) { /* somebody needs its pages, and waits for this */
                slab_step_canceled(s);
                again_after(w, RESERVED_USEC);
                queue_kick(w->manager);
                return;
        }
        if (slab_step_done(s, result, &error) < 0) {
                failed(w, &error);
                bus_warm_changed(w->manager);
                return;
        }
        if (slab_is_ready(s)) {
                log_message(MESSAGE_WARM_READY,
                            FIELDS(FIELD_TEXT("TDP_WARM", warm_spec_format(&s->spec, text)),
                                   FIELD_BYTES(s->spec.bytes),
                                   FIELD_NUMBER("TDP_NODE", s->memory->parts[0].node),
                                   FIELD_NUMBER("TDP_PAGE_SIZE", s->memory->page_size)),
                            "Warm slab %s: ready on node %u in pages of %s", text, s->memory->parts[0].node,
                            format_bytes(s->memory->page_size));
                w->filling = NULL;
                bus_warm_changed(w->manager);
        }
        fill(w);
}

static bool is_complete(const Warm *w) {
        const WarmSpecs *specs = &w->manager->config.warm;

        for (size_t i = 0; i < specs->n; i++)
                if (count_of(w, &specs->specs[i], true) < specs->specs[i].count)
                        return false;
        return true;
}

/* Goes on with what there is to do, or sets a time to look again. */
static void fill(Warm *w) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        WarmHold before = w->host.why;
        Slab *surplus;
        uint64_t usec;

        if (w->filling && w->filling->populate)
                return;
        while ((surplus = find_surplus(w)))
                let_leave(w, surplus);
        w->host.why = WARM_HOLD_NONE;
        for (size_t i = 0; i < WARM_SPECS_MAX; i++)
                if (w->specs[i].why == WARM_HOLD_NO_PAGES)
                        w->specs[i].why = WARM_HOLD_NONE;
        if (is_complete(w) && !find_small(w))
                return;

        if (is_held_up(w, &usec)) {
                if (w->host.why == WARM_HOLD_PRESSURE && (surplus = find_small(w)))
                        let_leave(w, surplus);
                again_after(w, usec);
        } else if (is_complete(w))
                again_after(w, HOLD_USEC);
        else if (!w->filling && !start_next(w))
                again_after(w, NO_PAGES_USEC);
        else if (slab_step(w->filling, on_step, w, &error) < 0)
                failed(w, &error);
        if (before != w->host.why)
                bus_warm_changed(w->manager);
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        fill(userdata);
        return 0;
}

static size_t collect(const Warm *w, SlabFacts *facts, Slab **slabs) {
        Slab *s;
        size_t n = 0;

        DL_FOREACH (w->slabs, s) {
                facts[n] = slab_facts(s);
                slabs[n++] = s;
        }
        return n;
}

Slab *warm_take(Warm *w, const PlacementRequest *req, uint64_t min_page_size) {
        size_t n = warm_count(w);
        _cleanup_free_ SlabFacts *facts = calloc(n + 1, sizeof(SlabFacts));
        _cleanup_free_ Slab **slabs = calloc(n + 1, sizeof(Slab *));
        int i;

        if (!facts || !slabs)
                return NULL;
        n = collect(w, facts, slabs);
        i = warm_pick(facts, n, req, min_page_size);
        if (i < 0)
                return NULL;
        remove_slab(w, slabs[i]);
        warm_kick(w);
        return slabs[i];
}

void warm_put_back(Warm *w, Slab *s) {
        DL_APPEND(w->slabs, s);
        bus_warm_changed(w->manager);
}

static bool is_worked_on(const Slab *const *slabs, const bool *chosen, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (chosen[i] && slabs[i]->populate)
                        return true;
        return false;
}

int warm_give_up(Warm *w, const VM *vm, const PlacementRequest *req, Placement *ret, Slab **ret_leaving) {
        size_t n = warm_count(w), n_claims;
        _cleanup_free_ SlabFacts *facts = calloc(n + 1, sizeof(SlabFacts));
        _cleanup_free_ Slab **slabs = calloc(n + 1, sizeof(Slab *));
        _cleanup_free_ bool *chosen = calloc(n + 1, sizeof(bool));
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        _cleanup_free_ Claim *claims = NULL;
        int r;

        *ret_leaving = NULL;
        if (n == 0)
                return 0;
        if (!facts || !slabs || !chosen)
                return -ENOMEM;
        r = manager_load_nodes(w->manager, &nodes, NULL);
        if (r >= 0)
                r = manager_claims(w->manager, &claims, &n_claims);
        if (r < 0)
                return r;
        queue_mark(w->manager, vm, nodes);
        n = collect(w, facts, slabs);
        if (!warm_make_room(nodes, claims, n_claims, facts, n, req, chosen, ret))
                return 0;
        again_after(w, RESERVED_USEC);
        if (is_worked_on((const Slab *const *) slabs, chosen, n)) {
                /* What is free and what the slab has add up when its threads have ended. */
                placement_done(ret);
                slab_cancel(w->filling);
                return -EALREADY;
        }

        for (size_t i = 0; i < n; i++) {
                char text[WARM_SPEC_TEXT_MAX];

                if (!chosen[i])
                        continue;
                log_message(MESSAGE_WARM_GIVEN_UP,
                            FIELDS(FIELD_TEXT("TDP_WARM", warm_spec_format(&slabs[i]->spec, text)),
                                   FIELD_BYTES(slabs[i]->spec.bytes)),
                            "Warm slab %s: given up for a request that needs its pages", text);
                remove_slab(w, slabs[i]);
                if (facts[i].page_size == base_page_size())
                        DL_APPEND(*ret_leaving, slabs[i]);
                else
                        slab_free(slabs[i]);
        }
        bus_warm_changed(w->manager);
        return 1;
}

Warm *warm_free(Warm *w) {
        Slab *s, *tmp;

        if (!w)
                return NULL;
        sd_event_source_disable_unref(w->timer);
        cut_free(w->cut);
        DL_FOREACH_SAFE(w->slabs, s, tmp)
        slab_free(s);
        DL_FOREACH_SAFE(w->leaving, s, tmp)
        slab_free(s);
        free(w);
        return NULL;
}

int warm_new(Manager *m, Warm **ret) {
        Warm *w;
        int r;

        w = calloc(1, sizeof(*w));
        if (!w)
                return -ENOMEM;
        w->manager = m;
        r = sd_event_add_time_relative(m->event, &w->timer, CLOCK_MONOTONIC, 0, 0, on_timer, w);
        if (r < 0) {
                warm_free(w);
                return r;
        }
        *ret = w;
        return 0;
}
