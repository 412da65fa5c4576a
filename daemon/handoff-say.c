/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>

#include "handoff-say.h"

static const HandoffType types[_HANDOFF_SEND_MAX] = {
        [HANDOFF_SEND_OFFER] = HANDOFF_OFFER,       [HANDOFF_SEND_ANSWER] = HANDOFF_ANSWER,
        [HANDOFF_SEND_START] = HANDOFF_START,       [HANDOFF_SEND_COMMIT] = HANDOFF_COMMIT,
        [HANDOFF_SEND_TAKEN] = HANDOFF_COMPLETE,    [HANDOFF_SEND_COMPLETE] = HANDOFF_COMPLETE,
        [HANDOFF_SEND_RELEASED] = HANDOFF_COMPLETE, [HANDOFF_SEND_ABORT] = HANDOFF_ABORT,
};

static void set_body(HandoffMessage *m, const HandoffRecord *r, HandoffSend what, uint64_t time_left) {
        switch (what) {
        case HANDOFF_SEND_OFFER:
                m->offer = r->offer;
                m->offer.time_left_usec = time_left;
                /* Nobody has answered yet: whoever has it may. */
                m->to = m->grant = (HandoffId){};
                break;
        case HANDOFF_SEND_ANSWER:
                m->answer = r->answer;
                m->answer.time_left_usec = time_left;
                break;
        case HANDOFF_SEND_START:
                m->start = r->start;
                m->start.time_left_usec = time_left;
                break;
        case HANDOFF_SEND_COMMIT:
                m->commit = r->commit;
                break;
        case HANDOFF_SEND_TAKEN:
                m->complete = r->complete;
                break;
        case HANDOFF_SEND_COMPLETE:
                m->complete = r->complete;
                m->complete.bytes_left = 0;
                break;
        case HANDOFF_SEND_RELEASED:
                m->complete = (HandoffComplete){ .bytes_released = r->released_bytes };
                break;
        default:
                m->abort = r->abort;
                if (m->abort.reason == 0)
                        m->abort.reason = HANDOFF_REASON_FAILED;
                break;
        }
}

int handoff_say(const HandoffRecord *r, const HandoffId *self, HandoffSend what, uint64_t time_left_usec,
                uint8_t **ret, size_t *ret_size, HandoffProblem *problem) {
        HandoffMessage m = {
                .role = r->side,
                .id = r->id,
                .from = *self,
                .to = r->peer,
                .grant = r->grant,
                .generation = r->generation,
                .type = types[what],
        };

        strcpy(m.vm, r->vm);
        /* A duration of 0 is none. */
        set_body(&m, r, what, MAX_OF(time_left_usec, UINT64_C(1)));
        return handoff_pack(&m, ret, ret_size, problem);
}

int handoff_say_back(const HandoffMessage *to, const HandoffId *self, HandoffSend what,
                     const HandoffAbort *why, uint8_t **ret, size_t *ret_size, HandoffProblem *problem) {
        HandoffMessage m = {
                .role = to->role == HANDOFF_SOURCE ? HANDOFF_DESTINATION : HANDOFF_SOURCE,
                .id = to->id,
                .from = *self,
                .to = to->from,
                .grant = to->grant,
                .generation = to->generation,
                .type = types[what],
        };

        strcpy(m.vm, to->vm);
        if (what == HANDOFF_SEND_ABORT)
                m.abort = *why;
        return handoff_pack(&m, ret, ret_size, problem);
}
