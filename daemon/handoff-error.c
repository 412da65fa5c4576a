/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "handoff-error.h"

#include <errno.h>

#include "bus-error.h"
#include "quarantine.h"

static const struct {
        HandoffReason reason;
        const char *name;
} reasons[] = {
        { HANDOFF_REASON_CANCELED, TDP_ERROR_CANCELED },
        { HANDOFF_REASON_DEADLINE, TDP_ERROR_EXPIRED },
        { HANDOFF_REASON_NO_PAGES, TDP_ERROR_NO_PAGES },
        { HANDOFF_REASON_NOT_CONFIGURED, TDP_ERROR_NO_PAGES },
        { HANDOFF_REASON_UNSUPPORTED, TDP_ERROR_UNSUPPORTED },
        { HANDOFF_REASON_NAME_TAKEN, TDP_ERROR_NAME_TAKEN },
        { HANDOFF_REASON_STALE, TDP_ERROR_STALE },
        { HANDOFF_REASON_UNKNOWN, TDP_ERROR_NO_SUCH_HANDOFF },
        { HANDOFF_REASON_VMM_GONE, TDP_ERROR_NO_SUCH_PROCESS },
        { HANDOFF_REASON_LIMIT, TDP_ERROR_LIMIT },
        { HANDOFF_REASON_VERSION, TDP_ERROR_TOO_NEW },
};

const char *handoff_reason_error(uint32_t reason) {
        for (size_t i = 0; i < ELEMENTSOF(reasons); i++)
                if (reasons[i].reason == reason)
                        return reasons[i].name;
        return TDP_ERROR_FAILED;
}

HandoffReason handoff_error_reason(const char *name) {
        for (size_t i = 0; i < ELEMENTSOF(reasons); i++)
                if (streq(reasons[i].name, name))
                        return reasons[i].reason;
        return HANDOFF_REASON_FAILED;
}

int handoff_refuse_ended(const Handoff *h, sd_bus_error *error) {
        return sd_bus_error_setf(error, handoff_reason_error(h->r.abort.reason),
                                 "handoff %s of VM \"%s\" is off (%s): %s; make a new offer", h->key,
                                 h->r.vm, handoff_reason_to_string(h->r.abort.reason), h->r.abort.text);
}

int handoff_refuse(const Handoff *h, HandoffRefusal refusal, sd_bus_error *error) {
        const char *state = handoff_state_to_string(h->r.state);

        switch (refusal) {
        case HANDOFF_UNKNOWN:
                return sd_bus_error_setf(error, TDP_ERROR_NO_SUCH_HANDOFF, "there is no handoff %s", h->key);
        case HANDOFF_EXISTS:
                return sd_bus_error_setf(
                                error, TDP_ERROR_BUSY,
                                "handoff %s of VM \"%s\" is under way, and %s: wait for its end, or "
                                "cancel it",
                                h->key, h->r.vm, state);
        case HANDOFF_TOO_EARLY:
                return sd_bus_error_setf(
                                error, TDP_ERROR_TOO_EARLY,
                                "handoff %s of VM \"%s\" is %s: that comes later%s", h->key, h->r.vm, state,
                                h->r.state == HANDOFF_S_OFFERED ? ", the answer is still to come" : "");
        case HANDOFF_TOO_LATE:
                return sd_bus_error_setf(error, TDP_ERROR_TOO_LATE,
                                         "handoff %s of VM \"%s\" is %s: the destination decides, or has "
                                         "decided, and the VM may be there already",
                                         h->key, h->r.vm, state);
        case HANDOFF_OFF:
                return handoff_refuse_ended(h, error);
        case HANDOFF_WRONG_SIDE:
                return sd_bus_error_setf(
                                error, TDP_ERROR_INVALID,
                                "handoff %s of VM \"%s\" is the %s's side: that is for the other one",
                                h->key, h->r.vm, handoff_role_to_string(h->r.side));
        case HANDOFF_PEER:
                return sd_bus_error_setf(error, TDP_ERROR_MISMATCH,
                                         "handoff %s of VM \"%s\" is %s: the other side contradicts what it "
                                         "has said, or was told",
                                         h->key, h->r.vm, state);
        default:
                return sd_bus_error_setf(error, TDP_ERROR_FAILED,
                                         "handoff %s of VM \"%s\" is %s, and that does not fit: a defect of "
                                         "tdpd",
                                         h->key, h->r.vm, state);
        }
}

int handoff_check_known(Manager *m, const HandoffId *id, HandoffRole side, sd_bus_error *error) {
        char key[HANDOFF_KEY_MAX];
        const Quarantine *q;

        handoff_format_key(id, side, key);
        q = quarantine_find(m, key);
        if (!q)
                return 0;
        return sd_bus_error_setf(
                        error, TDP_ERROR_FAILED,
                        "what is known here of handoff %s is left alone: %s, as %s; nothing is said to "
                        "its messages before that is settled",
                        key, quarantine_what(q), quarantine_text(q));
}

int handoff_refuse_message(const HandoffProblem *problem, int r, sd_bus_error *error) {
        const char *name = TDP_ERROR_BAD_MESSAGE;

        if (r == -ENOMEM)
                return r;
        if (problem->error == HANDOFF_TOO_NEW || problem->error == HANDOFF_UNKNOWN_FEATURE)
                name = TDP_ERROR_TOO_NEW;
        else if (problem->error == HANDOFF_MISMATCH)
                name = TDP_ERROR_MISMATCH;
        return sd_bus_error_setf(error, name, "the message is refused (%s): %s",
                                 handoff_error_to_string(problem->error), problem->text);
}
