/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "macro.h"

typedef enum VMState {
        VM_RESERVED,  /* pages are claimed, and being populated */
        VM_POPULATED, /* memory is there, no VMM yet */
        VM_ATTACHED,  /* there is a VMM, and nothing is built */
        VM_BUILDING,
        VM_BUILT,    /* all that was asked for is mapped */
        VM_HEALING,  /* was built, and has holes now */
        VM_RELEASED, /* pins and memory are on their way back */
        _VM_STATE_MAX,
        _VM_STATE_INVALID = -1,
} VMState;

typedef enum VMEvent {
        VM_EVENT_POPULATE_DONE,
        VM_EVENT_ATTACH,
        VM_EVENT_BUILD_START,
        VM_EVENT_BUILD_COMPLETE, /* without a hole */
        VM_EVENT_BUILD_SHORT,    /* came to its end, and holes are left */
        VM_EVENT_BUILD_FAILED,   /* or was canceled */
        VM_EVENT_HOLE,           /* statistics show a hole */
        VM_EVENT_HEALED,         /* statistics show none any more */
        VM_EVENT_RELEASE,        /* asked for, or populate failed, or the VMM has gone */
        _VM_EVENT_MAX,
} VMEvent;

const char *vm_state_to_string(VMState s);
VMState vm_state_from_string(const char *s);
const char *vm_event_to_string(VMEvent e);

/* The state that follows, or _VM_STATE_INVALID if the event makes no sense now. */
VMState vm_state_next(VMState s, VMEvent e);
