/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "turns.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <utlist.h>

#include "auth.h"
#include "bus-error.h"
#include "fair.h"
#include "log.h"
#include "polkit.h"

/* Connections that are remembered.  One more takes the place of the one that has not called for longest. */
#define SENDERS_MAX 512U
/* So many messages are taken from the stream for each one that is handled. */
#define READ_AHEAD 64U

/* A call that waits. */
typedef struct Call {
        FairItem item;
        sd_bus_message *message;
        Charge charge;
        struct Call *next; /* of a sender who is not known yet */
} Call;

typedef struct Sender {
        Turns *turns;
        char *name;
        bool known;
        Caller caller;
        sd_bus_slot *slot; /* the question to the bus driver */
        Call *held;
        size_t n_held;
        uint64_t used; /* when it has called last, in calls */
        UT_hash_handle hh;
} Sender;

struct Turns {
        Manager *manager;
        sd_bus_slot *filter;
        sd_event_source *source; /* on while something waits */
        Sender *senders;
        FairQueue queue;
        Call *passing; /* it has its turn, and comes through the filter once more */
        unsigned n_read;
        uint64_t n_calls;
};

static Call *call_free(Call *c) {
        if (!c)
                return NULL;
        sd_bus_message_unref(c->message);
        charge_return(&c->charge);
        free(c);
        return NULL;
}
DEFINE_CLEANUP(Call, call_free);

static Sender *sender_free(Sender *s) {
        Call *c, *tmp;

        if (!s)
                return NULL;
        HASH_DEL(s->turns->senders, s);
        sd_bus_slot_unref(s->slot);
        LL_FOREACH_SAFE(s->held, c, tmp)
        call_free(c);
        free(s->name);
        free(s);
        return NULL;
}

Turns *turns_free(Turns *t) {
        Sender *s, *tmp;
        FairItem *item;

        if (!t)
                return NULL;
        HASH_ITER (hh, t->senders, s, tmp)
                sender_free(s);
        while ((item = fair_pop(&t->queue)))
                call_free((Call *) item);
        call_free(t->passing);
        sd_event_source_disable_unref(t->source);
        sd_bus_slot_unref(t->filter);
        free(t);
        return NULL;
}

static void answer_error(sd_bus_message *message, int r, const sd_bus_error *error) {
        if (sd_bus_error_is_set(error))
                (void) sd_bus_reply_method_error(message, error);
        else
                (void) sd_bus_reply_method_errno(message, r, NULL);
}

/* Takes the call: it waits for its turn, or is answered. */
static void wait_for_turn(Turns *t, uid_t uid, Call *c) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        int r;

        r = charge_take(&c->charge, &t->manager->accounts, uid, &(Amounts){ .calls = 1 }, &error);
        if (r >= 0)
                r = fair_push(&t->queue, uid, &c->item);
        if (r >= 0)
                r = sd_event_source_set_enabled(t->source, SD_EVENT_ON);
        if (r >= 0)
                return;
        answer_error(c->message, r, &error);
        fair_remove(&t->queue, &c->item);
        call_free(c);
}

/* The next one comes through the filter again, and is handled. */
static void next_turn(Turns *t) {
        Call *c;
        int r;

        t->n_read = 0;
        if (t->passing)
                return;
        c = (Call *) fair_pop(&t->queue);
        if (c) {
                r = sd_bus_enqueue_for_read(t->manager->bus, c->message);
                if (r >= 0) {
                        t->passing = c;
                        return;
                }
                answer_error(c->message, r, NULL);
                call_free(c);
        }
        if (t->queue.n == 0)
                (void) sd_event_source_set_enabled(t->source, SD_EVENT_OFF);
}

static int on_turn(sd_event_source *source, void *userdata) {
        next_turn(userdata);
        return 0;
}

static int on_credentials(sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        Sender *s = userdata;
        Turns *t = s->turns;
        Call *c, *tmp;
        int r;

        r = sd_bus_message_is_method_error(reply, NULL)
                            ? -EACCES
                            : auth_read_credentials(t->manager, reply, &s->caller);
        s->known = r >= 0;
        s->slot = sd_bus_slot_unref(s->slot);
        LL_FOREACH_SAFE(s->held, c, tmp) {
                LL_DELETE(s->held, c);
                if (s->known)
                        wait_for_turn(t, s->caller.uid, c);
                else {
                        (void) sd_bus_reply_method_errorf(c->message, TDP_ERROR_NOT_PERMITTED,
                                                          AUTH_UNKNOWN_CALLER);
                        call_free(c);
                }
        }
        s->n_held = 0;
        if (!s->known)
                sender_free(s);
        return 0;
}

static void make_room(Turns *t) {
        Sender *s, *tmp, *oldest = NULL;

        if (HASH_COUNT(t->senders) < SENDERS_MAX)
                return;
        /* One who is being asked about has called just now. */
        HASH_ITER (hh, t->senders, s, tmp)
                if (s->known && (!oldest || s->used < oldest->used))
                        oldest = s;
        sender_free(oldest);
}

static int sender_new(Turns *t, const char *name, Sender **ret) {
        Sender *s;
        int r;

        make_room(t);
        s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        s->turns = t;
        s->name = strdup(name);
        if (!s->name) {
                free(s);
                return -ENOMEM;
        }
        HASH_ADD_KEYPTR(hh, t->senders, s->name, strlen(s->name), s);
        if (!s->hh.tbl) {
                free(s->name);
                free(s);
                return -ENOMEM;
        }
        r = auth_ask_credentials(t->manager, name, &s->slot, on_credentials, s);
        if (r < 0) {
                sender_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

/* Nobody else waits, as far as we can see. */
static bool is_alone(Turns *t) {
        int fd = sd_bus_get_fd(t->manager->bus), in_stream = 0;
        uint64_t n = 0;

        return t->queue.n == 0 && !t->passing && fd >= 0 && ioctl(fd, FIONREAD, &in_stream) >= 0 &&
               in_stream == 0 && sd_bus_get_n_queued_read(t->manager->bus, &n) >= 0 && n == 0;
}

/* > 0: the call waits.  0: it can be handled now. */
static int add_call(Turns *t, sd_bus_message *message, const char *name, sd_bus_error *error) {
        _cleanup_(call_freep) Call *c = NULL;
        Sender *s;
        int r;

        HASH_FIND_STR(t->senders, name, s);
        if (s)
                s->used = ++t->n_calls;
        if (s && s->known && is_alone(t))
                return 0;

        c = calloc(1, sizeof(*c));
        if (!c)
                return -ENOMEM;
        c->message = sd_bus_message_ref(message);
        if (!s) {
                r = sender_new(t, name, &s);
                if (r < 0)
                        return r;
        }
        if (s->known) {
                wait_for_turn(t, s->caller.uid, TAKE_PTR(c));
                return 1;
        }
        if (s->n_held >= t->manager->config.limits.calls)
                return sd_bus_error_setf(
                                error, TDP_ERROR_LIMIT,
                                "this connection has %zu waiting calls already: wait for some answers, "
                                "or raise MaxCalls= in tdpd.conf",
                                s->n_held);
        LL_APPEND(s->held, c);
        s->n_held++;
        TAKE_PTR(c);
        return 1;
}

static int on_message(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        const char *name = sd_bus_message_get_sender(message);
        Turns *t = userdata;
        uint8_t type;
        int r;

        if (sd_bus_message_get_type(message, &type) < 0 || type != SD_BUS_MESSAGE_METHOD_CALL || !name)
                return 0;
        if (t->passing && t->passing->message == message) {
                t->passing = call_free(t->passing);
                return 0;
        }
        /* It has had its turn. */
        if (polkit_is_asked(t->manager, message))
                return 0;

        r = add_call(t, message, name, error);
        /* The source has a lower priority than the stream, which may never end. */
        if (++t->n_read >= READ_AHEAD)
                next_turn(t);
        return r;
}

const Caller *turns_find(Turns *t, const char *sender) {
        Sender *s = NULL;

        if (t)
                HASH_FIND_STR(t->senders, sender, s);
        return s && s->known ? &s->caller : NULL;
}

void turns_forget(Turns *t) {
        Sender *s, *tmp;

        if (!t)
                return;
        HASH_ITER (hh, t->senders, s, tmp)
                if (s->known)
                        sender_free(s);
}

int turns_new(Manager *m, Turns **ret) {
        Turns *t;
        int r;

        t = calloc(1, sizeof(*t));
        if (!t)
                return -ENOMEM;
        t->manager = m;
        if ((r = sd_event_add_defer(m->event, &t->source, on_turn, t)) < 0 ||
            (r = sd_event_source_set_enabled(t->source, SD_EVENT_OFF)) < 0 ||
            (r = sd_event_source_set_priority(t->source, SD_EVENT_PRIORITY_NORMAL + 10)) < 0 ||
            (r = sd_bus_add_filter(m->bus, &t->filter, on_message, t)) < 0) {
                turns_free(t);
                return r;
        }
        *ret = t;
        return 0;
}
