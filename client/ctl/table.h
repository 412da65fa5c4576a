/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* A table for people. Cells are copied; numbers are aligned to the right. */
struct table;

int table_new(struct table **ret, const char *const *headers, size_t n_columns);
struct table *table_free(struct table *t);
void table_align_right(struct table *t, size_t column);
/* One row, n_columns strings; NULL is shown as "-". */
int table_add(struct table *t, const char *const *cells);
/* The legend is the header line and the count below. */
void table_print(const struct table *t, FILE *f, bool legend, const char *noun);
