/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>

#include "bus-error.h"
#include "handoff-calls.h"
#include "handoff-error.h"
#include "handoff-match.h"
#include "handoff-say.h"
#include "handoff-work.h"
#include "log.h"

int handoff_read_message(const void *data, size_t size, HandoffMessage *ret, sd_bus_error *error) {
        HandoffProblem problem = {};
        int r;

        r = handoff_unpack(data, size, ret, &problem);
        return r < 0 ? handoff_refuse_message(&problem, r, error) : 0;
}

/* To what is for no handoff that goes on here, or not with this grant. */
static int say_back(Manager *m, const HandoffMessage *message, HandoffSend what, const HandoffAbort *why,
                    uint8_t **ret, size_t *ret_size) {
        static const HandoffAbort unknown = {
                .reason = HANDOFF_REASON_UNKNOWN,
                .text = "there is no such handoff here, or not any more",
        };
        HandoffProblem problem;
        int r;

        if (what == HANDOFF_SEND_NONE)
                return 0;
        r = handoff_say_back(message, &m->handoffs->host, what, why ?: &unknown, ret, ret_size, &problem);
        if (r == -EINVAL)
                log_error("Nothing can be said to a message for VM %s: %s", message->vm, problem.text);
        return r;
}

static int check_contents(const Handoff *h, HandoffEvent e, const HandoffMessage *m, sd_bus_error *error) {
        HandoffProblem problem;
        int r;

        if (e != HANDOFF_GOT_ANSWER)
                return 0;
        r = handoff_check_answer(&h->r.offer, &m->answer, &problem);
        return r < 0 ? handoff_refuse_message(&problem, r, error) : 0;
}

int handoff_deliver(Manager *m, const HandoffMessage *message, Handoff **ret, uint8_t **ret_reply,
                    size_t *ret_size, sd_bus_error *error) {
        HandoffRole side = message->role == HANDOFF_SOURCE ? HANDOFF_DESTINATION : HANDOFF_SOURCE;
        Handoff *h = handoff_find(m, &message->id, side);
        HandoffIdentity identity = {
                .side = side,
                .id = message->id,
                .self = m->handoffs->host,
                .vm = h ? h->r.vm : message->vm,
                .generation = h ? h->r.generation : message->generation,
        };
        HandoffProblem problem;
        HandoffStep step;
        HandoffEvent e;
        int r;

        *ret = h;
        *ret_reply = NULL;
        *ret_size = 0;
        if (h) {
                identity.grant = h->r.grant;
                identity.peer = h->r.peer;
        }
        r = handoff_match(&identity, message, &e, &problem);
        if (r < 0)
                return handoff_refuse_message(&problem, r, error);
        if (!h && message->type == HANDOFF_OFFER)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "this offer of VM \"%s\" is new here: give it to PrepareIncoming",
                                         message->vm);
        if (!h) {
                r = handoff_check_known(m, &message->id, side, error);
                if (r < 0)
                        return r;
                step = handoff_next(side == HANDOFF_SOURCE ? HANDOFF_S_NONE : HANDOFF_D_NONE, e);
                return say_back(m, message, step.send, NULL, ret_reply, ret_size);
        }
        step = handoff_next(h->r.state, e);
        if (e == HANDOFF_GOT_FOREIGN || (step.next == h->r.state && step.send == HANDOFF_SEND_ABORT))
                return say_back(m, message, step.send, e == HANDOFF_GOT_FOREIGN ? NULL : &h->r.abort,
                                ret_reply, ret_size);
        r = check_contents(h, e, message, error);
        if (r >= 0)
                r = handoff_event(h, e, message, &step, error);
        if (r < 0)
                return r;
        if (step.work == HANDOFF_WORK_VERIFY)
                handoff_look_now(h); /* two VMs stand still meanwhile */
        else if (step.send == HANDOFF_SEND_NONE)
                return 0;
        return handoff_take(h, ret_reply, ret_size);
}
