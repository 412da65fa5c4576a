/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vm-state.h"

static const char *const state_table[_VM_STATE_MAX] = {
        [VM_RESERVED] = "reserved", [VM_POPULATED] = "populated", [VM_ATTACHED] = "attached",
        [VM_BUILDING] = "building", [VM_BUILT] = "built",         [VM_HEALING] = "healing",
        [VM_RELEASED] = "released",
};

static const char *const event_table[_VM_EVENT_MAX] = {
        [VM_EVENT_POPULATE_DONE] = "populate-done",
        [VM_EVENT_ATTACH] = "attach",
        [VM_EVENT_BUILD_START] = "build-start",
        [VM_EVENT_BUILD_COMPLETE] = "build-complete",
        [VM_EVENT_BUILD_SHORT] = "build-short",
        [VM_EVENT_BUILD_FAILED] = "build-failed",
        [VM_EVENT_HOLE] = "hole",
        [VM_EVENT_HEALED] = "healed",
        [VM_EVENT_RELEASE] = "release",
};

/* All transitions there are.  0 (reserved) is never a target, so it can mean "none". */
static const VMState transitions[_VM_STATE_MAX][_VM_EVENT_MAX] = {
        [VM_RESERVED] = {
                [VM_EVENT_POPULATE_DONE] = VM_POPULATED,
                [VM_EVENT_RELEASE] = VM_RELEASED,
        },
        [VM_POPULATED] = {
                [VM_EVENT_ATTACH] = VM_ATTACHED,
                [VM_EVENT_RELEASE] = VM_RELEASED,
        },
        [VM_ATTACHED] = {
                [VM_EVENT_BUILD_START] = VM_BUILDING,
                [VM_EVENT_RELEASE] = VM_RELEASED,
        },
        [VM_BUILDING] = {
                [VM_EVENT_BUILD_COMPLETE] = VM_BUILT,
                [VM_EVENT_BUILD_SHORT] = VM_HEALING,
                [VM_EVENT_BUILD_FAILED] = VM_ATTACHED,
                [VM_EVENT_RELEASE] = VM_RELEASED,
        },
        [VM_BUILT] = {
                [VM_EVENT_BUILD_START] = VM_BUILDING,
                [VM_EVENT_HOLE] = VM_HEALING,
                [VM_EVENT_RELEASE] = VM_RELEASED,
        },
        [VM_HEALING] = {
                [VM_EVENT_BUILD_START] = VM_BUILDING,
                [VM_EVENT_HEALED] = VM_BUILT,
                [VM_EVENT_RELEASE] = VM_RELEASED,
        },
};

const char *vm_state_to_string(VMState s) {
        return s >= 0 && s < _VM_STATE_MAX ? state_table[s] : NULL;
}

VMState vm_state_from_string(const char *s) {
        for (int i = 0; i < _VM_STATE_MAX; i++)
                if (streq(s, state_table[i]))
                        return i;
        return _VM_STATE_INVALID;
}

const char *vm_event_to_string(VMEvent e) {
        return e < _VM_EVENT_MAX ? event_table[e] : NULL;
}

VMState vm_state_next(VMState s, VMEvent e) {
        if (s < 0 || s >= _VM_STATE_MAX || e >= _VM_EVENT_MAX || transitions[s][e] == VM_RESERVED)
                return _VM_STATE_INVALID;
        return transitions[s][e];
}
