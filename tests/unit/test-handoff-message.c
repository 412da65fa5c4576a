/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>

#include "handoff-messages.h"

static Raw raw, again;

static void refused(const Raw *r, HandoffError want, const char *field) {
        HandoffMessage m;
        HandoffProblem p;
        int want_r = want == HANDOFF_TOO_LARGE                                    ? -EMSGSIZE
                     : want == HANDOFF_TOO_NEW || want == HANDOFF_UNKNOWN_FEATURE ? -EPROTONOSUPPORT
                                                                                  : -EBADMSG;
        /* Of just this size, so that a sanitizer sees what reads beyond. */
        uint8_t *copy = malloc(r->n + !r->n);
        int got;

        assert_non_null(copy);
        memcpy(copy, r->bytes, r->n);
        memset(&m, 0xa5, sizeof(m));
        got = handoff_unpack(copy, r->n, &m, &p);
        free(copy);
        if (got != want_r || p.error != want || strncmp(p.text, field, strlen(field)) != 0)
                fail_msg("want %i, %s and '%s...', got %i, %s and '%s'", want_r,
                         handoff_error_to_string(want), field, got, handoff_error_to_string(p.error),
                         p.text);
        for (size_t i = 0; i < sizeof(m); i++)
                assert_int_equal(((uint8_t *) &m)[i], 0xa5);
}

static void accepted(const Raw *r, HandoffMessage *ret) {
        HandoffProblem p;

        if (handoff_unpack(r->bytes, r->n, ret, &p) < 0)
                fail_msg("refused: %s, %s", handoff_error_to_string(p.error), p.text);
}

static void pack(const HandoffMessage *m, Raw *ret) {
        _cleanup_free_ uint8_t *data = NULL;
        HandoffProblem p;

        if (handoff_pack(m, &data, &ret->n, &p) < 0)
                fail_msg("not packed: %s, %s", handoff_error_to_string(p.error), p.text);
        memcpy(ret->bytes, data, ret->n);
}

static void assert_same(const Raw *a, const Raw *b) {
        assert_int_equal(a->n, b->n);
        assert_memory_equal(a->bytes, b->bytes, a->n);
}

static void test_round_trip(void **state) {
        for (HandoffType t = 0; t < _HANDOFF_TYPE_MAX; t++) {
                HandoffMessage m = example(t), got;

                pack(&m, &raw);
                accepted(&raw, &got);
                assert_memory_equal(&m, &got, sizeof(m));
                handoff_message_done(&got);
        }
}

/* The largest message that the limits allow is no larger than a message may be. */
static void test_largest(void **state) {
        HandoffMessage m = example(HANDOFF_OFFER), got;

        m.offer.n_regions = HANDOFF_REGIONS_MAX;
        for (size_t i = 0; i < HANDOFF_REGIONS_MAX; i++)
                m.offer.regions[i] = (Span){ .gpa = (UINT64_C(1) << 51) + i * MIB(4), .size = MIB(2) };
        m.offer.bytes = HANDOFF_REGIONS_MAX * MIB(2);
        pack(&m, &raw);
        accepted(&raw, &got);
        assert_memory_equal(&m, &got, sizeof(m));
        handoff_message_done(&got);
}

static int unhex(const char *s, Raw *ret) {
        unsigned byte;

        for (ret->n = 0; sscanf(s + 2 * ret->n, "%2x", &byte) == 1; ret->n++)
                ret->bytes[ret->n] = (uint8_t) byte;
        return (int) ret->n;
}

/* Messages as version 1 has written them: to be read for ever, and written just so while 1 is our version.
 */
static void test_stored(void **state) {
        char path[4096], line[4096], word[16], hex[4000];
        unsigned seen = 0;
        FILE *f;

        snprintf(path, sizeof(path), "%s/tests/unit/handoff-v1.hex", getenv("SOURCE_ROOT") ?: ".");
        f = fopen(path, "re");
        assert_non_null(f);
        while (fgets(line, sizeof(line), f)) {
                if (line[0] == '#' || sscanf(line, "%15s %3999s", word, hex) != 2)
                        continue;
                for (HandoffType t = 0; t < _HANDOFF_TYPE_MAX; t++) {
                        HandoffMessage m = example(t), got;

                        if (!streq(handoff_type_to_string(t), word))
                                continue;
                        assert_true(unhex(hex, &raw) > 0);
                        accepted(&raw, &got);
                        assert_memory_equal(&m, &got, sizeof(m));
                        pack(&got, &again);
                        assert_same(&raw, &again);
                        handoff_message_done(&got);
                        seen |= 1U << t;
                }
        }
        fclose(f);
        for (HandoffType t = 0; t < _HANDOFF_TYPE_MAX; t++)
                if (!(seen & 1U << t)) {
                        HandoffMessage m = example(t);

                        pack(&m, &raw);
                        fprintf(stderr, "%s ", handoff_type_to_string(t));
                        for (size_t i = 0; i < raw.n; i++)
                                fprintf(stderr, "%02x", raw.bytes[i]);
                        fprintf(stderr, "\n");
                }
        assert_int_equal(seen, (1U << _HANDOFF_TYPE_MAX) - 1);
}

static void test_truncated(void **state) {
        for (HandoffType t = 0; t < _HANDOFF_TYPE_MAX; t++) {
                HandoffMessage m = example(t), got;
                HandoffProblem p;
                size_t size;

                pack(&m, &raw);
                size = raw.n;
                for (raw.n = 0; raw.n < size; raw.n++) {
                        uint8_t *copy = malloc(raw.n + !raw.n);

                        assert_non_null(copy);
                        memcpy(copy, raw.bytes, raw.n);
                        assert_int_equal(handoff_unpack(copy, raw.n, &got, &p), -EBADMSG);
                        assert_true(p.error == HANDOFF_TRUNCATED || p.error == HANDOFF_MISSING);
                        assert_true(p.text[0] != '\0');
                        free(copy);
                }
        }
}

/* The types that can have a field. */
static bool belongs(const HandoffField *f, HandoffType t) {
        if (f->part == PART_ENVELOPE)
                return (f->kind != KIND_PART || f->nested == t) &&
                       !(t == HANDOFF_OFFER && streq(f->name, "grant"));
        return f->part == t || (f->part == PART_REGION && t == HANDOFF_OFFER);
}

static void try_field(const HandoffField *f, HandoffType t) {
        bool list = f->kind == KIND_NUMBERS;
        HandoffMessage got;

        for (uint64_t wire = 0; wire < 8; wire++) {
                bool right = list                      ? wire == 0 || wire == 2
                             : f->kind == KIND_NUMBER  ? wire == 0
                             : f->kind == KIND_FIXED64 ? wire == 1
                                                       : wire == 2;

                if (right)
                        continue;
                raw_message(&raw, t, f, TWIST_WIRE_TYPE, wire);
                refused(&raw, HANDOFF_MALFORMED, wire == 3 || wire == 4 || wire > 5 ? "" : f->name);
        }

        raw_message(&raw, t, f, TWIST_COUNT, 0);
        if (f->kind == KIND_PART && f->part == PART_ENVELOPE)
                refused(&raw, HANDOFF_MISSING, "message");
        else if (f->needed & 1U << t)
                refused(&raw, HANDOFF_MISSING, f->name);
        else if (!streq(f->name, "commit.post_copy") && !streq(f->name, "complete.new_generation")) {
                /* (these two are missed by a relation) */
                accepted(&raw, &got);
                handoff_message_done(&got);
        }

        raw_message(&raw, t, f, TWIST_COUNT, f->most + 1);
        refused(&raw, HANDOFF_TOO_MANY, f->name);

        if (f->kind == KIND_PART && f->part == PART_ENVELOPE)
                return; /* its limit is that of the message */
        if (streq(f->name, "min_version")) {
                raw_message(&raw, t, f, TWIST_VALUE, 0);
                refused(&raw, HANDOFF_OUT_OF_RANGE, f->name);
                return; /* see test_versions */
        }
        raw_message(&raw, t, f, TWIST_VALUE, f->max + 1);
        refused(&raw, HANDOFF_OUT_OF_RANGE, f->name);
        if (f->min > 0) {
                raw_message(&raw, t, f, TWIST_VALUE, f->min - 1);
                refused(&raw, HANDOFF_OUT_OF_RANGE, f->name);
        }
        if (f->kind == KIND_NUMBER || list) {
                raw_message(&raw, t, f, TWIST_VALUE, UINT64_MAX);
                refused(&raw, HANDOFF_OUT_OF_RANGE, f->name);
        }
        if (f->kind == KIND_NAME || (f->kind == KIND_TEXT && !streq(f->name, "needs"))) {
                static const uint8_t bytes[] = { 0, '\n', 0x7f, 0x80, 0xff };

                for (size_t i = 0; i < sizeof(bytes); i++) {
                        raw_message(&raw, t, f, TWIST_BYTE, bytes[i]);
                        refused(&raw, HANDOFF_OUT_OF_RANGE, f->name);
                }
        }
        if (f->kind == KIND_NAME) {
                raw_message(&raw, t, f, TWIST_BYTE, '/');
                refused(&raw, HANDOFF_OUT_OF_RANGE, f->name);
        }
}

/* Of every field in every message: each wrong wire type, one too few, one too many, just outside its range.
 */
static void case_73_every_limit_of_the_table(void **state) {
        unsigned n = 0;

        for (HandoffType t = 0; t < _HANDOFF_TYPE_MAX; t++) {
                HandoffMessage got;

                raw_message(&raw, t, NULL, TWIST_NONE, 0);
                accepted(&raw, &got);
                assert_int_equal(got.type, t);
                handoff_message_done(&got);
                for (size_t i = 0; i < handoff_n_fields; i++)
                        if (belongs(handoff_fields + i, t)) {
                                try_field(handoff_fields + i, t);
                                n++;
                        }
        }
        assert_true(n > handoff_n_fields);
}

static void case_73_sizes_and_counts(void **state) {
        static uint8_t zeros[HANDOFF_MESSAGE_MAX];
        static const uint64_t lengths[] = { 200, UINT32_MAX, UINT64_C(1) << 63, UINT64_MAX };
        HandoffMessage got;

        raw.n = 0;
        refused(&raw, HANDOFF_TRUNCATED, "message");

        /* Up to the limit with a field that nobody knows, and one byte more. */
        raw_message(&raw, HANDOFF_START, NULL, TWIST_NONE, 0);
        raw_bytes(&raw, 500, zeros, HANDOFF_MESSAGE_MAX - raw.n - 5);
        assert_int_equal(raw.n, HANDOFF_MESSAGE_MAX);
        accepted(&raw, &got);
        handoff_message_done(&got);
        raw.n++;
        refused(&raw, HANDOFF_TOO_LARGE, "message");

        for (size_t i = 0; i < ELEMENTSOF(lengths); i++) {
                raw.n = 0;
                raw_varint(&raw, 16 << 3 | 2);
                raw_varint(&raw, lengths[i]);
                refused(&raw, HANDOFF_TRUNCATED, "message: field 16 has ");
        }

        /* 60000 page sizes in one packed field. */
        raw.n = 0;
        again.n = 0;
        memset(zeros, 1, sizeof(zeros));
        raw_bytes(&again, 3, zeros, 60000);
        raw_bytes(&raw, 16, again.bytes, again.n);
        refused(&raw, HANDOFF_OUT_OF_RANGE, "offer.page_sizes");
        /* Good ones, and too many. */
        again.n = 0;
        for (int i = 0; i < 20000; i++)
                raw_number(&again, 3, KIB(4));
        raw.n = 0;
        raw_bytes(&raw, 16, again.bytes, MIN_OF(again.n, 60000U));
        refused(&raw, HANDOFF_TOO_MANY, "offer.page_sizes");
        /* 32000 empty fields that nobody knows. */
        raw.n = 0;
        for (int i = 0; i < 16000; i++)
                raw_bytes(&raw, 100, "", 0);
        refused(&raw, HANDOFF_TOO_MANY, "message");
}

static void case_73_malformed(void **state) {
        static const struct {
                uint8_t bytes[16];
                size_t n;
                HandoffError want;
        } table[] = {
                { { 0x00, 0x01 }, 2, HANDOFF_MALFORMED },    /* field 0 */
                { { 0x0b, 0x0c }, 2, HANDOFF_MALFORMED },    /* a group */
                { { 0x0e }, 1, HANDOFF_MALFORMED },          /* type 6 */
                { { 0x80 }, 1, HANDOFF_TRUNCATED },          /* in a tag */
                { { 0x08 }, 1, HANDOFF_TRUNCATED },          /* in a value */
                { { 0x49, 1, 2, 3 }, 4, HANDOFF_TRUNCATED }, /* in 64 bits */
                { { 0x0d, 1, 2, 3 }, 4, HANDOFF_TRUNCATED }, /* in 32 bits */
                { { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02 }, 10, HANDOFF_MALFORMED },
                { { 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02 },
                  11,
                  HANDOFF_MALFORMED },
                { { 0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00 },
                  12,
                  HANDOFF_MALFORMED },
                { { 0x80, 0x80, 0x80, 0x80, 0x10, 0x00 }, 6, HANDOFF_MALFORMED }, /* field 2^29 */
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                memcpy(raw.bytes, table[i].bytes, table[i].n);
                raw.n = table[i].n;
                refused(&raw, table[i].want, "message");
        }
        /* Two bodies. */
        raw_message(&raw, HANDOFF_START, NULL, TWIST_NONE, 0);
        raw_bytes(&raw, 19, "", 0);
        refused(&raw, HANDOFF_CONTRADICTION, "message");
}

/* Any bytes at all: it ends, and with an answer. */
static void test_noise(void **state) {
        unsigned seed = 73, n_accepted = 0;

        for (int i = 0; i < 50000; i++) {
                HandoffMessage m = example((HandoffType) (i % _HANDOFF_TYPE_MAX)), got;
                HandoffProblem p;
                int r;

                pack(&m, &raw);
                for (int k = rand_r(&seed) % 4; k >= 0; k--)
                        raw.bytes[(size_t) rand_r(&seed) % raw.n] = (uint8_t) rand_r(&seed);
                r = handoff_unpack(raw.bytes, raw.n, &got, &p);
                if (r < 0) {
                        assert_true(p.error != HANDOFF_OK && p.text[0] != '\0');
                        continue;
                }
                n_accepted++;
                pack(&got, &again);
                handoff_message_done(&got);
        }
        assert_true(n_accepted > 0);
}

static void test_unknown_fields(void **state) {
        for (HandoffType t = 0; t < _HANDOFF_TYPE_MAX; t++) {
                HandoffMessage m = example(t), got, with;
                Raw *body = calloc(1, sizeof(Raw));
                size_t size;

                assert_non_null(body);
                pack(&m, &raw);
                size = raw.n;
                raw_number(&raw, 100, 1234567);
                raw_fixed64(&raw, 101, 5);
                raw_bytes(&raw, 5000, "of the future", 13);
                raw_varint(&raw, 102 << 3 | 5);
                raw.n += 4;
                accepted(&raw, &got);
                /* As if they were not there, */
                assert_non_null(got.unknown);
                with = got;
                with.unknown = NULL;
                assert_memory_equal(&m, &with, sizeof(m));
                /* and still there. */
                pack(&got, &again);
                assert_same(&raw, &again);
                raw.n = size;
                pack(&with, &again);
                assert_same(&raw, &again);
                handoff_message_done(&got);

                /* Within the body; its length is the number after its tag of two bytes. */
                raw_message(&raw, t, NULL, TWIST_NONE, 0);
                accepted(&raw, &got);
                handoff_message_done(&got);
                for (uint32_t n = 0; n < HANDOFF_UNKNOWN_MAX; n++)
                        raw_number(body, 60 + n, n);
                if (t == HANDOFF_COMMIT) {
                        const HandoffField *f = field_named("commit");

                        raw_message(&raw, t, f, TWIST_COUNT, 0);
                        raw_bytes(&raw, f->number, body->bytes, body->n);
                        accepted(&raw, &got);
                        assert_non_null(got.unknown_in_body);
                        pack(&got, &again);
                        assert_same(&raw, &again);
                        handoff_message_done(&got);
                        raw_number(body, 99, 0);
                        raw_message(&raw, t, f, TWIST_COUNT, 0);
                        raw_bytes(&raw, f->number, body->bytes, body->n);
                        refused(&raw, HANDOFF_TOO_MANY, "commit");
                }
                free(body);
        }
}

static void test_versions(void **state) {
        const HandoffField *version = field_named("version"), *min_version = field_named("min_version");
        HandoffMessage got;

        /* A newer one that older ones may read. */
        raw_message(&raw, HANDOFF_ANSWER, version, TWIST_VALUE, 9);
        accepted(&raw, &got);
        assert_int_equal(got.version, 9);
        handoff_message_done(&got);
        /* One that they may not: that is what is said of it, whatever else it has. */
        raw_message(&raw, HANDOFF_ANSWER, min_version, TWIST_VALUE, 2);
        refused(&raw, HANDOFF_TOO_NEW, "message of version 1, for readers of 2");
        raw_bytes(&raw, 8, "/", 1);
        refused(&raw, HANDOFF_TOO_NEW, "message of version 1, for readers of 2");
        raw.n = 0;
        raw_number(&raw, 1, 3);
        raw_number(&raw, 2, 3);
        raw_bytes(&raw, 40, "a body of version 3", 19);
        refused(&raw, HANDOFF_TOO_NEW, "message of version 3, for readers of 3");
        /* A body that is new, from a writer who thought that older ones could do with it. */
        raw_message(&raw, HANDOFF_ANSWER, field_named("answer"), TWIST_COUNT, 0);
        raw_bytes(&raw, 40, "", 0);
        refused(&raw, HANDOFF_MISSING, "message: none of the bodies");
        /* A feature. */
        raw_message(&raw, HANDOFF_ANSWER, NULL, TWIST_NONE, 0);
        raw_bytes(&raw, 3, "telepathy", 9);
        refused(&raw, HANDOFF_UNKNOWN_FEATURE, "needs: 'telepathy'");
        raw_message(&raw, HANDOFF_ANSWER, NULL, TWIST_NONE, 0);
        raw_bytes(&raw, 3, "tele\npathy", 10);
        refused(&raw, HANDOFF_OUT_OF_RANGE, "needs");
}

#define CONTRADICTS(type_, what, ...)                                                                       \
        do {                                                                                                \
                HandoffMessage m = example(type_);                                                          \
                HandoffProblem p;                                                                           \
                uint8_t *data;                                                                              \
                size_t size;                                                                                \
                                                                                                            \
                __VA_ARGS__;                                                                                \
                assert_int_equal(handoff_pack(&m, &data, &size, &p), -EINVAL);                              \
                if (p.error != HANDOFF_CONTRADICTION || strncmp(p.text, what, strlen(what)) != 0)           \
                        fail_msg("want '%s...', got %s, '%s'", what, handoff_error_to_string(p.error),      \
                                 p.text);                                                                   \
        } while (0)

static void test_relations(void **state) {
        CONTRADICTS(HANDOFF_OFFER, "role", m.role = HANDOFF_DESTINATION);
        CONTRADICTS(HANDOFF_ANSWER, "role", m.role = HANDOFF_SOURCE);
        CONTRADICTS(HANDOFF_START, "role", m.role = HANDOFF_DESTINATION);
        CONTRADICTS(HANDOFF_COMMIT, "role", m.role = HANDOFF_DESTINATION);
        CONTRADICTS(HANDOFF_OFFER, "grant", m.grant = m.id);
        CONTRADICTS(HANDOFF_OFFER, "offer.regions: bytes is", m.offer.bytes += KIB(4));
        CONTRADICTS(HANDOFF_OFFER, "offer.regions: region 1 begins", m.offer.regions[1].gpa = GIB(2));
        CONTRADICTS(HANDOFF_OFFER, "offer.regions: region 1 begins", m.offer.regions[0].gpa = GIB(20));
        CONTRADICTS(HANDOFF_OFFER, "offer.regions: region 0", m.offer.regions[0].gpa = 1);
        CONTRADICTS(HANDOFF_OFFER, "offer.regions: region 0", m.offer.regions[0].size += 512);
        CONTRADICTS(HANDOFF_OFFER, "offer.regions: region 1 ends",
                    m.offer.regions[1].gpa = UINT64_C(1) << 52);
        CONTRADICTS(HANDOFF_OFFER, "offer.page_sizes", m.offer.page_sizes[1] = MIB(3));
        CONTRADICTS(HANDOFF_OFFER, "offer.page_sizes: 4 KiB twice", m.offer.page_sizes[1] = KIB(4));
        CONTRADICTS(HANDOFF_ANSWER, "answer.bytes", m.answer.bytes += KIB(4));
        CONTRADICTS(HANDOFF_ANSWER, "answer.bytes", m.answer.page_size = MIB(3));
        CONTRADICTS(HANDOFF_START, "start.split_leaf", m.start.split_leaf = 4097);
        CONTRADICTS(HANDOFF_COMMIT, "commit.bytes_left", m.commit.post_copy = false);
        CONTRADICTS(HANDOFF_COMPLETE, "complete.new_generation", m.complete.new_generation = 7);
        CONTRADICTS(HANDOFF_COMPLETE, "complete.new_generation", m.complete.bytes_released = 1);
        CONTRADICTS(HANDOFF_COMPLETE, "complete.new_generation", m.role = HANDOFF_SOURCE);

        /* The same when it comes from outside. */
        raw_message(&raw, HANDOFF_COMPLETE, field_named("complete.new_generation"), TWIST_VALUE, 7);
        refused(&raw, HANDOFF_CONTRADICTION, "complete.new_generation");
        raw_message(&raw, HANDOFF_OFFER, field_named("offer.bytes"), TWIST_VALUE, GIB(2));
        refused(&raw, HANDOFF_CONTRADICTION, "offer.regions");
        raw_message(&raw, HANDOFF_OFFER, field_named("offer.page_sizes"), TWIST_COUNT, 2);
        refused(&raw, HANDOFF_CONTRADICTION, "offer.page_sizes: 2 MiB twice");
}

static void test_pack_refuses(void **state) {
        HandoffMessage m = example(HANDOFF_OFFER);
        HandoffProblem p;
        uint8_t *data;
        size_t size;

        m.offer.n_regions = HANDOFF_REGIONS_MAX + 1;
        assert_int_equal(handoff_pack(&m, &data, &size, &p), -EINVAL);
        assert_int_equal(p.error, HANDOFF_TOO_MANY);
        m = example(HANDOFF_OFFER);
        m.n_needs = HANDOFF_NEEDS_MAX + 1;
        assert_int_equal(handoff_pack(&m, &data, &size, &p), -EINVAL);
        m = example(HANDOFF_OFFER);
        m.vm[0] = '\0';
        assert_int_equal(handoff_pack(&m, &data, &size, &p), -EINVAL);
        assert_int_equal(p.error, HANDOFF_MISSING);
        m = example(HANDOFF_OFFER);
        m.type = _HANDOFF_TYPE_MAX;
        assert_int_equal(handoff_pack(&m, &data, &size, &p), -EINVAL);
        m = example(HANDOFF_ABORT);
        m.abort.text[3] = '\n';
        assert_int_equal(handoff_pack(&m, &data, &size, &p), -EINVAL);
        assert_int_equal(p.error, HANDOFF_OUT_OF_RANGE);
}

/* 7.5 GiB are 8 pages of 1G on one host, 3840 of 2M on another and 15 of 512M on a third. */
static void case_55_bytes_and_sizes_travel(void **state) {
        HandoffOffer o = { .regions = { { 0, GIB(3) }, { GIB(4), GIB(4) + MIB(512) } },
                           .n_regions = 2,
                           .bytes = GIB(7) + MIB(512),
                           .page_sizes = { GIB(1), MIB(512), MIB(2) },
                           .n_page_sizes = 3 };
        HandoffProblem p;

        assert_int_equal(handoff_offer_bytes(&o, GIB(1)), GIB(8));
        assert_int_equal(handoff_offer_bytes(&o, MIB(512)), 15 * MIB(512));
        assert_int_equal(handoff_offer_bytes(&o, MIB(2)), 3840 * MIB(2));
        assert_int_equal(handoff_check_answer(&o, &(HandoffAnswer){ .bytes = GIB(8), .page_size = GIB(1) },
                                              &p),
                         0);
        assert_int_equal(handoff_check_answer(
                                         &o, &(HandoffAnswer){ .bytes = 3840 * MIB(2), .page_size = MIB(2) },
                                         &p),
                         0);
        /* Too little, too much, and of a size that nobody offered. */
        assert_int_equal(handoff_check_answer(&o, &(HandoffAnswer){ .bytes = GIB(7), .page_size = GIB(1) },
                                              &p),
                         -EBADMSG);
        assert_int_equal(handoff_check_answer(&o, &(HandoffAnswer){ .bytes = GIB(9), .page_size = GIB(1) },
                                              &p),
                         -EBADMSG);
        assert_int_equal(handoff_check_answer(&o, &(HandoffAnswer){ .bytes = GIB(8), .page_size = KIB(4) },
                                              &p),
                         -EBADMSG);
        assert_string_equal(p.text, "answer.page_size: 4 KiB is none of the sizes that were offered");
}

static void test_words(void **state) {
        for (HandoffType t = 0; t < _HANDOFF_TYPE_MAX; t++)
                assert_non_null(handoff_type_to_string(t));
        for (uint32_t r = 1; r < _HANDOFF_REASON_MAX; r++)
                assert_string_not_equal(handoff_reason_to_string(r), "other");
        assert_string_equal(handoff_reason_to_string(0), "other");
        assert_string_equal(handoff_reason_to_string(200), "other");
        for (HandoffError e = 0; e < _HANDOFF_ERROR_MAX; e++)
                assert_non_null(handoff_error_to_string(e));
        for (unsigned i = 1; i <= 3; i++)
                assert_non_null(handoff_mode_to_string(i));
        assert_null(handoff_mode_to_string(4));
        assert_null(handoff_type_to_string(_HANDOFF_TYPE_MAX));
        assert_null(handoff_role_to_string(3));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_round_trip),
                cmocka_unit_test(test_largest),
                cmocka_unit_test(test_stored),
                cmocka_unit_test(test_truncated),
                cmocka_unit_test(case_73_every_limit_of_the_table),
                cmocka_unit_test(case_73_sizes_and_counts),
                cmocka_unit_test(case_73_malformed),
                cmocka_unit_test(test_noise),
                cmocka_unit_test(test_unknown_fields),
                cmocka_unit_test(test_versions),
                cmocka_unit_test(test_relations),
                cmocka_unit_test(test_pack_refuses),
                cmocka_unit_test(case_55_bytes_and_sizes_travel),
                cmocka_unit_test(test_words),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
