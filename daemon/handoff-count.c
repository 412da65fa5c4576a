/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "handoff-count.h"

void handoff_count(HandoffCounts *c, HandoffState before, const HandoffRecord *r) {
        uint32_t reason = r->abort.reason < _HANDOFF_REASON_MAX ? r->abort.reason : 0;

        if (r->state == HANDOFF_S_UNDOING || r->state == HANDOFF_D_FREEING)
                c->sides[r->side].aborted[reason]++;
        else if (before == HANDOFF_S_COMMITTING || before == HANDOFF_D_VERIFYING)
                c->sides[r->side].committed++;
}

int handoff_counts_append(const HandoffCounts *c, sd_bus_message *reply) {
        int r;

        r = sd_bus_message_open_container(reply, 'a', "(sst)");
        for (HandoffRole side = HANDOFF_SOURCE; side <= HANDOFF_DESTINATION && r >= 0; side++) {
                const char *role = handoff_role_to_string(side);

                if (c->sides[side].committed > 0)
                        r = sd_bus_message_append(reply, "(sst)", role, "committed",
                                                  c->sides[side].committed);
                for (uint32_t i = 0; i < _HANDOFF_REASON_MAX && r >= 0; i++)
                        if (c->sides[side].aborted[i] > 0)
                                r = sd_bus_message_append(reply, "(sst)", role, handoff_reason_to_string(i),
                                                          c->sides[side].aborted[i]);
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}
