/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What each side of a handoff does next: one table, without side effects. docs/HANDOFF.md has the reasons.
 *
 * Whoever uses it writes the new state down where it survives, and only then works and sends. After a
 * restart HANDOFF_RESTART has work and message done again, so both must bear repetition.
 */

#include "handoff.h"

/* The states of one handoff on one side; "none" is what there is no record of. */
typedef enum HandoffState {
        HANDOFF_S_NONE,
        HANDOFF_S_OFFERED,
        HANDOFF_S_GRANTED,    /* the destination has the memory */
        HANDOFF_S_STARTED,    /* the VMM copies */
        HANDOFF_S_COMMITTING, /* in doubt: the destination decides, the VM does not run here */
        HANDOFF_S_SERVING, /* post-copy: the VM is the destination's, some of its memory is still here only
                            */
        HANDOFF_S_RELEASING,
        HANDOFF_S_RELEASED, /* the end: nothing is left here */
        HANDOFF_S_UNDOING,  /* it is off, the VM is ours; leaves become large again */
        HANDOFF_S_KEPT,     /* the end: as before */
        HANDOFF_D_NONE,
        HANDOFF_D_PREPARING, /* memory is reserved and populated */
        HANDOFF_D_READY,
        HANDOFF_D_RECEIVING,
        HANDOFF_D_VERIFYING, /* asked to take the VM */
        HANDOFF_D_TAKEN,     /* post-copy: the VM is ours, some of its memory still to come */
        HANDOFF_D_OWNER,     /* the VM is ours; the source may not know yet */
        HANDOFF_D_DONE,      /* the end: the source has released */
        HANDOFF_D_FREEING,
        HANDOFF_D_GONE, /* the end: nothing is left here */
        _HANDOFF_STATE_MAX,
} HandoffState;

typedef enum HandoffEvent {
        /* calls */
        HANDOFF_CALL_OFFER,
        HANDOFF_CALL_START,
        HANDOFF_CALL_COMMIT,
        HANDOFF_CALL_CANCEL,
        HANDOFF_FORGET, /* the record is to be dropped */
        /* what happens here */
        HANDOFF_DEADLINE,
        HANDOFF_RETRY, /* nothing has been heard for a while */
        HANDOFF_RESTART,
        HANDOFF_VMM_GONE,
        HANDOFF_UNDONE,
        HANDOFF_FREED,
        HANDOFF_PREPARED,
        HANDOFF_PREPARE_FAILED,
        HANDOFF_VERIFIED,
        HANDOFF_VERIFIED_PART, /* all that can be there before the switch to post-copy */
        HANDOFF_VERIFY_FAILED,
        HANDOFF_ARRIVED, /* and the rest */
        /* messages, see handoff_event_received() */
        HANDOFF_GOT_OFFER,
        HANDOFF_GOT_ANSWER,
        HANDOFF_GOT_START,
        HANDOFF_GOT_COMMIT,
        HANDOFF_GOT_TAKEN,    /* complete, with memory still to come */
        HANDOFF_GOT_COMPLETE, /* complete, of the destination */
        HANDOFF_GOT_RELEASED, /* complete, of the source */
        HANDOFF_GOT_ABORT,
        HANDOFF_GOT_FOREIGN, /* with a grant that is not that of this handoff, and wanting an answer */
        HANDOFF_GOT_LATE,    /* the same, wanting none */
        _HANDOFF_EVENT_MAX,
} HandoffEvent;

typedef enum HandoffWork {
        HANDOFF_WORK_NONE,
        HANDOFF_WORK_SPLIT,   /* ahead of dirty logging; nobody waits for its end */
        HANDOFF_WORK_HOLD,    /* neither run nor release the VM */
        HANDOFF_WORK_RELEASE, /* its memory; ends with FREED */
        HANDOFF_WORK_UNDO,    /* collapse; ends with UNDONE */
        HANDOFF_WORK_PREPARE, /* ends with PREPARED or PREPARE_FAILED */
        HANDOFF_WORK_VERIFY,  /* ends with VERIFIED, VERIFIED_PART or VERIFY_FAILED */
        HANDOFF_WORK_OWN,     /* the VM is one of ours, of the next generation */
        HANDOFF_WORK_FREE,    /* ends preparing, if that still runs; ends with FREED */
        _HANDOFF_WORK_MAX,
} HandoffWork;

typedef enum HandoffSend {
        HANDOFF_SEND_NONE,
        HANDOFF_SEND_OFFER,
        HANDOFF_SEND_ANSWER,
        HANDOFF_SEND_START,
        HANDOFF_SEND_COMMIT,
        HANDOFF_SEND_TAKEN,
        HANDOFF_SEND_COMPLETE,
        HANDOFF_SEND_RELEASED,
        HANDOFF_SEND_ABORT, /* with the grant of the message that it answers, if it is one */
        _HANDOFF_SEND_MAX,
} HandoffSend;

/* Why an event changes nothing. */
typedef enum HandoffRefusal {
        HANDOFF_ACCEPTED,
        HANDOFF_UNKNOWN,    /* there is no such handoff */
        HANDOFF_EXISTS,     /* there is one already, or it has not ended */
        HANDOFF_TOO_EARLY,  /* something has to come before */
        HANDOFF_TOO_LATE,   /* the destination may have the VM, or has it */
        HANDOFF_OFF,        /* it has been aborted */
        HANDOFF_WRONG_SIDE, /* the other side's to say */
        HANDOFF_PEER,       /* the peer contradicts what it has said, or what it has been told */
        HANDOFF_UNEXPECTED, /* the end of work that was not asked for: a defect of this daemon */
        _HANDOFF_REFUSAL_MAX,
} HandoffRefusal;

typedef struct HandoffStep {
        HandoffState next; /* to be recorded first */
        HandoffWork work;
        HandoffSend send;
        HandoffRefusal refusal;
} HandoffStep;

HandoffStep handoff_next(HandoffState s, HandoffEvent e);

HandoffRole handoff_state_side(HandoffState s);
/* The VM is this side's: it may run here. */
bool handoff_state_owns(HandoffState s);
/* Nothing happens any more by itself. */
bool handoff_state_is_final(HandoffState s);

/* Whether an offer of this generation may be prepared for, on a host that has or has not got a VM of that
 * name, and has seen it with a generation of "seen" (0: never).  0, or the reason to refuse it with. */
HandoffReason handoff_refuse_offer(uint64_t generation, uint64_t seen, bool is_here);

/* A message's grant against that of the record. */
typedef enum HandoffGrant {
        HANDOFF_GRANT_NONE,  /* the message has none, the record has one */
        HANDOFF_GRANT_FIRST, /* the other way round, or there is no record */
        HANDOFF_GRANT_SAME,  /* also if neither has one */
        HANDOFF_GRANT_OTHER,
        _HANDOFF_GRANT_MAX,
} HandoffGrant;

/* The event that a message of this handoff (id, VM, generation and hosts agree) is for its reader. */
HandoffEvent handoff_event_received(HandoffRole writer, HandoffType type, bool bytes_left,
                                    HandoffGrant grant);

const char *handoff_state_to_string(HandoffState s); /* "committing" */
int handoff_state_from_string(HandoffRole side, const char *s, HandoffState *ret);
const char *handoff_event_to_string(HandoffEvent e);
const char *handoff_work_to_string(HandoffWork w);
const char *handoff_send_to_string(HandoffSend s);
const char *handoff_refusal_to_string(HandoffRefusal r);
