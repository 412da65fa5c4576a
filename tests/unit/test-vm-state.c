/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "vm-state.h"

/* Every cell, written down a second time by hand: rows are states, columns events in their order. */
static void test_all_cells(void **state) {
        /* clang-format off */
        static const char *const expected[_VM_STATE_MAX] = {
                [VM_RESERVED]  = "p........",
                [VM_POPULATED] = ".a.......",
                [VM_ATTACHED]  = "..B......",
                [VM_BUILDING]  = "...bha...",
                [VM_BUILT]     = "..B...h..",
                [VM_HEALING]   = "..B....b.",
                [VM_RELEASED]  = ".........",
        };
        /* clang-format on */

        for (VMState s = 0; s < _VM_STATE_MAX; s++)
                for (VMEvent e = 0; e < _VM_EVENT_MAX; e++) {
                        VMState want = _VM_STATE_INVALID;

                        switch (expected[s][e]) {
                        case 'p':
                                want = VM_POPULATED;
                                break;
                        case 'a':
                                want = VM_ATTACHED;
                                break;
                        case 'B':
                                want = VM_BUILDING;
                                break;
                        case 'b':
                                want = VM_BUILT;
                                break;
                        case 'h':
                                want = VM_HEALING;
                                break;
                        }
                        /* From anywhere, once. */
                        if (e == VM_EVENT_RELEASE && s != VM_RELEASED)
                                want = VM_RELEASED;
                        if (vm_state_next(s, e) != want)
                                fail_msg("%s + %s gives %i", vm_state_to_string(s), vm_event_to_string(e),
                                         vm_state_next(s, e));
                }
}

static void test_names(void **state) {
        for (VMState s = 0; s < _VM_STATE_MAX; s++) {
                assert_non_null(vm_state_to_string(s));
                assert_int_equal(vm_state_from_string(vm_state_to_string(s)), s);
        }
        for (VMEvent e = 0; e < _VM_EVENT_MAX; e++)
                assert_non_null(vm_event_to_string(e));
        assert_null(vm_state_to_string(_VM_STATE_INVALID));
        assert_null(vm_state_to_string(_VM_STATE_MAX));
        assert_int_equal(vm_state_from_string("nonsense"), _VM_STATE_INVALID);
        assert_int_equal(vm_state_next(_VM_STATE_INVALID, VM_EVENT_RELEASE), _VM_STATE_INVALID);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_all_cells),
                cmocka_unit_test(test_names),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
