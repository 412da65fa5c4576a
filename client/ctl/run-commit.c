/* SPDX-License-Identifier: LGPL-2.1-or-later */

/*
 * run: the destination's part of a commit. It is done here, beside QEMU and tdpd, since the guest stands
 * still meanwhile: a way to the source and back would be as long as all of it. What is left undone because
 * something fails is left to who migrates, and to run-guard.c.
 */

#include <string.h>

#include "run.h"
#include "verbs.h"

#define COMMIT_USEC UINT64_C(5000000)
#define CONT_USEC   UINT64_C(5000000)
#define VERIFY_USEC UINT64_C(1000000)

bool run_is_owner(const struct run *run) {
        static const char *const mine[] = { "taken", "owner", "done" };
        const char *state = run->incoming.handoff ? tdp_handoff_get_state(run->incoming.handoff) : NULL;

        for (size_t i = 0; state && i < ELEMENTSOF(mine); i++)
                if (strcmp(state, mine[i]) == 0)
                        return true;
        return false;
}

void run_commit_prepare(struct run *run) {
        struct incoming *in = &run->incoming;

        if (in->mode != INCOMING_HANDOFF || !run->ctx)
                return;
        /* So that its state is told, and needs no asking for. */
        if (tdp_get_handoff(run->ctx, in->id, "destination", &in->handoff) >= 0)
                (void) tdp_handoff_wait(in->handoff, 0);
}

/* It may want to look closer first. */
static void wait_for_decision(struct tdp_handoff *h) {
        int r;

        do
                r = tdp_handoff_wait(h, strcmp(tdp_handoff_get_state(h) ?: "", "verifying") == 0
                                                        ? VERIFY_USEC
                                                        : 0);
        while (r > 0);
}

void run_commit(struct run *run) {
        struct incoming *in = &run->incoming;
        _cleanup_(tdp_message_freep) struct tdp_message *commit = NULL, *reply = NULL;

        /* Before that QEMU may still fail, and then nobody would have the guest. */
        if (!in->commit || !in->loaded || !run->ctx)
                return;
        commit = TAKE_PTR(in->commit);
        in->commits = true;
        tdp_set_timeout(run->ctx, COMMIT_USEC);
        (void) tdp_deliver_handoff(run->ctx, commit, NULL, &reply);
        tdp_set_timeout(run->ctx, 0);
        if (in->handoff)
                wait_for_decision(in->handoff);
        if (run_is_owner(run) && !in->resumed)
                (void) qmp_execute(&run->qmp, "cont", CONT_USEC, NULL, NULL);
        incoming_tell_committed(in, reply);
        run->guard_usec = 0; /* which sees to the rest */
}
