/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "handoffs.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <systemd/sd-id128.h>
#include <utlist.h>

#include "bus-error.h"
#include "bus-handoff.h"
#include "clock.h"
#include "handoff-error.h"
#include "handoff-keep.h"
#include "handoff-log.h"
#include "handoff-say.h"
#include "handoff-work.h"
#include "log.h"
#include "vm.h"

/* This application's, for the hash of the machine id: who sees a message need not know that. */
#define HOST_APP SD_ID128_MAKE(9b, 5d, 1f, 55, 3a, 0e, 4c, 9d, 8e, 27, 64, d1, 70, 0b, a8, 3c)

#define PER_USER_MAX     64U
#define UNFINISHED_MAX   1024U
#define RETRY_FIRST_USEC (UINT64_C(2) * 1000000)
#define RETRY_MAX_USEC   (UINT64_C(30) * 1000000)

static int on_deadline(sd_event_source *s, uint64_t usec, void *userdata);
static int on_retry(sd_event_source *s, uint64_t usec, void *userdata);

int handoffs_new(Manager *m) {
        sd_id128_t host;
        Handoffs *s;
        int r;

        r = sd_id128_get_machine_app_specific(HOST_APP, &host);
        if (r < 0)
                return log_error_errno(r, "/etc/machine-id cannot be read, so there are no handoffs");
        s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        memcpy(s->host.bytes, host.bytes, sizeof(s->host.bytes));
        m->handoffs = s;
        return 0;
}

void handoff_forget(Handoff *h) {
        Handoffs *s = h->manager->handoffs;

        DL_DELETE(s->list, h);
        sd_event_source_disable_unref(h->deadline);
        sd_event_source_disable_unref(h->retry);
        sd_event_source_disable_unref(h->look_again);
        free(h->path);
        free(h);
}

void handoffs_free(Manager *m) {
        Handoffs *s = m->handoffs;
        Handoff *h, *tmp;

        if (!s)
                return;
        DL_FOREACH_SAFE(s->list, h, tmp)
        handoff_forget(h);
        sd_event_source_disable_unref(s->look);
        handoff_keep_done(m);
        m->handoffs = NULL; /* VMs that go from here on have nobody to tell */
        free(s);
}

Handoff *handoff_find(Manager *m, const HandoffId *id, HandoffRole side) {
        Handoff *h;

        if (m->handoffs)
                DL_FOREACH (m->handoffs->list, h)
                        if (h->r.side == side && handoff_id_equal(&h->r.id, id))
                                return h;
        return NULL;
}

uint64_t handoff_seen(Manager *m, const char *vm) {
        uint64_t seen = 0;
        Handoff *h;

        if (m->handoffs)
                DL_FOREACH (m->handoffs->list, h) {
                        bool moved = h->r.side == HANDOFF_SOURCE ? h->r.complete.new_generation > 0
                                                                 : handoff_state_owns(h->r.state);

                        if (streq(h->r.vm, vm) && moved)
                                seen = MAX_OF(seen, h->r.generation + 1);
                }
        return seen;
}

uint64_t handoff_time_left(const Handoff *h) {
        uint64_t now = clock_usec_of(CLOCK_BOOTTIME);

        return h->r.deadline_usec > now ? h->r.deadline_usec - now : 0;
}

static int check_limits(Manager *m, uid_t uid, sd_bus_error *error) {
        size_t n = 0, of_user = 0;
        Handoff *h;

        DL_FOREACH (m->handoffs->list, h)
                if (!handoff_state_is_final(h->r.state)) {
                        n++;
                        /* (a VM that is here is one of the user's VMs) */
                        of_user += h->r.uid == uid && h->r.state != HANDOFF_D_OWNER;
                }
        if (of_user >= PER_USER_MAX)
                return sd_bus_error_setf(error, TDP_ERROR_LIMIT,
                                         "user %u has %zu handoffs under way, and may have %u: end some",
                                         uid, of_user, PER_USER_MAX);
        if (n >= UNFINISHED_MAX)
                return sd_bus_error_setf(error, TDP_ERROR_LIMIT,
                                         "%zu handoffs are under way, and there may be %u: end some", n,
                                         UNFINISHED_MAX);
        return 0;
}

int handoff_new(Manager *m, const HandoffRecord *r, Handoff **ret, sd_bus_error *error) {
        int k;

        k = check_limits(m, r->uid, error);
        return k < 0 ? k : handoff_add(m, r, ret);
}

void handoff_format_key(const HandoffId *id, HandoffRole side, char ret[static HANDOFF_KEY_MAX]) {
        size_t n = 0;

        for (size_t i = 0; i < sizeof(id->bytes); i++)
                n += (size_t) snprintf(ret + n, HANDOFF_KEY_MAX - n, "%02x", id->bytes[i]);
        snprintf(ret + n, HANDOFF_KEY_MAX - n, "_%s", handoff_role_to_string(side));
}

int handoff_add(Manager *m, const HandoffRecord *r, Handoff **ret) {
        Handoff *h;

        h = calloc(1, sizeof(*h));
        if (!h)
                return -ENOMEM;
        h->manager = m;
        h->r = *r;
        h->retry_usec = RETRY_FIRST_USEC;
        handoff_format_key(&r->id, r->side, h->key);
        memcpy(h->id, h->key, sizeof(h->id) - 1);
        if (asprintf(&h->path, HANDOFF_PREFIX "/%s", h->key) < 0) {
                free(h);
                return -ENOMEM;
        }
        DL_APPEND(m->handoffs->list, h);
        *ret = h;
        return 0;
}

void handoff_drop(Handoff *h) {
        int r;

        r = handoff_unkeep(h);
        if (r < 0)
                log_warning_errno(r,
                                  "Handoff %s: its record cannot be removed; the next tdpd will see to it",
                                  h->key);
        if (h->told)
                bus_handoff_removed(h);
        handoff_forget(h);
}

VM *handoff_vm(const Handoff *h) {
        VM *vm = vm_find(h->manager, h->r.name);

        return vm && h->r.lease != 0 && vm->kept.lease == h->r.lease ? vm : NULL;
}

void handoff_set_abort(HandoffMessage *m, HandoffReason reason, const char *format, ...) {
        va_list ap;

        *m = (HandoffMessage){ .type = HANDOFF_ABORT, .abort.reason = reason };
        va_start(ap, format);
        vsnprintf(m->abort.text, sizeof(m->abort.text), format, ap);
        va_end(ap);
        /* It travels, and may have come from anywhere. */
        for (char *p = m->abort.text; *p; p++)
                if (*p < ' ' || *p > '~')
                        *p = '?';
}

/* What comes with a state besides its name. */
static void take_over(HandoffRecord *r, const HandoffMessage *m) {
        if (handoff_state_is_final(r->state))
                r->finished_usec = clock_usec_of(CLOCK_REALTIME);
        if (!m)
                return;
        switch (m->type) {
        case HANDOFF_ANSWER:
                r->answer = m->answer;
                if (r->side == HANDOFF_SOURCE) {
                        r->grant = m->grant;
                        r->peer = m->from;
                }
                break;
        case HANDOFF_START:
                r->start = m->start;
                /* So much longer does the source give it. */
                if (r->side == HANDOFF_DESTINATION)
                        r->deadline_usec = clock_usec_of(CLOCK_BOOTTIME) + m->start.time_left_usec;
                break;
        case HANDOFF_COMMIT:
                r->commit = m->commit;
                break;
        case HANDOFF_COMPLETE:
                if (m->complete.new_generation > 0)
                        r->complete = m->complete;
                else if (r->side == HANDOFF_SOURCE)
                        r->released_bytes = m->complete.bytes_released;
                break;
        case HANDOFF_ABORT:
                /* (a VM that is ours may go as well) */
                if (r->state == HANDOFF_S_UNDOING || r->state == HANDOFF_D_FREEING)
                        r->abort = m->abort;
                break;
        default:
                break;
        }
}

static int set_timer(Handoff *h, sd_event_source **source, uint64_t at, sd_event_time_handler_t callback) {
        *source = sd_event_source_disable_unref(*source);
        if (at == 0)
                return 0;
        return sd_event_add_time(h->manager->event, source, CLOCK_BOOTTIME, at, 0, callback, h);
}

static void set_timers(Handoff *h) {
        HandoffState s = h->r.state;
        bool ends = handoff_next(s, HANDOFF_DEADLINE).next != s;
        bool repeats = handoff_next(s, HANDOFF_RETRY).send != HANDOFF_SEND_NONE;
        uint64_t now = clock_usec_of(CLOCK_BOOTTIME);
        int r;

        r = set_timer(h, &h->deadline, ends ? h->r.deadline_usec : 0, on_deadline);
        if (r >= 0)
                r = set_timer(h, &h->retry, repeats || h->owed ? now + h->retry_usec : 0, on_retry);
        if (r < 0)
                log_warning_errno(r, "Handoff %s: no timer, so nothing happens by itself", h->key);
}

static void log_refusal(Handoff *h, HandoffEvent e, HandoffRefusal refusal) {
        if (refusal == HANDOFF_UNEXPECTED || refusal >= _HANDOFF_REFUSAL_MAX)
                log_error("Handoff %s: event %s does not fit state %s", h->key, handoff_event_to_string(e),
                          handoff_state_to_string(h->r.state));
}

int handoff_event(Handoff *h, HandoffEvent e, const HandoffMessage *body, HandoffStep *ret,
                  sd_bus_error *error) {
        HandoffStep step = handoff_next(h->r.state, e);
        bool is_new = step.next != h->r.state;
        int r;

        *ret = step;
        if (step.refusal != HANDOFF_ACCEPTED) {
                log_refusal(h, e, step.refusal);
                return handoff_refuse(h, step.refusal, error);
        }
        if (is_new) {
                HandoffRecord next = h->r;

                next.state = step.next;
                take_over(&next, body);
                r = handoff_keep(h, &next);
                if (r < 0)
                        return sd_bus_error_setf(
                                        error, TDP_ERROR_FAILED,
                                        "handoff %s of VM \"%s\" stays \"%s\", as its record cannot be "
                                        "written to %s: %s; make room there, and try again",
                                        h->key, h->r.vm, handoff_state_to_string(h->r.state),
                                        handoff_keep_path(h), strerror(-r));
                log_debug("Handoff %s: %s -> %s (%s)", h->key, handoff_state_to_string(h->r.state),
                          handoff_state_to_string(next.state), handoff_event_to_string(e));
                handoff_count(&h->manager->handoffs->counts, h->r.state, &next);
                h->r = next;
                /* What belonged to the state before is of no use, but for the news that it is off. */
                if (h->pending != HANDOFF_SEND_ABORT || !handoff_state_is_final(step.next))
                        h->pending = HANDOFF_SEND_NONE;
                h->retry_usec = RETRY_FIRST_USEC;
                h->until_usec = 0;
                set_timers(h);
        }
        if (e == HANDOFF_RESTART)
                set_timers(h);
        if (step.send != HANDOFF_SEND_NONE)
                h->pending = step.send;
        if (is_new)
                handoff_log(h);
        if (is_new || step.send != HANDOFF_SEND_NONE)
                bus_handoff_changed(h);
        if (step.work != HANDOFF_WORK_NONE)
                handoff_look_soon(h);
        return 0;
}

void handoff_happens(Handoff *h, HandoffEvent e, const HandoffMessage *body) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        HandoffStep step;
        int r;

        r = handoff_event(h, e, body, &step, &error);
        if (r >= 0 || step.refusal != HANDOFF_ACCEPTED)
                return;
        /* Nothing is done before it is written down. */
        if (h->owed == 0)
                log_warning("%s", error.message ?: strerror(-r));
        h->owed |= 1U << e;
        set_timers(h);
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *userdata) {
        Handoff *h = userdata;
        HandoffMessage why;

        handoff_set_abort(&why, HANDOFF_REASON_DEADLINE, "the %s gave it no more time, in state %s",
                          handoff_role_to_string(h->r.side), handoff_state_to_string(h->r.state));
        handoff_happens(h, HANDOFF_DEADLINE, &why);
        return 0;
}

static int on_retry(sd_event_source *s, uint64_t usec, void *userdata) {
        Handoff *h = userdata;
        uint32_t owed = h->owed;

        h->owed = 0;
        h->retry_usec = MIN_OF(2 * h->retry_usec, RETRY_MAX_USEC);
        if (owed & 1U << HANDOFF_DEADLINE)
                (void) on_deadline(NULL, 0, h);
        /* The others come from looking at the VM. */
        else if (owed != 0)
                handoff_look_soon(h);
        else
                handoff_happens(h, HANDOFF_RETRY, NULL);
        set_timers(h);
        return 0;
}

int handoff_take(Handoff *h, uint8_t **ret, size_t *ret_size) {
        HandoffProblem problem;
        int r;

        *ret = NULL;
        *ret_size = 0;
        if (h->pending == HANDOFF_SEND_NONE)
                return 0;
        r = handoff_say(&h->r, &h->manager->handoffs->host, h->pending, handoff_time_left(h), ret, ret_size,
                        &problem);
        if (r == -EINVAL)
                log_error("Handoff %s: %s", h->key, problem.text);
        if (r < 0)
                return r;
        h->pending = HANDOFF_SEND_NONE;
        bus_handoff_changed(h);
        return 0;
}
