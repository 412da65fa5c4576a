/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "span.h"

/* What can be built of the VM behind a handle. */
typedef struct Slots {
        SpanSet all;
        SpanSet logging;    /* those with dirty logging on */
        uint64_t bytes;     /* of all */
        uint64_t page_size; /* the largest one that backs a slot */
} Slots;

int slots_read(int handle, Slots *ret);
void slots_done(Slots *s);

/* The figures alone. */
int slots_measure(int handle, uint64_t *ret_bytes, uint64_t *ret_page_size);
