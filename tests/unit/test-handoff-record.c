/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What one side writes down of a handoff comes back as it was, and nothing else is taken for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "handoff-messages.h"
#include "handoff-record.h"

/* All that can be known of one in that state. */
static HandoffRecord record(HandoffState s) {
        HandoffRecord r = {
                .side = handoff_state_side(s),
                .state = s,
                .id = example(HANDOFF_OFFER).id,
                .grant = example(HANDOFF_ANSWER).grant,
                .peer = example(HANDOFF_ANSWER).from,
                .vm = "db-1",
                .name = "db-2",
                .generation = example(HANDOFF_OFFER).generation,
                .lease = UINT64_C(0xfedcba9876543210),
                .uid = 1000,
                .boot_id = "01234567-89ab-cdef-0123-456789abcdef",
                .deadline_usec = UINT64_MAX,
                .finished_usec = handoff_state_is_final(s) ? 12345 : 0,
                .memory_taken = true,
                .offer = example(HANDOFF_OFFER).offer,
                .answer = example(HANDOFF_ANSWER).answer,
                .start = example(HANDOFF_START).start,
                .commit = example(HANDOFF_COMMIT).commit,
                .complete = example(HANDOFF_COMPLETE).complete,
                .abort = example(HANDOFF_ABORT).abort,
                .released_bytes = GIB(8),
        };
        return r;
}

static bool is_recorded(HandoffState s) {
        return s != HANDOFF_S_NONE && s != HANDOFF_D_NONE;
}

static void test_round_trip(void **state) {
        for (HandoffState s = 0; s < _HANDOFF_STATE_MAX; s++) {
                HandoffRecord r = record(s), back;
                RecordFault fault;
                char *text, *again;
                size_t n, n_again;

                assert_int_equal(handoff_record_format(&r, &text, &n), 0);
                if (!is_recorded(s)) {
                        assert_int_equal(handoff_record_parse(text, n, &back, &fault), -EBADMSG);
                        free(text);
                        continue;
                }
                if (handoff_record_parse(text, n, &back, &fault) < 0)
                        fail_msg("%s: %s: %s", handoff_state_to_string(s), fault.word, fault.text);
                assert_int_equal(back.state, s);
                assert_int_equal(back.lease, r.lease);
                assert_int_equal(back.deadline_usec, r.deadline_usec);
                assert_memory_equal(&back.offer, &r.offer, sizeof(r.offer));
                assert_memory_equal(&back.answer, &r.answer, sizeof(r.answer));
                assert_memory_equal(&back.start, &r.start, sizeof(r.start));
                assert_memory_equal(&back.complete, &r.complete, sizeof(r.complete));
                assert_string_equal(back.abort.text, r.abort.text);
                assert_int_equal(handoff_record_format(&back, &again, &n_again), 0);
                assert_int_equal(n, n_again);
                assert_memory_equal(text, again, n);
                free(text);
                free(again);
        }
}

/* Of a record that is cut off, or has one bit that is another, nothing is taken. */
static void test_whole_or_not_at_all(void **state) {
        HandoffRecord r = record(HANDOFF_D_OWNER), back = {};
        RecordFault fault;
        char *text;
        size_t n;

        assert_int_equal(handoff_record_format(&r, &text, &n), 0);
        for (size_t i = 0; i < n; i++) {
                assert_int_equal(handoff_record_parse(text, i, &back, &fault), -EBADMSG);
                text[i] ^= 1;
                assert_int_equal(handoff_record_parse(text, n, &back, &fault), -EBADMSG);
                text[i] ^= 1;
        }
        assert_int_equal(back.lease, 0);
        assert_int_equal(handoff_record_parse(text, n, &back, &fault), 0);
        free(text);
}

/* With its last line right again. */
static int parse_changed(const char *text, size_t n, const char *what, const char *by, RecordFault *fault) {
        const char *at = strstr(text, what), *end;
        char *changed = NULL;
        HandoffRecord back;
        size_t size;
        FILE *f;
        int r;

        assert_non_null(at);
        f = open_memstream(&changed, &size);
        assert_non_null(f);
        end = text + n - strlen("end 0123456789abcdef\n");
        fprintf(f, "%.*s%s%.*s", (int) (at - text), text, by, (int) (end - at - (ptrdiff_t) strlen(what)),
                at + strlen(what));
        fflush(f);
        fprintf(f, "end %016" PRIx64 "\n", record_checksum(changed, size));
        fclose(f);
        r = handoff_record_parse(changed, size, &back, fault);
        free(changed);
        return r;
}

static void test_contradictions(void **state) {
        static const struct {
                const char *what, *by, *word;
        } changes[] = {
                { "tdpd-handoff 1", "tdpd-handoff 2", "newer" },
                { "tdpd-handoff 1", "tdpd-record 1", "no-record" },
                { "role destination", "role both", "bad-value" },
                { "role destination", "role source", "bad-value" }, /* it has no such state */
                { "state ready", "state nowhere", "bad-value" },
                { "state ready", "state none", "bad-value" },
                { "state ready", "state gone", NULL },
                { "id 69", "id 6a", "bad-value" }, /* of other messages */
                { "grant 67", "grant 6", "bad-value" },
                { "vm db-1", "vm db-3", "bad-value" },
                { "name db-2", "name ../x", "bad-value" },
                { "generation 7", "generation 8", "bad-value" },
                { "generation 7", "generation 07", "bad-value" },
                { "lease fedcba9876543210", "lease 0000000000000000", "bad-value" },
                { "lease fedc", "Lease fedc", "unknown-key" },
                { "uid 1000", "uid 4294967296", "bad-value" },
                { "boot-id 0", "boot-id ", "bad-value" },
                { "memory-taken 1", "memory-taken 2", "bad-value" },
                { "\noffer ", "\nanswer ", "bad-value" },
                { "\noffer 08", "\noffer 0", "bad-value" },
                { "\nanswer 08", "\nanswer 0x", "bad-value" },
        };
        HandoffRecord r = record(HANDOFF_D_READY);
        char *text;
        size_t n;

        assert_int_equal(handoff_record_format(&r, &text, &n), 0);
        for (size_t i = 0; i < ELEMENTSOF(changes); i++) {
                RecordFault fault = {};
                int k = parse_changed(text, n, changes[i].what, changes[i].by, &fault);

                if (changes[i].word ? k != -EBADMSG || !streq(fault.word, changes[i].word) : k != 0)
                        fail_msg("%s -> %s: %i, %s: %s", changes[i].what, changes[i].by, k,
                                 fault.word ? fault.word : "", fault.text);
        }
        free(text);

        /* What a state cannot be without. */
        r.answer = (HandoffAnswer){};
        assert_int_equal(handoff_record_format(&r, &text, &n), 0);
        assert_int_equal(handoff_record_parse(text, n, &(HandoffRecord){}, &(RecordFault){}), -EBADMSG);
        free(text);
        r = record(HANDOFF_D_READY);
        r.grant = (HandoffId){};
        assert_int_equal(handoff_record_format(&r, &text, &n), 0);
        assert_int_equal(handoff_record_parse(text, n, &(HandoffRecord){}, &(RecordFault){}), -EBADMSG);
        free(text);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_round_trip),
                cmocka_unit_test(test_whole_or_not_at_all),
                cmocka_unit_test(test_contradictions),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
