/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Sets of guest-physical memory: disjoint spans, ascending, none touching the next. */

#include "macro.h"

typedef struct Span {
        uint64_t gpa;
        uint64_t size;
} Span;

typedef struct SpanSet {
        Span *spans;
        size_t n;
} SpanSet;

/* What runs over the end of the address space ends there. */
static inline uint64_t span_end(Span s) {
        return s.size > UINT64_MAX - s.gpa ? UINT64_MAX : s.gpa + s.size;
}

static inline bool span_overlaps(Span a, Span b) {
        return a.gpa < span_end(b) && b.gpa < span_end(a);
}

/* Overlapping, or one begins where the other ends. */
static inline bool span_touches(Span a, Span b) {
        return a.gpa <= span_end(b) && b.gpa <= span_end(a);
}

static inline Span span_between(uint64_t gpa, uint64_t end) {
        return (Span){ .gpa = gpa, .size = end > gpa ? end - gpa : 0 };
}

/* What both have; of size 0 if that is nothing. */
static inline Span span_intersect(Span a, Span b) {
        return span_between(MAX_OF(a.gpa, b.gpa), MIN_OF(span_end(a), span_end(b)));
}

/* The smallest one that has both. */
static inline Span span_merge(Span a, Span b) {
        return span_between(MIN_OF(a.gpa, b.gpa), MAX_OF(span_end(a), span_end(b)));
}

int spanset_add(SpanSet *set, Span s);
int spanset_remove(SpanSet *set, Span s);
int spanset_intersect(SpanSet *set, const SpanSet *with);
uint64_t spanset_bytes(const SpanSet *set);
void spanset_done(SpanSet *set);

/* For callers that cut a span into more of them: room for one more at the end. */
int spans_append(Span **spans, size_t *n, Span s);
