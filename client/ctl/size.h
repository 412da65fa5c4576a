/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Long enough for any size_format() and duration_format(). */
#define SIZE_TEXT_MAX 32

/* "8G", "2M", "4096", "512KiB": binary suffixes K, M, G, T. -EINVAL, or -ERANGE if it exceeds 64 bits. */
int size_parse(const char *text, uint64_t *ret);

/* A decimal number of at most max. -EINVAL, -ERANGE. */
int uint_parse(const char *text, uint64_t max, uint64_t *ret);

/* For people: "8G" if that is exact, else "7.9G". Returns buf. */
const char *size_format(uint64_t bytes, char buf[static SIZE_TEXT_MAX]);
const char *duration_format(uint64_t usec, char buf[static SIZE_TEXT_MAX]);
