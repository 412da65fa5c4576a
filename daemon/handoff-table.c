/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <errno.h>

#include "handoff-table.h"

/* What comes with each state: done when it is entered, and again after a restart. */
typedef struct StateInfo {
        const char *name;
        HandoffRole side;
        HandoffWork work;
        HandoffSend send;
        bool owns;
        bool final;
} StateInfo;

/* clang-format off */
static const StateInfo states[_HANDOFF_STATE_MAX] = {
        [HANDOFF_S_NONE]       = { "none",       HANDOFF_SOURCE,      0,                    0,                     true,  true },
        [HANDOFF_S_OFFERED]    = { "offered",    HANDOFF_SOURCE,      0,                    HANDOFF_SEND_OFFER,    true,  false },
        [HANDOFF_S_GRANTED]    = { "granted",    HANDOFF_SOURCE,      0,                    0,                     true,  false },
        [HANDOFF_S_STARTED]    = { "started",    HANDOFF_SOURCE,      HANDOFF_WORK_SPLIT,   HANDOFF_SEND_START,    true,  false },
        [HANDOFF_S_COMMITTING] = { "committing", HANDOFF_SOURCE,      HANDOFF_WORK_HOLD,    HANDOFF_SEND_COMMIT,   false, false },
        [HANDOFF_S_SERVING]    = { "serving",    HANDOFF_SOURCE,      HANDOFF_WORK_HOLD,    HANDOFF_SEND_COMMIT,   false, false },
        [HANDOFF_S_RELEASING]  = { "releasing",  HANDOFF_SOURCE,      HANDOFF_WORK_RELEASE, 0,                     false, false },
        [HANDOFF_S_RELEASED]   = { "released",   HANDOFF_SOURCE,      0,                    HANDOFF_SEND_RELEASED, false, true },
        [HANDOFF_S_UNDOING]    = { "undoing",    HANDOFF_SOURCE,      HANDOFF_WORK_UNDO,    HANDOFF_SEND_ABORT,    true,  false },
        [HANDOFF_S_KEPT]       = { "kept",       HANDOFF_SOURCE,      0,                    0,                     true,  true },
        [HANDOFF_D_NONE]       = { "none",       HANDOFF_DESTINATION, 0,                    0,                     false, true },
        [HANDOFF_D_PREPARING]  = { "preparing",  HANDOFF_DESTINATION, HANDOFF_WORK_PREPARE, 0,                     false, false },
        [HANDOFF_D_READY]      = { "ready",      HANDOFF_DESTINATION, 0,                    HANDOFF_SEND_ANSWER,   false, false },
        [HANDOFF_D_RECEIVING]  = { "receiving",  HANDOFF_DESTINATION, 0,                    0,                     false, false },
        [HANDOFF_D_VERIFYING]  = { "verifying",  HANDOFF_DESTINATION, HANDOFF_WORK_VERIFY,  0,                     false, false },
        [HANDOFF_D_TAKEN]      = { "taken",      HANDOFF_DESTINATION, HANDOFF_WORK_OWN,     HANDOFF_SEND_TAKEN,    true,  false },
        [HANDOFF_D_OWNER]      = { "owner",      HANDOFF_DESTINATION, HANDOFF_WORK_OWN,     HANDOFF_SEND_COMPLETE, true,  false },
        [HANDOFF_D_DONE]       = { "done",       HANDOFF_DESTINATION, 0,                    0,                     true,  true },
        [HANDOFF_D_FREEING]    = { "freeing",    HANDOFF_DESTINATION, HANDOFF_WORK_FREE,    HANDOFF_SEND_ABORT,    false, false },
        [HANDOFF_D_GONE]       = { "gone",       HANDOFF_DESTINATION, 0,                    0,                     false, true },
};

typedef struct Cell {
        enum { CELL_UNDEFINED, CELL_ENTER, CELL_REDO, CELL_SEND, CELL_SKIP, CELL_REFUSE } what;
        unsigned arg; /* state, message or refusal */
} Cell;

#define COLUMNS 10

#define S(state) { CELL_ENTER, HANDOFF_S_##state }
#define D(state) { CELL_ENTER, HANDOFF_D_##state }
#define re(msg)  { CELL_SEND, HANDOFF_SEND_##msg }
#define skip     { CELL_SKIP }        /* late, or repeated: nothing is left to do */
#define redo     { CELL_REDO }        /* work and message of the state, again */
#define unkn     { CELL_REFUSE, HANDOFF_UNKNOWN }
#define exst     { CELL_REFUSE, HANDOFF_EXISTS }
#define erly     { CELL_REFUSE, HANDOFF_TOO_EARLY }
#define late     { CELL_REFUSE, HANDOFF_TOO_LATE }
#define off      { CELL_REFUSE, HANDOFF_OFF }
#define wrng     { CELL_REFUSE, HANDOFF_WRONG_SIDE }
#define peer     { CELL_REFUSE, HANDOFF_PEER }
#define bug      { CELL_REFUSE, HANDOFF_UNEXPECTED }
#define ALL(c)   { c, c, c, c, c, c, c, c, c, c }

static const Cell source[_HANDOFF_EVENT_MAX][COLUMNS] = {
        /*                           none       offered     granted     started        committing    serving       releasing    released      undoing    kept */
        [HANDOFF_CALL_OFFER]     = { S(OFFERED), exst,      exst,       exst,          exst,         exst,         exst,        exst,         exst,      exst },
        [HANDOFF_CALL_START]     = { unkn,      erly,       S(STARTED), re(START),     late,         late,         late,        late,         off,       off },
        [HANDOFF_CALL_COMMIT]    = { unkn,      erly,       erly,       S(COMMITTING), re(COMMIT),   re(COMMIT),   skip,        skip,         off,       off },
        [HANDOFF_CALL_CANCEL]    = { unkn,      S(UNDOING), S(UNDOING), S(UNDOING),    late,         late,         late,        late,         skip,      skip },
        [HANDOFF_FORGET]         = { skip,      exst,       exst,       exst,          exst,         exst,         exst,        S(NONE),      exst,      S(NONE) },

        [HANDOFF_DEADLINE]       = { skip,      S(UNDOING), S(UNDOING), S(UNDOING),    re(COMMIT),   re(COMMIT),   skip,        skip,         skip,      skip },
        [HANDOFF_RETRY]          = { skip,      re(OFFER),  skip,       re(START),     re(COMMIT),   re(COMMIT),   skip,        skip,         re(ABORT), skip },
        [HANDOFF_RESTART]        = { skip,      redo,       skip,       redo,          redo,         redo,         redo,        skip,         redo,      skip },
        [HANDOFF_VMM_GONE]       = { skip,      S(UNDOING), S(UNDOING), S(UNDOING),    skip,         skip,         skip,        skip,         skip,      skip },
        [HANDOFF_UNDONE]         = { bug,       bug,        bug,        bug,           bug,          bug,          bug,         bug,          S(KEPT),   skip },
        [HANDOFF_FREED]          = { bug,       bug,        bug,        bug,           bug,          bug,          S(RELEASED), skip,         bug,       bug },
        [HANDOFF_PREPARED]       = ALL(wrng),
        [HANDOFF_PREPARE_FAILED] = ALL(wrng),
        [HANDOFF_VERIFIED]       = ALL(wrng),
        [HANDOFF_VERIFIED_PART]  = ALL(wrng),
        [HANDOFF_VERIFY_FAILED]  = ALL(wrng),
        [HANDOFF_ARRIVED]        = ALL(wrng),

        [HANDOFF_GOT_OFFER]      = ALL(wrng),
        [HANDOFF_GOT_ANSWER]     = { re(ABORT), S(GRANTED), skip,       skip,          skip,         skip,         skip,        skip,         re(ABORT), re(ABORT) },
        [HANDOFF_GOT_START]      = ALL(wrng),
        [HANDOFF_GOT_COMMIT]     = ALL(wrng),
        [HANDOFF_GOT_TAKEN]      = { skip,      peer,       peer,       peer,          S(SERVING),   skip,         skip,        skip,         peer,      peer },
        [HANDOFF_GOT_COMPLETE]   = { re(RELEASED), peer,    peer,       peer,          S(RELEASING), S(RELEASING), skip,        re(RELEASED), peer,      peer },
        [HANDOFF_GOT_RELEASED]   = ALL(wrng),
        [HANDOFF_GOT_ABORT]      = { skip,      S(UNDOING), S(UNDOING), S(UNDOING),    S(UNDOING),   peer,         peer,        skip,         skip,      skip },
        [HANDOFF_GOT_FOREIGN]    = ALL(re(ABORT)),
        [HANDOFF_GOT_LATE]       = ALL(skip),
};

static const Cell destination[_HANDOFF_EVENT_MAX][COLUMNS] = {
        /*                           none       preparing   ready         receiving     verifying   taken      owner         done          freeing    gone */
        [HANDOFF_CALL_OFFER]     = ALL(wrng),
        [HANDOFF_CALL_START]     = ALL(wrng),
        [HANDOFF_CALL_COMMIT]    = ALL(wrng),
        [HANDOFF_CALL_CANCEL]    = { unkn,      D(FREEING), D(FREEING),   D(FREEING),   D(FREEING), late,      late,         late,         skip,      skip },
        [HANDOFF_FORGET]         = { skip,      exst,       exst,         exst,         exst,       exst,      exst,         D(NONE),      exst,      D(NONE) },

        [HANDOFF_DEADLINE]       = { skip,      D(FREEING), D(FREEING),   D(FREEING),   D(FREEING), re(TAKEN), re(COMPLETE), skip,         skip,      skip },
        [HANDOFF_RETRY]          = { skip,      skip,       re(ANSWER),   skip,         skip,       re(TAKEN), re(COMPLETE), skip,         re(ABORT), skip },
        [HANDOFF_RESTART]        = { skip,      redo,       redo,         skip,         redo,       redo,      redo,         skip,         redo,      skip },
        [HANDOFF_VMM_GONE]       = { skip,      skip,       D(FREEING),   D(FREEING),   D(FREEING), D(OWNER),  skip,         skip,         skip,      skip },
        [HANDOFF_UNDONE]         = ALL(wrng),
        [HANDOFF_FREED]          = { bug,       bug,        bug,          bug,          bug,        bug,       bug,          bug,          D(GONE),   skip },
        [HANDOFF_PREPARED]       = { bug,       D(READY),   skip,         skip,         skip,       skip,      skip,         skip,         skip,      skip },
        [HANDOFF_PREPARE_FAILED] = { bug,       D(FREEING), bug,          bug,          bug,        bug,       bug,          bug,          skip,      skip },
        [HANDOFF_VERIFIED]       = { bug,       bug,        bug,          bug,          D(OWNER),   skip,      skip,         skip,         skip,      skip },
        [HANDOFF_VERIFIED_PART]  = { bug,       bug,        bug,          bug,          D(TAKEN),   skip,      skip,         skip,         skip,      skip },
        [HANDOFF_VERIFY_FAILED]  = { bug,       bug,        bug,          bug,          D(FREEING), skip,      skip,         skip,         skip,      skip },
        [HANDOFF_ARRIVED]        = { bug,       bug,        bug,          bug,          bug,        D(OWNER),  skip,         skip,         skip,      skip },

        [HANDOFF_GOT_OFFER]      = { D(PREPARING), skip,    re(ANSWER),   skip,         skip,       skip,      skip,         skip,         re(ABORT), re(ABORT) },
        [HANDOFF_GOT_ANSWER]     = ALL(wrng),
        [HANDOFF_GOT_START]      = { re(ABORT), peer,       D(RECEIVING), skip,         skip,       skip,      skip,         skip,         re(ABORT), re(ABORT) },
        [HANDOFF_GOT_COMMIT]     = { re(ABORT), peer,       D(VERIFYING), D(VERIFYING), skip,       re(TAKEN), re(COMPLETE), re(COMPLETE), re(ABORT), re(ABORT) },
        [HANDOFF_GOT_TAKEN]      = ALL(wrng),
        [HANDOFF_GOT_COMPLETE]   = ALL(wrng),
        [HANDOFF_GOT_RELEASED]   = { skip,      peer,       peer,         peer,         peer,       peer,      D(DONE),      skip,         peer,      peer },
        [HANDOFF_GOT_ABORT]      = { skip,      D(FREEING), D(FREEING),   D(FREEING),   D(FREEING), peer,      skip,         skip,         skip,      skip },
        [HANDOFF_GOT_FOREIGN]    = ALL(re(ABORT)),
        [HANDOFF_GOT_LATE]       = ALL(skip),
};
/* clang-format on */

static_assert(HANDOFF_D_NONE == COLUMNS && _HANDOFF_STATE_MAX == 2 * COLUMNS,
              "columns are states, in order");

HandoffStep handoff_next(HandoffState s, HandoffEvent e) {
        HandoffStep step = { .next = s };
        Cell cell = {};

        if (s < _HANDOFF_STATE_MAX && e < _HANDOFF_EVENT_MAX)
                cell = states[s].side == HANDOFF_SOURCE ? source[e][s] : destination[e][s - HANDOFF_D_NONE];

        switch (cell.what) {
        case CELL_ENTER:
                step.next = (HandoffState) cell.arg;
                step.work = states[step.next].work;
                step.send = states[step.next].send;
                break;
        case CELL_REDO:
                step.work = states[s].work;
                step.send = states[s].send;
                break;
        case CELL_SEND:
                step.send = (HandoffSend) cell.arg;
                break;
        case CELL_SKIP:
                break;
        case CELL_REFUSE:
                step.refusal = (HandoffRefusal) cell.arg;
                break;
        default:
                step.refusal = _HANDOFF_REFUSAL_MAX;
        }
        return step;
}

HandoffRole handoff_state_side(HandoffState s) {
        return states[s].side;
}

bool handoff_state_owns(HandoffState s) {
        return states[s].owns;
}

bool handoff_state_is_final(HandoffState s) {
        return states[s].final;
}

HandoffReason handoff_refuse_offer(uint64_t generation, uint64_t seen, bool is_here) {
        /* Said first: an old offer of a VM that has come and is here is old. */
        if (generation < seen)
                return HANDOFF_REASON_STALE;
        return is_here ? HANDOFF_REASON_NAME_TAKEN : 0;
}

HandoffEvent handoff_event_received(HandoffRole writer, HandoffType type, bool bytes_left,
                                    HandoffGrant grant) {
        bool other = grant == HANDOFF_GRANT_OTHER;

        switch (type) {
        case HANDOFF_OFFER:
                return HANDOFF_GOT_OFFER;
        case HANDOFF_ANSWER:
                return other ? HANDOFF_GOT_FOREIGN : HANDOFF_GOT_ANSWER;
        case HANDOFF_START:
                return other ? HANDOFF_GOT_FOREIGN : HANDOFF_GOT_START;
        case HANDOFF_COMMIT:
                return other ? HANDOFF_GOT_FOREIGN : HANDOFF_GOT_COMMIT;
        case HANDOFF_COMPLETE:
                if (other)
                        return HANDOFF_GOT_LATE;
                if (writer == HANDOFF_SOURCE)
                        return HANDOFF_GOT_RELEASED;
                return bytes_left ? HANDOFF_GOT_TAKEN : HANDOFF_GOT_COMPLETE;
        case HANDOFF_ABORT:
                /* A destination that has granted says with which grant it takes it back; a source may never
                 * have heard of the grant. */
                if (other || (grant == HANDOFF_GRANT_NONE && writer == HANDOFF_DESTINATION))
                        return HANDOFF_GOT_LATE;
                return HANDOFF_GOT_ABORT;
        default:
                return HANDOFF_GOT_LATE;
        }
}

const char *handoff_state_to_string(HandoffState s) {
        return s < _HANDOFF_STATE_MAX ? states[s].name : NULL;
}

int handoff_state_from_string(HandoffRole role, const char *s, HandoffState *ret) {
        for (HandoffState i = 0; i < _HANDOFF_STATE_MAX; i++)
                if (states[i].side == role && streq(states[i].name, s)) {
                        *ret = i;
                        return 0;
                }
        return -EINVAL;
}
