/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fdname.h"
#include "record.h"

static Record example(void) {
        static PlacementPart parts[] = { { .node = 0, .bytes = MIB(6) }, { .node = 3, .bytes = MIB(2) } };
        static Span built[] = { { 0, MIB(4) }, { GIB(4), MIB(4) } }, let_go[] = { { MIB(2), KIB(4) } };
        Record r = {
                .boot_id = "01234567-89ab-cdef-0123-456789abcdef",
                .name = "db.1_a-b",
                .lease = UINT64_C(0xfedcba9876543210),
                .uid = 1000,
                .state = VM_BUILT,
                .was_built = true,
                .generation = 7,
                .bytes = MIB(8),
                .page_size = MIB(2),
                .parts = parts,
                .n_parts = 2,
                .pid = 4711,
                .start_time = UINT64_MAX,
                .has_handle = true,
                .last_job = 12,
                .job_id = 12,
                .job_type = "split",
                .has_decision = true,
                .decision = DECISION_ALWAYS,
                .facts = { .values = { [FACT_VCPUS] = 8 }, .known = 1U << FACT_VCPUS },
                .max_level = 2,
                .auto_slots = true,
                .built = { built, 2 },
                .let_go = { let_go, 1 },
                .built_charge = MIB(8),
                .built_slots_bytes = MIB(9),
                .built_level = 3,
                .heal_level = 1,
                .charge_bytes = MIB(8),
                .populate_usec = 99,
                .policy = { .build = true,
                            .n_reasons = 2,
                            .leaves = 4,
                            .saved_usec = 5,
                            .build_usec = 6,
                            .pinned_bytes = MIB(8) },
        };

        idset_add(&r.nodes, 0);
        idset_add(&r.nodes, 3);
        r.policy.reasons[0].word = "requested";
        strcpy(r.policy.reasons[0].text, "the request says \"always\", with words and 100%");
        r.policy.reasons[1].word = "no-text";
        return r;
}

static char *format(const Record *r, size_t *size) {
        char *text = NULL;

        assert_int_equal(record_format(r, &text, size), 0);
        return text;
}

static void test_round_trip(void **state) {
        Record r = example(), back;
        RecordFault fault;
        size_t n, n_again;
        char *text = format(&r, &n), *again;

        assert_int_equal(record_parse(text, n, &back, &fault), 0);
        assert_string_equal(back.name, r.name);
        assert_true(back.lease == r.lease);
        assert_int_equal(back.n_parts, 2);
        assert_int_equal(back.parts[1].node, 3);
        assert_int_equal(back.built.n, 2);
        assert_string_equal(back.policy.reasons[0].word, "requested");
        assert_string_equal(back.policy.reasons[0].text, r.policy.reasons[0].text);
        /* And all the rest. */
        again = format(&back, &n_again);
        assert_int_equal(n, n_again);
        assert_memory_equal(text, again, n);
        record_done(&back);
        free(again);
        free(text);
}

/* The longest there are: with as many digits as addresses can have. */
static SpanSet spans(size_t n) {
        SpanSet set = { calloc(n, sizeof(Span)), n };

        assert_non_null(set.spans);
        for (size_t i = 0; i < n; i++)
                set.spans[i] = (Span){ UINT64_MAX - (n - i) * MIB(4), MIB(1) };
        return set;
}

/* All that is written can be read again. */
static void test_largest(void **state) {
        Record r = example(), back;
        char *text = NULL;
        RecordFault fault;
        size_t n;

        r.built = spans(RECORD_SPANS_MAX);
        r.let_go = spans(RECORD_SPANS_MAX);
        text = format(&r, &n);
        assert_true(n > 2 * RECORD_SPANS_MAX * strlen("built 18446744073709551615 1048576\n"));
        if (record_parse(text, n, &back, &fault) < 0)
                fail_msg("%s: %s", fault.word, fault.text);
        assert_int_equal(back.built.n, RECORD_SPANS_MAX);
        assert_int_equal(back.let_go.n, RECORD_SPANS_MAX);
        assert_memory_equal(back.built.spans, r.built.spans, RECORD_SPANS_MAX * sizeof(Span));
        record_done(&back);
        free(text);
        spanset_done(&r.built);
        spanset_done(&r.let_go);

        for (unsigned i = 0; i < 2; i++) {
                SpanSet *set = i == 0 ? &r.built : &r.let_go;

                *set = spans(RECORD_SPANS_MAX + 1);
                assert_int_equal(record_format(&r, &text, &n), -EFBIG);
                spanset_done(set);
        }
        r.n_parts = RECORD_PARTS_MAX + 1;
        assert_int_equal(record_format(&r, &text, &n), -EFBIG);
}

static void fails(const char *text, size_t n, const char *word) {
        RecordFault fault = {};
        Record r;

        if (record_parse(text, n, &r, &fault) != -EBADMSG)
                fail_msg("a record that is %s was taken: %.*s", word, (int) n, text);
        if (word && strcmp(fault.word, word) != 0)
                fail_msg("expected %s, got %s: %s", word, fault.word, fault.text);
        assert_true(fault.text[0] != '\0');
}

static void test_truncated_at_each_byte(void **state) {
        Record r = example();
        size_t n;
        char *text = format(&r, &n);

        for (size_t i = 0; i < n; i++) {
                char *cut = malloc(i + 1); /* so that a read beyond it is found */

                memcpy(cut, text, i);
                fails(cut, i, "truncated");
                free(cut);
        }
        free(text);
}

static void test_each_byte_changed(void **state) {
        Record r = example();
        size_t n;
        char *text = format(&r, &n);

        for (size_t i = 0; i < n; i++)
                for (unsigned bit = 0; bit < 8; bit++) {
                        text[i] ^= (char) (1 << bit);
                        fails(text, n, NULL);
                        text[i] ^= (char) (1 << bit);
                }
        free(text);
}

static void test_garbage(void **state) {
        static char big[RECORD_SIZE_MAX + 1];
        char bytes[512];

        srandom(1);
        for (unsigned k = 0; k < 2000; k++) {
                size_t n = (size_t) random() % sizeof(bytes);

                for (size_t i = 0; i < n; i++)
                        bytes[i] = (char) random();
                if (n > 12 && k % 2)
                        memcpy(bytes, "tdpd-record ", 12);
                fails(bytes, n, NULL);
        }
        memset(big, 'x', sizeof(big));
        fails(big, sizeof(big), "too-large");
        fails("tdpd-record 2\nwhatever comes\n", 29, "newer");
        fails("tdpd-record 2\n", 14, "newer");
        fails("tdpd-record 0\n", 14, "no-record");
        fails("tdpd-record x\n", 14, "no-record");
        fails("tdpd-record 99999999999999999999\n", 33, "no-record");
}

/* With a right checksum: text with one line replaced, or ("key" NULL) added. */
static void change(const char *key, const char *line, const char *word) {
        Record r = example();
        char *text, *p, *out = NULL;
        uint64_t h = UINT64_C(0xcbf29ce484222325);
        size_t n, size;
        FILE *f;

        text = format(&r, &n);
        f = open_memstream(&out, &size);
        assert_non_null(f);
        for (p = text; strncmp(p, "end ", 4) != 0; p = strchr(p, '\n') + 1) {
                size_t len = (size_t) (strchr(p, '\n') - p);

                if (!key || strncmp(p, key, strlen(key)) != 0 || p[strlen(key)] != ' ')
                        fprintf(f, "%.*s\n", (int) len, p);
                else if (line)
                        fprintf(f, "%s\n", line);
        }
        if (!key)
                fprintf(f, "%s\n", line);
        fflush(f);
        for (size_t i = 0; i < size; i++)
                h = (h ^ (uint8_t) out[i]) * UINT64_C(0x100000001b3);
        fprintf(f, "end %016" PRIx64 "\n", h);
        fclose(f);

        if (word)
                fails(out, size, word);
        else {
                RecordFault fault;
                Record back;

                if (record_parse(out, size, &back, &fault) < 0)
                        fail_msg("%s: %s", line, fault.text);
                record_done(&back);
        }
        free(out);
        free(text);
}

static void test_wrong_lines(void **state) {
        static const char *const bad[][2] = {
                { "uid", "uid 4294967296" },
                { "uid", "uid -1" },
                { "uid", "uid 01" },
                { "uid", "uid" },
                { "uid", NULL },
                { "bytes", "bytes 18446744073709551616" },
                { "bytes", "bytes 4096" },
                { "name", "name a/b" },
                { "name", "name ../../etc" },
                { "name", "name a b" },
                { "state", "state ready" },
                { "state", "state populated" },
                { "state", "state reserved" },
                { "decision", "decision maybe" },
                { "handle", "handle 1" },
                { "handle", "handle no" },
                { "pid", "pid 0" },
                { "pid", "pid 2147483648" },
                { "lease", "lease 0000000000000000" },
                { "lease", "lease 123" },
                { "page-size", "page-size 3000000" },
                { "page-size", "page-size 0" },
                { "nodes", "nodes 9999999" },
                { "part", "part 0 1" },
                { "part", "part 0 18446744073709551615" },
                { "part", "part 1024 4194304" },
                { "part", "part 0" },
                { "built", "built 0 0" },
                { "built", "built 4096 18446744073709551615" },
                { "boot-id", "boot-id x" },
                { "job", "job 0" },
                { NULL, "uid 5" },
                { NULL, "built 0 4096" },
                { NULL, "reason x" },
                { NULL, "reason  y" },
                { NULL, "reason 0123456789012345678901234567890123 y" },
        };

        change("uid", "uid 0", NULL);
        change(NULL, "reason third one", NULL);
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                change(bad[i][0], bad[i][1], "bad-value");
        change(NULL, "colour blue", "unknown-key");
        change(NULL, "uid5", "unknown-key");
}

static void test_fd_names(void **state) {
        static const char *const bad[] = {
                "",
                "stored",
                "tdp1-m0-",
                "tdp1-m0-0123456789abcde",
                "tdp1-m0-0",
                "tdp1-m0-0123456789abcdeg",
                "tdp1-m00-0123456789abcdef",
                "tdp1-h1-0123456789abcdef",
                "tdp1-d1-0000000000000001",
                "tdp1-d0-0123456789abcdef",
                "tdp1-x0-0123456789abcdef",
                "tdp1-m1024-0123456789abcdef",
                "tdp1-m99999999999999999999-0123456789abcdef",
                "tdp2-m0-0123456789abcdef",
                "tdp1-m0-0000000000000000",
                "tdp1-m0-0123456789ABCDEF",
                "tdp1-m0-0123456789abcdef ",
                " tdp1-m0-0123456789abcdef",
                "tdp1-m-0123456789abcdef",
                "tdp1-m0_0123456789abcdef",
        };
        char text[FD_NAME_MAX];
        FdName back;

        for (FdKind kind = 0; kind < _FD_KIND_MAX; kind++)
                for (unsigned index = 0; index < (kind == FD_MEMORY ? 1024 : 1); index++) {
                        FdName n = { kind, index, UINT64_C(0xf00000000000000f) };

                        if (kind == FD_DRAIN)
                                n = FD_DRAIN_NAME;

                        fdname_format(n, text);
                        assert_int_equal(fdname_parse(text, &back), 0);
                        assert_true(back.kind == kind && back.index == index && back.lease == n.lease);
                        /* What systemd takes. */
                        assert_null(strpbrk(text, ": \n"));
                        assert_true(strlen(text) < 32);
                }
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                if (fdname_parse(bad[i], &back) >= 0)
                        fail_msg("\"%s\" is taken for a name of ours", bad[i]);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_round_trip),
                cmocka_unit_test(test_largest),
                cmocka_unit_test(test_truncated_at_each_byte),
                cmocka_unit_test(test_each_byte_changed),
                cmocka_unit_test(test_garbage),
                cmocka_unit_test(test_wrong_lines),
                cmocka_unit_test(test_fd_names),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
