/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "handoff-table.h"

static const char *const events[_HANDOFF_EVENT_MAX] = {
        [HANDOFF_CALL_OFFER] = "call-offer",
        [HANDOFF_CALL_START] = "call-start",
        [HANDOFF_CALL_COMMIT] = "call-commit",
        [HANDOFF_CALL_CANCEL] = "call-cancel",
        [HANDOFF_FORGET] = "forget",
        [HANDOFF_DEADLINE] = "deadline",
        [HANDOFF_RETRY] = "retry",
        [HANDOFF_RESTART] = "restart",
        [HANDOFF_VMM_GONE] = "vmm-gone",
        [HANDOFF_UNDONE] = "undone",
        [HANDOFF_FREED] = "freed",
        [HANDOFF_PREPARED] = "prepared",
        [HANDOFF_PREPARE_FAILED] = "prepare-failed",
        [HANDOFF_VERIFIED] = "verified",
        [HANDOFF_VERIFIED_PART] = "verified-part",
        [HANDOFF_VERIFY_FAILED] = "verify-failed",
        [HANDOFF_ARRIVED] = "arrived",
        [HANDOFF_GOT_OFFER] = "got-offer",
        [HANDOFF_GOT_ANSWER] = "got-answer",
        [HANDOFF_GOT_START] = "got-start",
        [HANDOFF_GOT_COMMIT] = "got-commit",
        [HANDOFF_GOT_TAKEN] = "got-taken",
        [HANDOFF_GOT_COMPLETE] = "got-complete",
        [HANDOFF_GOT_RELEASED] = "got-released",
        [HANDOFF_GOT_ABORT] = "got-abort",
        [HANDOFF_GOT_FOREIGN] = "got-foreign",
        [HANDOFF_GOT_LATE] = "got-late",
};

static const char *const works[_HANDOFF_WORK_MAX] = {
        [HANDOFF_WORK_NONE] = "none",     [HANDOFF_WORK_SPLIT] = "split",
        [HANDOFF_WORK_HOLD] = "hold",     [HANDOFF_WORK_RELEASE] = "release",
        [HANDOFF_WORK_UNDO] = "undo",     [HANDOFF_WORK_PREPARE] = "prepare",
        [HANDOFF_WORK_VERIFY] = "verify", [HANDOFF_WORK_OWN] = "own",
        [HANDOFF_WORK_FREE] = "free",
};

static const char *const sends[_HANDOFF_SEND_MAX] = {
        [HANDOFF_SEND_NONE] = "none",         [HANDOFF_SEND_OFFER] = "offer",
        [HANDOFF_SEND_ANSWER] = "answer",     [HANDOFF_SEND_START] = "start",
        [HANDOFF_SEND_COMMIT] = "commit",     [HANDOFF_SEND_TAKEN] = "taken",
        [HANDOFF_SEND_COMPLETE] = "complete", [HANDOFF_SEND_RELEASED] = "released",
        [HANDOFF_SEND_ABORT] = "abort",
};

static const char *const refusals[_HANDOFF_REFUSAL_MAX] = {
        [HANDOFF_ACCEPTED] = "accepted",     [HANDOFF_UNKNOWN] = "unknown",
        [HANDOFF_EXISTS] = "exists",         [HANDOFF_TOO_EARLY] = "too-early",
        [HANDOFF_TOO_LATE] = "too-late",     [HANDOFF_OFF] = "off",
        [HANDOFF_WRONG_SIDE] = "wrong-side", [HANDOFF_PEER] = "peer-contradicts",
        [HANDOFF_UNEXPECTED] = "unexpected",
};

const char *handoff_event_to_string(HandoffEvent e) {
        return e < _HANDOFF_EVENT_MAX ? events[e] : NULL;
}

const char *handoff_work_to_string(HandoffWork w) {
        return w < _HANDOFF_WORK_MAX ? works[w] : NULL;
}

const char *handoff_send_to_string(HandoffSend s) {
        return s < _HANDOFF_SEND_MAX ? sends[s] : NULL;
}

const char *handoff_refusal_to_string(HandoffRefusal r) {
        return r < _HANDOFF_REFUSAL_MAX ? refusals[r] : NULL;
}
