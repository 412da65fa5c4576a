/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "polkit.h"

#include <errno.h>
#include <utlist.h>

#include "account.h"
#include "bus-error.h"
#include "log.h"

#define POLKIT_NAME      "org.freedesktop.PolicyKit1"
#define POLKIT_PATH      "/org/freedesktop/PolicyKit1/Authority"
#define POLKIT_INTERFACE "org.freedesktop.PolicyKit1.Authority"

/* Without a dialog for somebody to answer, polkit answers at once, or never. */
#define SILENT_USEC UINT64_C(10000000)
/* An answered message comes again with the next turn of the loop. It might end before it gets to the check.
 */
#define KEEP_USEC UINT64_C(10000000)

typedef enum Answer {
        ANSWER_NONE,
        ANSWER_YES,
        ANSWER_NO,
} Answer;

typedef struct PolkitQuery {
        Manager *manager;
        sd_bus_message *message;
        const char *action; /* a constant */
        sd_bus_slot *slot;
        sd_event_source *timer;
        Answer answer;
        char *why;
        Charge charge;
        struct PolkitQuery *prev, *next;
} PolkitQuery;

static PolkitQuery *query_free(PolkitQuery *q) {
        if (!q)
                return NULL;
        if (q->manager)
                DL_DELETE(q->manager->polkit_queries, q);
        sd_bus_slot_unref(q->slot);
        sd_event_source_disable_unref(q->timer);
        sd_bus_message_unref(q->message);
        charge_return(&q->charge);
        free(q->why);
        free(q);
        return NULL;
}
DEFINE_CLEANUP(PolkitQuery, query_free);

void polkit_done(Manager *m) {
        PolkitQuery *q, *tmp;

        DL_FOREACH_SAFE(m->polkit_queries, q, tmp)
        query_free(q);
}

/* Strictly what polkit documents: (bba{ss}), and nothing after it. */
static int read_answer(sd_bus_message *reply, PolkitQuery *q) {
        int authorized, challenge, r;

        r = sd_bus_message_has_signature(reply, "(bba{ss})");
        if (r <= 0)
                return r < 0 ? r : -EBADMSG;
        r = sd_bus_message_enter_container(reply, 'r', "bba{ss}");
        if (r < 0)
                return r;
        r = sd_bus_message_read(reply, "bb", &authorized, &challenge);
        if (r < 0)
                return r;
        if (authorized)
                q->answer = ANSWER_YES;
        else
                q->why = strdup(challenge ? "somebody has to authenticate: allow that, or ask as root"
                                          : "polkit says no");
        return 0;
}

static int on_kept_for_long(sd_event_source *s, uint64_t usec, void *userdata) {
        query_free(userdata);
        return 0;
}

static int on_answer(sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        PolkitQuery *q = userdata;
        const sd_bus_error *e = sd_bus_message_get_error(reply);
        int r;

        q->answer = ANSWER_NO;
        if (e) {
                if (asprintf(&q->why, "polkit cannot be asked (%.200s)", e->message ?: e->name) < 0)
                        q->why = NULL;
        } else if ((r = read_answer(reply, q)) < 0) {
                q->answer = ANSWER_NO;
                q->why = strdup("polkit's answer makes no sense");
                log_warning_errno(r, "polkit's answer about %s makes no sense", q->action);
        }

        r = sd_event_add_time_relative(q->manager->event, &q->timer, CLOCK_MONOTONIC, KEEP_USEC, 0,
                                       on_kept_for_long, q);
        if (r >= 0)
                r = sd_bus_enqueue_for_read(q->manager->bus, q->message);
        if (r < 0) {
                (void) sd_bus_reply_method_errorf(q->message, TDP_ERROR_FAILED,
                                                  "the call cannot be taken up again: %s", strerror(-r));
                query_free(q);
        }
        return 0;
}

static int ask(PolkitQuery *q) {
        Manager *m = q->manager;
        int interactive = sd_bus_message_get_allow_interactive_authorization(q->message) > 0;
        uint64_t usec = m->config.polkit_timeout_sec * 1000000;
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL;
        int r;

        r = sd_bus_message_new_method_call(m->bus, &call, POLKIT_NAME, POLKIT_PATH, POLKIT_INTERFACE,
                                           "CheckAuthorization");
        if (r < 0)
                return r;
        r = sd_bus_message_append(call, "(sa{sv})sa{ss}us", "system-bus-name", 1, "name", "s",
                                  sd_bus_message_get_sender(q->message), q->action, 0,
                                  (uint32_t) interactive, "");
        if (r < 0)
                return r;
        return sd_bus_call_async(m->bus, &q->slot, call, on_answer, q,
                                 interactive ? usec : MIN_OF(usec, SILENT_USEC));
}

static int query_new(Manager *m, sd_bus_message *message, uid_t uid, const char *action,
                     sd_bus_error *error) {
        _cleanup_(query_freep) PolkitQuery *q = NULL;
        int r;

        q = calloc(1, sizeof(*q));
        if (!q)
                return -ENOMEM;
        q->action = action;
        q->message = sd_bus_message_ref(message);
        r = charge_take(&q->charge, &m->accounts, uid, &(Amounts){ .calls = 1 }, error);
        if (r < 0)
                return r;
        q->manager = m;
        DL_APPEND(m->polkit_queries, q);
        r = ask(q);
        if (r < 0)
                return r;
        TAKE_PTR(q);
        return 0;
}

bool polkit_is_asked(Manager *m, sd_bus_message *message) {
        PolkitQuery *q;

        DL_SEARCH_SCALAR(m->polkit_queries, q, message, message);
        return q;
}

int polkit_check(Manager *m, sd_bus_message *message, uid_t uid, const char *action, char **why,
                 sd_bus_error *error) {
        PolkitQuery *q;
        Answer answer;
        int r;

        DL_SEARCH_SCALAR(m->polkit_queries, q, message, message);
        if (!q) {
                r = query_new(m, message, uid, action, error);
                if (r == -EDQUOT || r == -ENOMEM || r >= 0)
                        return r;
                if (asprintf(why, "polkit cannot be asked (%s)", strerror(-r)) < 0)
                        *why = NULL;
                return -EACCES;
        }

        /* An answer to another question is none. */
        answer = streq(q->action, action) ? q->answer : ANSWER_NO;
        *why = TAKE_PTR(q->why);
        query_free(q);
        if (answer != ANSWER_YES)
                return -EACCES;

        /* Whoever has gone while it was thought about wants it no more. */
        r = sd_bus_get_name_creds(m->bus, sd_bus_message_get_sender(message), 0, NULL);
        if (r >= 0)
                return 1;
        free(*why);
        *why = strdup("the caller has gone");
        return -EACCES;
}
