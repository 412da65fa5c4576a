/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The table of all fields and the scan that holds a message against it; for proto/ only. */

#include "handoff.h"

/* The messages of handoff.proto: bodies have the number of their type. */
typedef enum HandoffPart {
        PART_ENVELOPE = _HANDOFF_TYPE_MAX,
        PART_REGION,
        _PART_MAX,
} HandoffPart;

typedef enum HandoffKind {
        KIND_NUMBER,  /* varint */
        KIND_NUMBERS, /* a list of them, packed or not */
        KIND_FIXED64,
        KIND_ID,   /* 16 bytes, not all zero */
        KIND_NAME, /* of a VM */
        KIND_TEXT, /* printable ASCII */
        KIND_PART,
} HandoffKind;

typedef struct HandoffField {
        unsigned part;
        uint32_t number;
        const char *name;
        HandoffKind kind;
        unsigned nested;   /* part, for KIND_PART */
        uint64_t min, max; /* of the value, or of the length */
        uint32_t most;     /* so often at most */
        uint32_t needed;   /* bits of the types that cannot be without it */
        /* What must hold between this field and others: false, with *text set, if it does not. */
        bool (*relation)(const HandoffMessage *m, char *text, size_t size);
} HandoffField;

#define HANDOFF_PART_FIELDS_MAX 16U

/* Rows of a part are neighbours. */
extern const HandoffField handoff_fields[];
extern const size_t handoff_n_fields;

bool handoff_feature_is_known(const char *s, size_t n);

/* Before anything is allocated for it: form, counts, ranges, and that nothing is missing. */
int handoff_scan(const uint8_t *data, size_t size, HandoffProblem *p);
/* And once it is a value: the table's relations. */
int handoff_check(const HandoffMessage *m, HandoffProblem *p);
