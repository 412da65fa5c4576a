/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bus-holders.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "auth.h"
#include "bus-error.h"
#include "clock.h"
#include "format.h"
#include "holders.h"
#include "memstream.h"
#include "worker.h"

#define SCAN_USEC   UINT64_C(2000000)
#define NAMED_MAX   4U
#define WAITING_MAX 64U

typedef struct Waiting {
        sd_bus_message *message;
        uint64_t page_size; /* for an error: 0 is any */
        sd_bus_error error; /* or none: then it wants all that is found */
} Waiting;

typedef struct HoldersQuery {
        Manager *manager;
        Worker *worker;
        Holders found;
        uint64_t until;
        int r;
        Waiting waiting[WAITING_MAX];
        size_t n_waiting;
} HoldersQuery;

typedef struct Limit {
        Worker *worker;
        uint64_t until;
} Limit;

static bool go_on(void *userdata) {
        Limit *l = userdata;

        return clock_usec() < l->until && !worker_is_canceled(l->worker);
}

static int scan_step(Worker *w, size_t lane, size_t piece, void *userdata) {
        HoldersQuery *q = userdata;
        Limit limit = { .worker = w, .until = q->until };

        q->r = holders_scan(q->manager->options.proc_root, go_on, &limit, &q->found);
        return 0;
}

static int append(sd_bus_message *reply, const Holders *h) {
        int r;

        r = sd_bus_message_open_container(reply, 'a', "(tituusss)");
        for (size_t i = 0; i < h->n && r >= 0; i++) {
                const Holder *o = &h->holders[i];

                r = sd_bus_message_append(reply, "(tituusss)", o->page_size, (int32_t) o->node, o->pages,
                                          (uint32_t) o->pid, (uint32_t) o->uid,
                                          holder_kind_to_string(o->kind), o->name, o->file);
        }
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r >= 0)
                r = sd_bus_message_append(reply, "b", (int) h->complete);
        return r;
}

static void answer_all(HoldersQuery *q, sd_bus_message *message) {
        __attribute__((cleanup(sd_bus_message_unrefp))) sd_bus_message *reply = NULL;
        int r = q->r;

        if (r >= 0)
                r = sd_bus_message_new_method_return(message, &reply);
        if (r >= 0)
                r = append(reply, &q->found);
        if (r >= 0)
                r = sd_bus_send(NULL, reply, NULL);
        if (r < 0)
                (void) sd_bus_reply_method_errorf(message, TDP_ERROR_FAILED,
                                                  "the processes of this host cannot be looked at: %s",
                                                  strerror(-r));
}

static int by_pages(const void *a, const void *b) {
        const Holder *x = a, *y = b;
        uint64_t p = x->pages * x->page_size, q = y->pages * y->page_size;

        return (p < q) - (p > q);
}

static void print_holder(FILE *f, const Holder *h) {
        if (h->kind == HOLDER_VM)
                fprintf(f, "VM %s", h->name);
        else
                fprintf(f, "process %i (%s)", (int) h->pid, h->name);
        fprintf(f, " %" PRIu64 " of %s", h->pages, format_bytes(h->page_size));
        if (h->node >= 0)
                fprintf(f, " on node %i", h->node);
}

static int describe(HoldersQuery *q, uint64_t page_size, char **ret) {
        _cleanup_free_ char *s = NULL;
        size_t size, n = 0;
        FILE *f;

        f = open_memstream(&s, &size);
        if (!f)
                return -ENOMEM;
        if (q->found.n > 0)
                qsort(q->found.holders, q->found.n, sizeof(Holder), by_pages);
        for (size_t i = 0; i < q->found.n; i++) {
                if (page_size != 0 && q->found.holders[i].page_size != page_size)
                        continue;
                if (n++ >= NAMED_MAX)
                        continue;
                fprintf(f, "%s", n == 1 ? "; pages are held by " : ", ");
                print_holder(f, &q->found.holders[i]);
        }
        if (n > NAMED_MAX)
                fprintf(f, " and %zu more, see \"tdpctl pools --holders\"", n - NAMED_MAX);
        if (memstream_close(f, &s) < 0)
                return -ENOMEM;
        *ret = TAKE_PTR(s);
        return 0;
}

static void answer(HoldersQuery *q, Waiting *w) {
        _cleanup_free_ char *more = NULL;

        if (!sd_bus_error_is_set(&w->error)) {
                answer_all(q, w->message);
                return;
        }
        if (q->r < 0 || describe(q, w->page_size, &more) < 0)
                (void) sd_bus_reply_method_error(w->message, &w->error);
        else
                (void) sd_bus_reply_method_errorf(w->message, w->error.name, "%s%s", w->error.message, more);
}

static void waiting_done(Waiting *w) {
        w->message = sd_bus_message_unref(w->message);
        sd_bus_error_free(&w->error);
}

void holders_query_done(Manager *m) {
        HoldersQuery *q = m->holders_query;

        if (!q)
                return;
        m->holders_query = NULL;
        worker_free(q->worker);
        for (size_t i = 0; i < q->n_waiting; i++)
                waiting_done(&q->waiting[i]);
        holders_done(&q->found);
        free(q);
}

static void on_scanned(Worker *w, int result, void *userdata) {
        HoldersQuery *q = userdata;

        for (size_t i = 0; i < q->n_waiting; i++)
                answer(q, &q->waiting[i]);
        holders_query_done(q->manager);
}

static int start(Manager *m, HoldersQuery **ret) {
        WorkerLane lane = { .n_threads = 1, .n_pieces = 1 };
        HoldersQuery *q;
        int r;

        q = calloc(1, sizeof(*q));
        if (!q)
                return -ENOMEM;
        q->manager = m;
        q->until = clock_usec() + SCAN_USEC;
        r = worker_start(m->event, &lane, 1, scan_step, on_scanned, q, &q->worker);
        if (r < 0) {
                free(q);
                return r;
        }
        m->holders_query = *ret = q;
        return 0;
}

/* 0: too many wait already. */
static int wait_for_it(Manager *m, sd_bus_message *message, Waiting **ret) {
        HoldersQuery *q = m->holders_query;
        int r;

        if (q && q->n_waiting >= WAITING_MAX)
                return 0;
        if (!q) {
                r = start(m, &q);
                if (r < 0)
                        return r;
        }
        *ret = &q->waiting[q->n_waiting++];
        **ret = (Waiting){ .message = sd_bus_message_ref(message) };
        return 1;
}

int bus_holders_refuse(Manager *m, sd_bus_message *message, uint64_t page_size, const sd_bus_error *error) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error copy = SD_BUS_ERROR_NULL;
        Waiting *w;

        if (sd_bus_error_copy(&copy, error) == 0 || !sd_bus_error_is_set(&copy) ||
            wait_for_it(m, message, &w) <= 0)
                return 0;
        w->page_size = page_size;
        w->error = copy;
        copy = SD_BUS_ERROR_NULL;
        return 1;
}

int bus_method_holders(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        Manager *m = userdata;
        Caller caller;
        Waiting *w;
        int r;

        /* What processes have mapped is not for everybody to see. */
        r = auth_get_creator(m, message, &caller, error);
        if (r != 0)
                return r;
        r = wait_for_it(m, message, &w);
        if (r == 0)
                return sd_bus_error_setf(
                                error, TDP_ERROR_BUSY,
                                "%u callers wait for the same answer already: ask again in a moment",
                                WAITING_MAX);
        if (r < 0)
                return sd_bus_error_setf(error, TDP_ERROR_FAILED, "no thread to look at processes: %s",
                                         strerror(-r));
        return 1;
}
