/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "span.h"

#include <errno.h>

int spans_append(Span **spans, size_t *n, Span s) {
        if (s.size == 0)
                return 0;
        /* There is room up to the next power of two: what is appended to has been made here. */
        if ((*n & (*n - 1)) == 0) {
                Span *grown = reallocarray(*spans, *n > 0 ? 2 * *n : 1, sizeof(*grown));

                if (!grown)
                        return -ENOMEM;
                *spans = grown;
        }
        (*spans)[(*n)++] = s;
        return 0;
}

static void replace(SpanSet *set, SpanSet *with) {
        free(set->spans);
        *set = *with;
        *with = (SpanSet){};
}

int spanset_add(SpanSet *set, Span s) {
        _cleanup_(spanset_done) SpanSet out = {};
        bool placed = s.size == 0;
        int r = 0;

        for (size_t i = 0; i < set->n && r >= 0; i++) {
                if (!placed && span_touches(set->spans[i], s)) {
                        s = span_merge(set->spans[i], s);
                        continue;
                }
                if (!placed && s.gpa < set->spans[i].gpa) {
                        placed = true;
                        r = spans_append(&out.spans, &out.n, s);
                }
                if (r >= 0)
                        r = spans_append(&out.spans, &out.n, set->spans[i]);
        }
        if (r >= 0 && !placed)
                r = spans_append(&out.spans, &out.n, s);
        if (r < 0)
                return r;
        replace(set, &out);
        return 0;
}

int spanset_remove(SpanSet *set, Span s) {
        _cleanup_(spanset_done) SpanSet out = {};
        int r = 0;

        for (size_t i = 0; i < set->n && r >= 0; i++) {
                Span have = set->spans[i];

                if (!span_overlaps(have, s)) {
                        r = spans_append(&out.spans, &out.n, have);
                        continue;
                }
                r = spans_append(&out.spans, &out.n, span_between(have.gpa, s.gpa));
                if (r >= 0)
                        r = spans_append(&out.spans, &out.n, span_between(span_end(s), span_end(have)));
        }
        if (r < 0)
                return r;
        replace(set, &out);
        return 0;
}

void spanset_done(SpanSet *set) {
        free(set->spans);
        *set = (SpanSet){};
}

uint64_t spanset_bytes(const SpanSet *set) {
        uint64_t bytes = 0;

        for (size_t i = 0; i < set->n; i++)
                bytes += set->spans[i].size;
        return bytes;
}

int spanset_intersect(SpanSet *set, const SpanSet *with) {
        _cleanup_(spanset_done) SpanSet out = {};
        int r = 0;

        for (size_t i = 0; i < set->n; i++)
                for (size_t k = 0; k < with->n && r >= 0; k++)
                        if (span_overlaps(set->spans[i], with->spans[k]))
                                r = spanset_add(&out, span_intersect(set->spans[i], with->spans[k]));
        if (r < 0)
                return r;
        replace(set, &out);
        return 0;
}
