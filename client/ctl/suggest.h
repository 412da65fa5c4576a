/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>

/* The word of the list that was probably meant, or NULL if none is near. Entries are read at a stride, so
 * that a field of a table can serve as the list. */
const char *suggest(const char *word, const char *const *first, size_t n, size_t stride);
