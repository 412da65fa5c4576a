/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <inttypes.h>

#include "handoff-match.h"

static HandoffGrant match_grant(const HandoffId *ours, const HandoffId *theirs) {
        if (handoff_id_equal(ours, theirs))
                return HANDOFF_GRANT_SAME;
        if (!handoff_id_is_set(theirs))
                return HANDOFF_GRANT_NONE;
        return handoff_id_is_set(ours) ? HANDOFF_GRANT_OTHER : HANDOFF_GRANT_FIRST;
}

static bool is_host(const HandoffId *host, const HandoffId *said) {
        return !handoff_id_is_set(host) || !handoff_id_is_set(said) || handoff_id_equal(host, said);
}

int handoff_match(const HandoffIdentity *h, const HandoffMessage *m, HandoffEvent *ret,
                  HandoffProblem *problem) {
        const char *type = handoff_type_to_string(m->type);
        bool bytes_left;

        *problem = (HandoffProblem){};
        if (!handoff_id_equal(&h->id, &m->id))
                return handoff_problem(problem, HANDOFF_MISMATCH, "id: the %s is of another handoff", type);
        if (m->role == h->side)
                return handoff_problem(problem, HANDOFF_MISMATCH,
                                       "role: the %s is of the %s, which is this side of handoff of VM '%s'",
                                       type, handoff_role_to_string(m->role), h->vm);
        if (!streq(h->vm, m->vm))
                return handoff_problem(problem, HANDOFF_MISMATCH,
                                       "vm: the %s is for '%s', the handoff is of '%s'", type, m->vm, h->vm);
        if (h->generation != m->generation)
                return handoff_problem(problem, HANDOFF_MISMATCH,
                                       "generation: the %s is for %" PRIu64
                                       ", the handoff of VM '%s' is of %" PRIu64,
                                       type, m->generation, h->vm, h->generation);
        if (!is_host(&h->self, &m->to))
                return handoff_problem(problem, HANDOFF_MISMATCH,
                                       "to: the %s for VM '%s' is for another host", type, h->vm);
        if (!is_host(&h->peer, &m->from))
                return handoff_problem(problem, HANDOFF_MISMATCH,
                                       "from: the %s for VM '%s' is from another host", type, h->vm);

        bytes_left = m->type == HANDOFF_COMPLETE && m->complete.bytes_left > 0;
        *ret = handoff_event_received(m->role, m->type, bytes_left, match_grant(&h->grant, &m->grant));
        return 0;
}
