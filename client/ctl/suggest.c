/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* "Did you mean": the nearest word by edit distance. */

#include <string.h>

#include "suggest.h"

#define WORD_MAX 32

static unsigned min3(unsigned a, unsigned b, unsigned c) {
        unsigned m = a < b ? a : b;

        return m < c ? m : c;
}

/* Insertions, deletions, replacements and swaps of neighbours count one each. */
static unsigned distance(const char *a, const char *b) {
        size_t n = strlen(a), m = strlen(b);
        unsigned rows[3][WORD_MAX + 1], *before = rows[0], *last = rows[1], *row = rows[2];

        if (n > WORD_MAX || m > WORD_MAX)
                return WORD_MAX;

        for (size_t j = 0; j <= m; j++)
                last[j] = j;

        for (size_t i = 1; i <= n; i++) {
                unsigned *spare = before;

                row[0] = i;
                for (size_t j = 1; j <= m; j++) {
                        row[j] = min3(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
                        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                            before[j - 2] + 1 < row[j])
                                row[j] = before[j - 2] + 1;
                }
                before = last;
                last = row;
                row = spare;
        }
        return last[m];
}

const char *suggest(const char *word, const char *const *first, size_t n, size_t stride) {
        const char *best = NULL;
        unsigned best_distance = WORD_MAX, allowed;
        size_t length = strlen(word);

        for (size_t i = 0; i < n; i++) {
                const char *candidate = *(const char *const *) ((const char *) first + i * stride);
                unsigned d = distance(word, candidate);

                if (length >= 2 && strncmp(word, candidate, length) == 0)
                        d = 0;
                if (d < best_distance) {
                        best = candidate;
                        best_distance = d;
                }
        }

        /* One slip in a short word, and one more for each three letters beyond. */
        allowed = length <= 4 ? 1 : length <= 7 ? 2 : 3;
        return best_distance <= allowed && best_distance < length ? best : NULL;
}
