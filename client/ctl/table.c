/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Tables for people: columns as wide as their widest cell. */

#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "table.h"

struct table {
        size_t n_columns, n_rows, n_allocated;
        const char *const *headers;
        bool *right;
        char **cells; /* n_rows * n_columns */
};

struct table *table_free(struct table *t) {
        if (!t)
                return NULL;
        for (size_t i = 0; i < t->n_rows * t->n_columns; i++)
                free(t->cells[i]);
        free(t->cells);
        free(t->right);
        free(t);
        return NULL;
}

int table_new(struct table **ret, const char *const *headers, size_t n_columns) {
        struct table *t;

        t = calloc(1, sizeof(*t));
        if (!t)
                return -ENOMEM;
        t->headers = headers;
        t->n_columns = n_columns;
        t->right = calloc(n_columns, sizeof(*t->right));
        if (!t->right) {
                table_free(t);
                return -ENOMEM;
        }

        *ret = t;
        return 0;
}

void table_align_right(struct table *t, size_t column) {
        t->right[column] = true;
}

int table_add(struct table *t, const char *const *cells) {
        char **row;

        if (t->n_rows == t->n_allocated) {
                size_t n = t->n_allocated * 2 ?: 8;
                char **bigger = reallocarray(t->cells, n * t->n_columns, sizeof(*bigger));

                if (!bigger)
                        return -ENOMEM;
                t->cells = bigger;
                t->n_allocated = n;
        }

        row = t->cells + t->n_rows * t->n_columns;
        for (size_t i = 0; i < t->n_columns; i++) {
                row[i] = strdup(cells[i] && cells[i][0] ? cells[i] : "-");
                if (!row[i]) {
                        while (i-- > 0)
                                free(row[i]);
                        return -ENOMEM;
                }
        }
        t->n_rows++;
        return 0;
}

static void print_row(const struct table *t, FILE *f, const char *const *cells, const int *widths) {
        for (size_t i = 0; i < t->n_columns; i++) {
                const char *gap = i + 1 < t->n_columns ? "  " : "\n";

                if (t->right[i])
                        fprintf(f, "%*s%s", widths[i], cells[i], gap);
                else /* no blanks at the end of a line */
                        fprintf(f, "%-*s%s", i + 1 < t->n_columns ? widths[i] : 0, cells[i], gap);
        }
}

void table_print(const struct table *t, FILE *f, bool legend, const char *noun) {
        _cleanup_free_ int *widths = calloc(t->n_columns, sizeof(*widths));

        if (!widths)
                return;

        for (size_t i = 0; i < t->n_columns; i++) {
                widths[i] = legend ? (int) strlen(t->headers[i]) : 0;
                for (size_t j = 0; j < t->n_rows; j++) {
                        int w = (int) strlen(t->cells[j * t->n_columns + i]);

                        if (w > widths[i])
                                widths[i] = w;
                }
        }

        if (legend && t->n_rows > 0)
                print_row(t, f, t->headers, widths);
        for (size_t j = 0; j < t->n_rows; j++)
                print_row(t, f, (const char *const *) t->cells + j * t->n_columns, widths);
        if (legend)
                fprintf(f, "%s%zu %s%s.\n", t->n_rows > 0 ? "\n" : "", t->n_rows, noun,
                        t->n_rows == 1 ? "" : "s");
}
