/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "handoff-table.h"

#define FOREACH_CELL(s, e)                                                                                  \
        for (HandoffState s = 0; s < _HANDOFF_STATE_MAX; s++)                                               \
                for (HandoffEvent e = 0; e < _HANDOFF_EVENT_MAX; e++)

#define FAIL_CELL(s, e, what)                                                                               \
        fail_msg("%s %s + %s: %s", handoff_role_to_string(handoff_state_side(s)),                           \
                 handoff_state_to_string(s), handoff_event_to_string(e), what)

static bool is_source(HandoffState s) {
        return handoff_state_side(s) == HANDOFF_SOURCE;
}

static void test_nothing_is_undefined(void **state) {
        FOREACH_CELL(s, e) {
                HandoffStep step = handoff_next(s, e);

                if (step.refusal >= _HANDOFF_REFUSAL_MAX)
                        FAIL_CELL(s, e, "undefined");
                if (handoff_state_side(step.next) != handoff_state_side(s))
                        FAIL_CELL(s, e, "changes sides");
                if (step.refusal != HANDOFF_ACCEPTED && (step.next != s || step.work || step.send))
                        FAIL_CELL(s, e, "is refused, and does something");
        }
        assert_true(handoff_next(_HANDOFF_STATE_MAX, HANDOFF_RETRY).refusal >= _HANDOFF_REFUSAL_MAX);
        assert_true(handoff_next(HANDOFF_S_NONE, _HANDOFF_EVENT_MAX).refusal >= _HANDOFF_REFUSAL_MAX);
}

/*
 * All transitions, written down a second time by hand; whatever is not here stays where it is. "Off" is what
 * ends a handoff before anybody is in doubt.
 */
static HandoffState expected(HandoffState s, HandoffEvent e) {
        bool off = e == HANDOFF_CALL_CANCEL || e == HANDOFF_DEADLINE || e == HANDOFF_VMM_GONE ||
                   e == HANDOFF_GOT_ABORT;

        switch (s) {
        case HANDOFF_S_NONE:
                return e == HANDOFF_CALL_OFFER ? HANDOFF_S_OFFERED : s;
        case HANDOFF_S_OFFERED:
                return off ? HANDOFF_S_UNDOING : e == HANDOFF_GOT_ANSWER ? HANDOFF_S_GRANTED : s;
        case HANDOFF_S_GRANTED:
                return off ? HANDOFF_S_UNDOING : e == HANDOFF_CALL_START ? HANDOFF_S_STARTED : s;
        case HANDOFF_S_STARTED:
                return off ? HANDOFF_S_UNDOING : e == HANDOFF_CALL_COMMIT ? HANDOFF_S_COMMITTING : s;
        case HANDOFF_S_COMMITTING:
                return e == HANDOFF_GOT_ABORT      ? HANDOFF_S_UNDOING
                       : e == HANDOFF_GOT_TAKEN    ? HANDOFF_S_SERVING
                       : e == HANDOFF_GOT_COMPLETE ? HANDOFF_S_RELEASING
                                                   : s;
        case HANDOFF_S_SERVING:
                return e == HANDOFF_GOT_COMPLETE ? HANDOFF_S_RELEASING : s;
        case HANDOFF_S_RELEASING:
                return e == HANDOFF_FREED ? HANDOFF_S_RELEASED : s;
        case HANDOFF_S_UNDOING:
                return e == HANDOFF_UNDONE ? HANDOFF_S_KEPT : s;
        case HANDOFF_S_RELEASED:
        case HANDOFF_S_KEPT:
                return e == HANDOFF_FORGET ? HANDOFF_S_NONE : s;
        case HANDOFF_D_NONE:
                return e == HANDOFF_GOT_OFFER ? HANDOFF_D_PREPARING : s;
        case HANDOFF_D_PREPARING:
                return (off && e != HANDOFF_VMM_GONE) || e == HANDOFF_PREPARE_FAILED ? HANDOFF_D_FREEING
                       : e == HANDOFF_PREPARED                                       ? HANDOFF_D_READY
                                                                                     : s;
        case HANDOFF_D_READY:
                return off                       ? HANDOFF_D_FREEING
                       : e == HANDOFF_GOT_START  ? HANDOFF_D_RECEIVING
                       : e == HANDOFF_GOT_COMMIT ? HANDOFF_D_VERIFYING
                                                 : s;
        case HANDOFF_D_RECEIVING:
                return off ? HANDOFF_D_FREEING : e == HANDOFF_GOT_COMMIT ? HANDOFF_D_VERIFYING : s;
        case HANDOFF_D_VERIFYING:
                return off || e == HANDOFF_VERIFY_FAILED ? HANDOFF_D_FREEING
                       : e == HANDOFF_VERIFIED           ? HANDOFF_D_OWNER
                       : e == HANDOFF_VERIFIED_PART      ? HANDOFF_D_TAKEN
                                                         : s;
        case HANDOFF_D_TAKEN:
                return e == HANDOFF_ARRIVED || e == HANDOFF_VMM_GONE ? HANDOFF_D_OWNER : s;
        case HANDOFF_D_OWNER:
                return e == HANDOFF_GOT_RELEASED ? HANDOFF_D_DONE : s;
        case HANDOFF_D_FREEING:
                return e == HANDOFF_FREED ? HANDOFF_D_GONE : s;
        case HANDOFF_D_DONE:
        case HANDOFF_D_GONE:
                return e == HANDOFF_FORGET ? HANDOFF_D_NONE : s;
        default:
                return _HANDOFF_STATE_MAX;
        }
}

static void test_every_cell(void **state) {
        FOREACH_CELL(s, e)
        if (handoff_next(s, e).next != expected(s, e))
                FAIL_CELL(s, e, handoff_state_to_string(handoff_next(s, e).next));
}

static void test_work_and_messages(void **state) {
        FOREACH_CELL(s, e) {
                HandoffStep step = handoff_next(s, e);
                bool restart = e == HANDOFF_RESTART;

                /* Work begins with a state, and again after a restart. */
                if (step.work && step.next == s && !restart)
                        FAIL_CELL(s, e, "works again");
                /* What has entered a state is what a restart does again, unless it is over. */
                if (step.next != s && !handoff_state_is_final(step.next)) {
                        HandoffStep again = handoff_next(step.next, HANDOFF_RESTART);

                        if (again.next != step.next || again.work != step.work || again.send != step.send)
                                FAIL_CELL(s, e, "is not done again by a restart");
                }
                /* Each side says only what is its own to say. */
                switch (step.send) {
                case HANDOFF_SEND_OFFER:
                case HANDOFF_SEND_START:
                case HANDOFF_SEND_COMMIT:
                case HANDOFF_SEND_RELEASED:
                        if (!is_source(s))
                                FAIL_CELL(s, e, "says what the source says");
                        break;
                case HANDOFF_SEND_ANSWER:
                case HANDOFF_SEND_TAKEN:
                case HANDOFF_SEND_COMPLETE:
                        if (is_source(s))
                                FAIL_CELL(s, e, "says what the destination says");
                        break;
                default:
                        break;
                }
        }
}

/* The rules that the whole rests on. */
static void test_point_of_no_return(void **state) {
        FOREACH_CELL(s, e) {
                HandoffStep step = handoff_next(s, e);
                bool wants = step.next == HANDOFF_S_COMMITTING || step.next == HANDOFF_S_SERVING;

                /* A source in doubt has the VM back by the destination's word only, */
                if (s == HANDOFF_S_COMMITTING && handoff_state_owns(step.next) && e != HANDOFF_GOT_ABORT)
                        FAIL_CELL(s, e, "takes the VM back");
                /* says "abort" never, except about a grant that is not this one's, */
                if (wants && step.send == HANDOFF_SEND_ABORT && e != HANDOFF_GOT_FOREIGN)
                        FAIL_CELL(s, e, "aborts");
                /* says "commit" only then, */
                if (step.send == HANDOFF_SEND_COMMIT && !wants)
                        FAIL_CELL(s, e, "commits");
                /* and once the VM is known to be the destination's, nothing brings it back. */
                if ((s == HANDOFF_S_SERVING || s == HANDOFF_S_RELEASING) && handoff_state_owns(step.next))
                        FAIL_CELL(s, e, "takes the VM back");
                /* A destination takes the VM once it was asked to and has looked, and never lets go again.
                 */
                if (!is_source(s) && !handoff_state_owns(s) && handoff_state_owns(step.next) &&
                    s != HANDOFF_D_VERIFYING)
                        FAIL_CELL(s, e, "takes a VM that nobody gave it");
                if (!is_source(s) && handoff_state_owns(s) && !handoff_state_owns(step.next) &&
                    e != HANDOFF_FORGET)
                        FAIL_CELL(s, e, "lets go of its VM");
                /* What it says of that is true. */
                if ((step.send == HANDOFF_SEND_TAKEN || step.send == HANDOFF_SEND_COMPLETE) &&
                    !handoff_state_owns(step.next))
                        FAIL_CELL(s, e, "says that it has the VM");
                if (step.send == HANDOFF_SEND_ABORT && !is_source(s) && handoff_state_owns(step.next) &&
                    e != HANDOFF_GOT_FOREIGN)
                        FAIL_CELL(s, e, "aborts what it has taken");
                /* The source's memory is freed when all of it is there. */
                if (step.work == HANDOFF_WORK_RELEASE && e != HANDOFF_GOT_COMPLETE && e != HANDOFF_RESTART)
                        FAIL_CELL(s, e, "releases");
                /* A record goes only when it can be of no use any more. */
                if (e == HANDOFF_FORGET && step.next != s && !handoff_state_is_final(s))
                        FAIL_CELL(s, e, "forgets too early");
        }
}

/* From every state that is not an end there is a way to one. */
static void test_every_state_can_end(void **state) {
        bool ends[_HANDOFF_STATE_MAX];

        for (HandoffState s = 0; s < _HANDOFF_STATE_MAX; s++)
                ends[s] = handoff_state_is_final(s);
        for (unsigned round = 0; round < _HANDOFF_STATE_MAX; round++)
                FOREACH_CELL(s, e)
        ends[s] |= ends[handoff_next(s, e).next];
        for (HandoffState s = 0; s < _HANDOFF_STATE_MAX; s++)
                assert_true(ends[s]);
}

static void test_received(void **state) {
        static const HandoffType types[] = { HANDOFF_ANSWER, HANDOFF_START, HANDOFF_COMMIT };

        /* A grant that is not ours never leads to what the message says. */
        for (size_t i = 0; i < ELEMENTSOF(types); i++)
                assert_int_equal(
                                handoff_event_received(HANDOFF_SOURCE, types[i], false, HANDOFF_GRANT_OTHER),
                                HANDOFF_GOT_FOREIGN);
        assert_int_equal(handoff_event_received(HANDOFF_DESTINATION, HANDOFF_COMPLETE, false,
                                                HANDOFF_GRANT_OTHER),
                         HANDOFF_GOT_LATE);
        assert_int_equal(handoff_event_received(HANDOFF_DESTINATION, HANDOFF_ABORT, false,
                                                HANDOFF_GRANT_OTHER),
                         HANDOFF_GOT_LATE);
        /* A refused copy of the offer does not end a handoff that was granted. */
        assert_int_equal(handoff_event_received(HANDOFF_DESTINATION, HANDOFF_ABORT, false,
                                                HANDOFF_GRANT_NONE),
                         HANDOFF_GOT_LATE);
        assert_int_equal(handoff_event_received(HANDOFF_SOURCE, HANDOFF_ABORT, false, HANDOFF_GRANT_NONE),
                         HANDOFF_GOT_ABORT);
        assert_int_equal(handoff_event_received(HANDOFF_DESTINATION, HANDOFF_COMPLETE, true,
                                                HANDOFF_GRANT_SAME),
                         HANDOFF_GOT_TAKEN);
        assert_int_equal(handoff_event_received(HANDOFF_DESTINATION, HANDOFF_COMPLETE, false,
                                                HANDOFF_GRANT_SAME),
                         HANDOFF_GOT_COMPLETE);
        assert_int_equal(handoff_event_received(HANDOFF_SOURCE, HANDOFF_COMPLETE, false, HANDOFF_GRANT_SAME),
                         HANDOFF_GOT_RELEASED);
        assert_int_equal(handoff_event_received(HANDOFF_DESTINATION, HANDOFF_ANSWER, false,
                                                HANDOFF_GRANT_FIRST),
                         HANDOFF_GOT_ANSWER);
        assert_int_equal(handoff_event_received(HANDOFF_SOURCE, HANDOFF_OFFER, false, HANDOFF_GRANT_NONE),
                         HANDOFF_GOT_OFFER);
}

static void test_stale_offers(void **state) {
        assert_int_equal(handoff_refuse_offer(1, 0, false), 0);
        assert_int_equal(handoff_refuse_offer(3, 3, false), 0);
        assert_int_equal(handoff_refuse_offer(3, 4, false), HANDOFF_REASON_STALE);
        assert_int_equal(handoff_refuse_offer(3, 4, true), HANDOFF_REASON_STALE);
        assert_int_equal(handoff_refuse_offer(3, 3, true), HANDOFF_REASON_NAME_TAKEN);
        assert_int_equal(handoff_refuse_offer(1, 0, true), HANDOFF_REASON_NAME_TAKEN);
}

static void test_names(void **state) {
        HandoffState got;

        for (HandoffState s = 0; s < _HANDOFF_STATE_MAX; s++) {
                assert_int_equal(handoff_state_from_string(handoff_state_side(s), handoff_state_to_string(s),
                                                           &got),
                                 0);
                assert_int_equal(got, s);
        }
        assert_true(handoff_state_from_string(HANDOFF_SOURCE, "owner", &got) < 0);
        for (HandoffEvent e = 0; e < _HANDOFF_EVENT_MAX; e++)
                assert_non_null(handoff_event_to_string(e));
        for (HandoffWork w = 0; w < _HANDOFF_WORK_MAX; w++)
                assert_non_null(handoff_work_to_string(w));
        for (HandoffSend s = 0; s < _HANDOFF_SEND_MAX; s++)
                assert_non_null(handoff_send_to_string(s));
        for (HandoffRefusal r = 0; r < _HANDOFF_REFUSAL_MAX; r++)
                assert_non_null(handoff_refusal_to_string(r));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_nothing_is_undefined), cmocka_unit_test(test_every_cell),
                cmocka_unit_test(test_work_and_messages),    cmocka_unit_test(test_point_of_no_return),
                cmocka_unit_test(test_every_state_can_end),  cmocka_unit_test(test_received),
                cmocka_unit_test(test_stale_offers),         cmocka_unit_test(test_names),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
