/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "handoff-match.h"
#include "handoff-messages.h"

/* The record that example() of this type is written for. */
static HandoffIdentity reader(HandoffType type) {
        HandoffMessage m = example(type);

        return (HandoffIdentity){
                .side = m.role == HANDOFF_SOURCE ? HANDOFF_DESTINATION : HANDOFF_SOURCE,
                .id = m.id,
                .grant = m.grant,
                .self = m.to,
                .peer = m.from,
                .vm = "db-1",
                .generation = 7,
        };
}

static void matches(const HandoffIdentity *h, const HandoffMessage *m, HandoffEvent want) {
        HandoffEvent got = _HANDOFF_EVENT_MAX;
        HandoffProblem p;

        if (handoff_match(h, m, &got, &p) < 0)
                fail_msg("refused: %s", p.text);
        assert_string_equal(handoff_event_to_string(got), handoff_event_to_string(want));
}

static void refused(const HandoffIdentity *h, const HandoffMessage *m, const char *what) {
        HandoffEvent got = _HANDOFF_EVENT_MAX;
        HandoffProblem p;

        assert_int_equal(handoff_match(h, m, &got, &p), -EBADMSG);
        assert_int_equal(p.error, HANDOFF_MISMATCH);
        assert_int_equal(got, _HANDOFF_EVENT_MAX);
        if (strncmp(p.text, what, strlen(what)) != 0)
                fail_msg("want '%s...', got '%s'", what, p.text);
}

static void test_own_messages(void **state) {
        static const HandoffEvent events[_HANDOFF_TYPE_MAX] = {
                [HANDOFF_OFFER] = HANDOFF_GOT_OFFER,    [HANDOFF_ANSWER] = HANDOFF_GOT_ANSWER,
                [HANDOFF_START] = HANDOFF_GOT_START,    [HANDOFF_COMMIT] = HANDOFF_GOT_COMMIT,
                [HANDOFF_COMPLETE] = HANDOFF_GOT_TAKEN, [HANDOFF_ABORT] = HANDOFF_GOT_ABORT,
        };
        HandoffMessage m;
        HandoffIdentity h;

        for (HandoffType t = 0; t < _HANDOFF_TYPE_MAX; t++) {
                m = example(t);
                h = reader(t);
                matches(&h, &m, events[t]);
        }
        m = example(HANDOFF_COMPLETE);
        h = reader(HANDOFF_COMPLETE);
        m.complete.bytes_left = 0;
        matches(&h, &m, HANDOFF_GOT_COMPLETE);
        /* A source that has no grant yet has no peer either. */
        m = example(HANDOFF_ANSWER);
        h = reader(HANDOFF_ANSWER);
        h.grant = h.peer = (HandoffId){};
        matches(&h, &m, HANDOFF_GOT_ANSWER);
}

/* Of another handoff, side, VM, generation, host: whatever the message is. */
static void test_swapped(void **state) {
        for (HandoffType t = 0; t < _HANDOFF_TYPE_MAX; t++) {
                HandoffMessage m = example(t);
                HandoffIdentity h = reader(t);

                h.id.bytes[15] ^= 1;
                refused(&h, &m, "id: ");
                h = reader(t);
                h.side = m.role;
                refused(&h, &m, "role: ");
                h = reader(t);
                h.vm = "db-2";
                refused(&h, &m, "vm: ");
                h = reader(t);
                h.generation = 8; /* what it says is older, */
                refused(&h, &m, "generation: ");
                h.generation = 6; /* or of what is not yet */
                refused(&h, &m, "generation: ");
                h = reader(t);
                h.self.bytes[0] ^= 1;
                refused(&h, &m, "to: ");
                h = reader(t);
                h.peer.bytes[0] ^= 1;
                refused(&h, &m, "from: ");
        }
}

/* Of this handoff, and of an earlier grant of it. */
static void test_replayed(void **state) {
        static const HandoffEvent events[_HANDOFF_TYPE_MAX] = {
                [HANDOFF_OFFER] = HANDOFF_GOT_OFFER,   [HANDOFF_ANSWER] = HANDOFF_GOT_FOREIGN,
                [HANDOFF_START] = HANDOFF_GOT_FOREIGN, [HANDOFF_COMMIT] = HANDOFF_GOT_FOREIGN,
                [HANDOFF_COMPLETE] = HANDOFF_GOT_LATE, [HANDOFF_ABORT] = HANDOFF_GOT_LATE,
        };

        for (HandoffType t = 0; t < _HANDOFF_TYPE_MAX; t++) {
                HandoffMessage m = example(t);
                HandoffIdentity h = reader(t);

                h.grant.bytes[3] ^= 1;
                matches(&h, &m, events[t]);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_own_messages),
                cmocka_unit_test(test_swapped),
                cmocka_unit_test(test_replayed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
