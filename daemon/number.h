/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Numbers and sizes that people write, as a part of something longer: *s is moved behind them.  There is no
 * sign and no blank.  -EINVAL: there is none; -ERANGE: it has more than 64 bits.
 */

#include <stdint.h>

int number_read(const char **s, uint64_t *ret);

/* A number with K, M, G or T behind it (1024, 1024², ...); one without counts in "unit". */
int size_read(const char **s, uint64_t unit, uint64_t *ret);

/* The suffix of the largest unit that divides it ("": none), and how many of these it has. */
const char *size_split(uint64_t bytes, uint64_t *ret);
