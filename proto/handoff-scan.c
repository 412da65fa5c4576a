/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Walks over the bytes of a message before anything is allocated for it. protobuf-c allocates what a message
 * asks for and cuts numbers off; here every field is held against its row first, so that it only ever sees
 * messages whose form, counts and lengths are in order.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "format.h"
#include "handoff-fields.h"

typedef enum WireType {
        WIRE_VARINT = 0,
        WIRE_64BIT = 1,
        WIRE_BYTES = 2,
        WIRE_32BIT = 5,
} WireType;

typedef struct Cursor {
        const uint8_t *p, *end;
} Cursor;

/* A field as it stands on the wire. */
typedef struct Item {
        uint32_t number;
        WireType wire;
        uint64_t value;         /* or length */
        const uint8_t *payload; /* of WIRE_BYTES */
} Item;

int handoff_problem(HandoffProblem *p, HandoffError e, const char *format, ...) {
        va_list ap;

        p->error = e;
        va_start(ap, format);
        vsnprintf(p->text, sizeof(p->text), format, ap);
        va_end(ap);
        return e == HANDOFF_TOO_LARGE                                 ? -EMSGSIZE
               : e == HANDOFF_TOO_NEW || e == HANDOFF_UNKNOWN_FEATURE ? -EPROTONOSUPPORT
                                                                      : -EBADMSG;
}

static const char *part_name(unsigned part) {
        return part == PART_ENVELOPE ? "message"
               : part == PART_REGION ? "region"
                                     : handoff_type_to_string(part);
}

static int read_varint(Cursor *c, uint64_t *ret, const char *where, HandoffProblem *p) {
        uint64_t n = 0;

        for (unsigned shift = 0; shift < 70; shift += 7) {
                uint8_t byte;

                if (c->p == c->end)
                        return handoff_problem(p, HANDOFF_TRUNCATED, "%s: ends within a number", where);
                byte = *c->p++;
                /* Of the tenth byte one bit is left. */
                if (shift == 63 && byte > 1)
                        break;
                n |= (uint64_t) (byte & 0x7f) << shift;
                if (!(byte & 0x80)) {
                        *ret = n;
                        return 0;
                }
        }
        return handoff_problem(p, HANDOFF_MALFORMED, "%s: a number of more than 64 bits", where);
}

static int read_fixed(Cursor *c, size_t n, uint64_t *ret, const char *where, HandoffProblem *p) {
        uint64_t value = 0;

        if ((size_t) (c->end - c->p) < n)
                return handoff_problem(p, HANDOFF_TRUNCATED, "%s: %zu bytes are left of a number of %zu",
                                       where, (size_t) (c->end - c->p), n);
        for (size_t i = 0; i < n; i++)
                value |= (uint64_t) c->p[i] << (8 * i);
        c->p += n;
        *ret = value;
        return 0;
}

static int read_item(Cursor *c, const char *where, Item *ret, HandoffProblem *p) {
        uint64_t tag;
        int r;

        r = read_varint(c, &tag, where, p);
        if (r < 0)
                return r;
        /* Field numbers have 29 bits. */
        if (tag > UINT32_MAX || tag >> 3 == 0)
                return handoff_problem(p, HANDOFF_MALFORMED, "%s: %" PRIu64 " is no field number", where,
                                       tag >> 3);
        *ret = (Item){ .number = (uint32_t) (tag >> 3), .wire = (WireType) (tag & 7) };

        switch (ret->wire) {
        case WIRE_VARINT:
                return read_varint(c, &ret->value, where, p);
        case WIRE_64BIT:
                return read_fixed(c, 8, &ret->value, where, p);
        case WIRE_32BIT:
                return read_fixed(c, 4, &ret->value, where, p);
        case WIRE_BYTES:
                r = read_varint(c, &ret->value, where, p);
                if (r < 0)
                        return r;
                if (ret->value > (uint64_t) (c->end - c->p))
                        return handoff_problem(p, HANDOFF_TRUNCATED,
                                               "%s: field %" PRIu32 " has %" PRIu64 " bytes, %zu are left",
                                               where, ret->number, ret->value, (size_t) (c->end - c->p));
                ret->payload = c->p;
                c->p += ret->value;
                return 0;
        default:
                return handoff_problem(p, HANDOFF_MALFORMED, "%s: field %" PRIu32 " is of wire type %u",
                                       where, ret->number, (unsigned) ret->wire);
        }
}

static int check_range(const HandoffField *f, const char *what, uint64_t n, HandoffProblem *p) {
        if (n >= f->min && n <= f->max)
                return 0;
        return handoff_problem(p, HANDOFF_OUT_OF_RANGE,
                               "%s: %s%" PRIu64 ", must be from %" PRIu64 " to %" PRIu64, f->name, what, n,
                               f->min, f->max);
}

static int check_count(const HandoffField *f, uint32_t n, HandoffProblem *p) {
        if (n <= f->most)
                return 0;
        return handoff_problem(p, HANDOFF_TOO_MANY, "%s: more than %" PRIu32, f->name, f->most);
}

static int check_string(const HandoffField *f, const uint8_t *s, size_t n, HandoffProblem *p) {
        char name[VM_NAME_MAX + 1];

        if (f->kind == KIND_ID) {
                for (size_t i = 0; i < n; i++)
                        if (s[i] != 0)
                                return 0;
                return handoff_problem(p, HANDOFF_OUT_OF_RANGE, "%s: all zero", f->name);
        }
        for (size_t i = 0; i < n; i++)
                if (s[i] < 0x20 || s[i] > 0x7e)
                        return handoff_problem(p, HANDOFF_OUT_OF_RANGE,
                                               "%s: byte 0x%02x, must be printable ASCII", f->name, s[i]);
        if (f->kind == KIND_TEXT)
                return 0;
        memcpy(name, s, n);
        name[n] = '\0';
        if (!vm_name_is_valid(name))
                return handoff_problem(
                                p, HANDOFF_OUT_OF_RANGE,
                                "%s: '%s', must be of letters, digits, '.', '_' and '-', the first a letter or "
                                "a digit",
                                f->name, name);
        return 0;
}

/* Lists may be packed into one field, or be a field for each number. */
static int check_numbers(const HandoffField *f, const Item *item, uint32_t *count, HandoffProblem *p) {
        uint64_t n;
        Cursor c;
        int r;

        if (item->wire == WIRE_VARINT) {
                r = check_count(f, ++*count, p);
                return r < 0 ? r : check_range(f, "", item->value, p);
        }
        c = (Cursor){ item->payload, item->payload + item->value };
        while (c.p < c.end) {
                r = check_count(f, ++*count, p);
                if (r < 0)
                        return r;
                r = read_varint(&c, &n, f->name, p);
                if (r < 0)
                        return r;
                r = check_range(f, "", n, p);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int scan_part(Cursor c, unsigned part, HandoffProblem *p);

static int check_field(const HandoffField *f, const Item *item, uint32_t *count, HandoffProblem *p) {
        static const WireType wires[] = {
                [KIND_NUMBER] = WIRE_VARINT, [KIND_NUMBERS] = WIRE_BYTES, [KIND_FIXED64] = WIRE_64BIT,
                [KIND_ID] = WIRE_BYTES,      [KIND_NAME] = WIRE_BYTES,    [KIND_TEXT] = WIRE_BYTES,
                [KIND_PART] = WIRE_BYTES,
        };
        int r;

        if (item->wire != wires[f->kind] && !(f->kind == KIND_NUMBERS && item->wire == WIRE_VARINT))
                return handoff_problem(p, HANDOFF_MALFORMED, "%s: of wire type %u, must be %u", f->name,
                                       (unsigned) item->wire, (unsigned) wires[f->kind]);
        if (f->kind == KIND_NUMBERS)
                return check_numbers(f, item, count, p);

        r = check_count(f, ++*count, p);
        if (r < 0)
                return r;
        r = check_range(f, item->wire == WIRE_BYTES ? "length " : "", item->value, p);
        if (r < 0 || item->wire != WIRE_BYTES)
                return r;
        if (f->kind == KIND_PART)
                return scan_part((Cursor){ item->payload, item->payload + item->value }, f->nested, p);
        return check_string(f, item->payload, item->value, p);
}

/* The part's first row. */
static const HandoffField *fields_of(unsigned part) {
        const HandoffField *f = handoff_fields;

        while (f->part != part)
                f++;
        return f;
}

static const HandoffField *field_of(unsigned part, uint32_t number) {
        const HandoffField *end = handoff_fields + handoff_n_fields;

        for (const HandoffField *f = fields_of(part); f < end && f->part == part; f++)
                if (f->number == number)
                        return f;
        return NULL;
}

/* "counts" has a number for each of the part's rows. */
static int check_missing(unsigned part, const uint32_t *counts, HandoffType type, HandoffProblem *p) {
        const HandoffField *fields = fields_of(part), *end = handoff_fields + handoff_n_fields;

        for (const HandoffField *f = fields; f < end && f->part == part; f++)
                if (counts[f - fields] == 0 && (f->needed & 1U << type))
                        return handoff_problem(p, HANDOFF_MISSING, "%s: missing", f->name);
        return 0;
}

static int scan_part(Cursor c, unsigned part, HandoffProblem *p) {
        uint32_t counts[HANDOFF_PART_FIELDS_MAX] = {}, unknown = 0;
        /* What a message is, its body tells. */
        HandoffType type = part == PART_ENVELOPE ? _HANDOFF_TYPE_MAX
                           : part == PART_REGION ? HANDOFF_OFFER
                                                 : part;
        int r;

        while (c.p < c.end) {
                const HandoffField *f;
                Item item;

                r = read_item(&c, part_name(part), &item, p);
                if (r < 0)
                        return r;
                f = field_of(part, item.number);
                if (!f) {
                        if (++unknown > HANDOFF_UNKNOWN_MAX)
                                return handoff_problem(p, HANDOFF_TOO_MANY,
                                                       "%s: more than %u unknown fields", part_name(part),
                                                       HANDOFF_UNKNOWN_MAX);
                        continue;
                }
                if (part == PART_ENVELOPE && f->kind == KIND_PART) {
                        if (type != _HANDOFF_TYPE_MAX && type != f->nested)
                                return handoff_problem(p, HANDOFF_CONTRADICTION, "message: %s and %s in one",
                                                       handoff_type_to_string(type), f->name);
                        type = f->nested;
                }
                r = check_field(f, &item, counts + (f - fields_of(part)), p);
                if (r < 0)
                        return r;
        }
        if (type == _HANDOFF_TYPE_MAX)
                return handoff_problem(p, HANDOFF_MISSING,
                                       "message: none of the bodies that version %u knows", HANDOFF_VERSION);
        return check_missing(part, counts, type, p);
}

/* Before all else: of a message that is not for this version nothing more need make sense. */
static int check_version(Cursor c, HandoffProblem *p) {
        const HandoffField *needs = field_of(PART_ENVELOPE, 3);
        uint64_t version = 0, min_version = 0;
        Item item, unknown = {};
        int r;

        while (c.p < c.end) {
                r = read_item(&c, "message", &item, p);
                if (r < 0)
                        return r;
                if (item.number == 1 && item.wire == WIRE_VARINT)
                        version = item.value;
                if (item.number == 2 && item.wire == WIRE_VARINT)
                        min_version = item.value;
                if (item.number == needs->number && item.wire == WIRE_BYTES && !unknown.payload &&
                    !handoff_feature_is_known((const char *) item.payload, item.value))
                        unknown = item;
        }
        if (min_version > HANDOFF_VERSION)
                return handoff_problem(p, HANDOFF_TOO_NEW,
                                       "message of version %" PRIu64 ", for readers of %" PRIu64
                                       " or newer; this one is %u",
                                       version, min_version, HANDOFF_VERSION);
        if (!unknown.payload)
                return 0;
        r = check_range(needs, "length ", unknown.value, p);
        if (r >= 0)
                r = check_string(needs, unknown.payload, unknown.value, p);
        if (r < 0)
                return r;
        return handoff_problem(p, HANDOFF_UNKNOWN_FEATURE, "needs: '%.*s', not known here",
                               (int) unknown.value, (const char *) unknown.payload);
}

int handoff_scan(const uint8_t *data, size_t size, HandoffProblem *p) {
        Cursor c = { data, data + size };
        int r;

        if (size > HANDOFF_MESSAGE_MAX)
                return handoff_problem(p, HANDOFF_TOO_LARGE, "message: %zu bytes, at most %u", size,
                                       HANDOFF_MESSAGE_MAX);
        if (size == 0)
                return handoff_problem(p, HANDOFF_TRUNCATED, "message: empty");
        r = check_version(c, p);
        return r < 0 ? r : scan_part(c, PART_ENVELOPE, p);
}
