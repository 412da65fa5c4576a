/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* One message of each type, with all its fields in use, and raw ones written field by field. */

#include "handoff-fields.h"

HandoffMessage example(HandoffType type);

/* A message in the making; more than a message may have, so that tests can go beyond. */
typedef struct Raw {
        uint8_t bytes[4 * HANDOFF_MESSAGE_MAX];
        size_t n;
} Raw;

void raw_varint(Raw *raw, uint64_t n);
void raw_number(Raw *raw, uint32_t field, uint64_t n);
void raw_fixed64(Raw *raw, uint32_t field, uint64_t n);
void raw_bytes(Raw *raw, uint32_t field, const void *bytes, size_t n);

typedef enum Twist {
        TWIST_NONE,
        TWIST_VALUE,     /* the value, or a length */
        TWIST_COUNT,     /* so often */
        TWIST_WIRE_TYPE, /* of this wire type */
        TWIST_BYTE,      /* the first byte of a string */
} Twist;

/* A message as example() has it, from the table, but for one field of it. */
void raw_message(Raw *raw, HandoffType type, const HandoffField *field, Twist twist, uint64_t value);
const HandoffField *field_named(const char *name);
