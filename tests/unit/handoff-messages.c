/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "handoff-messages.h"

#define ID(c)                                                                                               \
        {                                                                                                   \
                .bytes = { c, c, c, c, c, c, c, c, c, c, c, c, c, c, c, c }                                 \
        }

HandoffMessage example(HandoffType type) {
        HandoffMessage m = {
                .version = 1,
                .min_version = 1,
                .needs = { "post-copy" },
                .n_needs = 1,
                .role = type == HANDOFF_ANSWER || type == HANDOFF_COMPLETE ? HANDOFF_DESTINATION
                                                                           : HANDOFF_SOURCE,
                .id = ID('i'),
                .from = ID('f'),
                .to = ID('t'),
                .vm = "db-1",
                .generation = 7,
                .type = type,
        };

        if (type != HANDOFF_OFFER)
                m.grant = (HandoffId) ID('g');
        switch (type) {
        case HANDOFF_OFFER:
                m.offer = (HandoffOffer){
                        .regions = { { .gpa = 0, .size = GIB(3) }, { .gpa = GIB(4), .size = GIB(5) } },
                        .n_regions = 2,
                        .bytes = GIB(8),
                        .page_sizes = { GIB(1), MIB(2), KIB(4) },
                        .n_page_sizes = 3,
                        .mode = HANDOFF_GLOBAL,
                        .time_left_usec = 60000000,
                        .vcpus = 4,
                        .post_copy = true,
                };
                break;
        case HANDOFF_ANSWER:
                m.answer = (HandoffAnswer){ .bytes = GIB(8),
                                            .page_size = MIB(2),
                                            .mode = HANDOFF_ON_DEMAND,
                                            .time_left_usec = 59000000 };
                break;
        case HANDOFF_START:
                m.start = (HandoffStart){ .logging = HANDOFF_LOGGING_BITMAP,
                                          .split_leaf = KIB(4),
                                          .time_left_usec = 50000000 };
                break;
        case HANDOFF_COMMIT:
                m.commit = (HandoffCommit){ .post_copy = true, .bytes_left = MIB(512) };
                break;
        case HANDOFF_COMPLETE:
                m.complete = (HandoffComplete){ .bytes_left = MIB(512),
                                                .new_generation = 8,
                                                .holes = KIB(8) };
                break;
        case HANDOFF_ABORT:
                m.abort = (HandoffAbort){ .reason = HANDOFF_REASON_NO_PAGES,
                                          .text = "8 GiB in pages of 2 MiB asked for, 6 GiB free",
                                          .needed = GIB(8),
                                          .available = GIB(6) };
                break;
        default:
                abort();
        }
        return m;
}

static void raw_byte(Raw *raw, uint8_t byte) {
        if (raw->n == sizeof(raw->bytes))
                abort();
        raw->bytes[raw->n++] = byte;
}

void raw_varint(Raw *raw, uint64_t n) {
        for (; n >= 0x80; n >>= 7)
                raw_byte(raw, (uint8_t) (n | 0x80));
        raw_byte(raw, (uint8_t) n);
}

void raw_number(Raw *raw, uint32_t field, uint64_t n) {
        raw_varint(raw, field << 3);
        raw_varint(raw, n);
}

void raw_fixed64(Raw *raw, uint32_t field, uint64_t n) {
        raw_varint(raw, field << 3 | 1);
        for (size_t i = 0; i < 8; i++)
                raw_byte(raw, (uint8_t) (n >> (8 * i)));
}

void raw_bytes(Raw *raw, uint32_t field, const void *bytes, size_t n) {
        const uint8_t *p = bytes;

        raw_varint(raw, field << 3 | 2);
        raw_varint(raw, n);
        for (size_t i = 0; i < n; i++)
                raw_byte(raw, p[i]);
}

const HandoffField *field_named(const char *name) {
        for (size_t i = 0; i < handoff_n_fields; i++)
                if (streq(handoff_fields[i].name, name))
                        return handoff_fields + i;
        abort();
}

/* A value that is fine for every field of this name. */
static uint64_t fine_number(const HandoffField *f, HandoffType type) {
        /* clang-format off */
        static const struct { const char *name; uint64_t n; } fine[] = {
                { "version", 1 }, { "min_version", 1 }, { "generation", 7 },
                { "offer.bytes", GIB(1) }, { "offer.page_sizes", MIB(2) }, { "offer.mode", 1 },
                { "offer.time_left_usec", 1000 }, { "answer.bytes", GIB(1) }, { "answer.page_size", MIB(2) },
                { "answer.mode", 2 }, { "answer.time_left_usec", 1000 }, { "start.logging", 2 },
                { "start.split_leaf", KIB(4) }, { "start.time_left_usec", 1000 }, { "commit.post_copy", 1 },
                { "commit.bytes_left", MIB(1) }, { "complete.new_generation", 8 }, { "abort.reason", 3 },
                { "region.bytes", GIB(1) },
        };
        /* clang-format on */

        if (streq(f->name, "role"))
                return type == HANDOFF_ANSWER || type == HANDOFF_COMPLETE ? HANDOFF_DESTINATION
                                                                          : HANDOFF_SOURCE;
        for (size_t i = 0; i < ELEMENTSOF(fine); i++)
                if (streq(fine[i].name, f->name))
                        return fine[i].n;
        return 0;
}

static void raw_part(Raw *raw, unsigned part, HandoffType type, const HandoffField *twisted, Twist twist,
                     uint64_t value);

static void raw_field(Raw *raw, const HandoffField *f, HandoffType type, const HandoffField *twisted,
                      Twist twist, uint64_t value) {
        static const char filler[HANDOFF_MESSAGE_MAX] = "";
        char string[1024];
        uint64_t n = f == twisted && twist == TWIST_VALUE ? value : fine_number(f, type);
        size_t length = f->kind == KIND_TEXT && f->min == 0 ? 5 : f->min;

        if (f == twisted && twist == TWIST_WIRE_TYPE) {
                raw_varint(raw, (uint64_t) f->number << 3 | value);
                if (value == 0 || value == 2)
                        raw_varint(raw, 0);
                else
                        for (int i = 0; i < (value == 1 ? 8 : 4); i++)
                                raw_byte(raw, 0);
                return;
        }
        switch (f->kind) {
        case KIND_NUMBER:
                raw_number(raw, f->number, n);
                break;
        case KIND_NUMBERS: {
                Raw *list = calloc(1, sizeof(Raw));

                if (!list)
                        abort();
                raw_varint(list, n);
                raw_bytes(raw, f->number, list->bytes, list->n);
                free(list);
                break;
        }
        case KIND_FIXED64:
                raw_fixed64(raw, f->number, n);
                break;
        case KIND_PART: {
                Raw *nested = calloc(1, sizeof(Raw));

                if (!nested)
                        abort();
                raw_part(nested, f->nested, type, twisted, twist, value);
                /* Made longer by a field that nobody knows. */
                if (f == twisted && twist == TWIST_VALUE)
                        raw_bytes(nested, 1000, filler, value - nested->n - 3 - (value > 130));
                raw_bytes(raw, f->number, nested->bytes, nested->n);
                free(nested);
                break;
        }
        default:
                if (f == twisted && twist == TWIST_VALUE)
                        length = value;
                /* A feature must be one that is known. */
                memset(string, 'a', sizeof(string));
                if (streq(f->name, "needs") && !(f == twisted && twist == TWIST_VALUE)) {
                        length = strlen("post-copy");
                        memcpy(string, "post-copy", length);
                }
                if (f == twisted && twist == TWIST_BYTE)
                        string[0] = (char) value;
                raw_bytes(raw, f->number, string, length);
        }
}

static void raw_part(Raw *raw, unsigned part, HandoffType type, const HandoffField *twisted, Twist twist,
                     uint64_t value) {
        for (const HandoffField *f = handoff_fields; f < handoff_fields + handoff_n_fields; f++) {
                uint64_t times = f == twisted && twist == TWIST_COUNT ? value : 1;

                bool unused = (part == PART_ENVELOPE && f->kind == KIND_PART && f->nested != type) ||
                              (type == HANDOFF_OFFER && streq(f->name, "grant")) ||
                              streq(f->name, "complete.bytes_released");

                if (f->part != part || (unused && f != twisted))
                        continue;
                for (uint64_t i = 0; i < times; i++)
                        raw_field(raw, f, type, twisted, twist, value);
        }
}

void raw_message(Raw *raw, HandoffType type, const HandoffField *field, Twist twist, uint64_t value) {
        raw->n = 0;
        raw_part(raw, PART_ENVELOPE, type, field, twist, value);
}
