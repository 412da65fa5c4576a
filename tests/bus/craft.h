/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Messages of handoffs as another tdpd could have made them. */

#include <stddef.h>
#include <stdint.h>

typedef struct Bytes {
        uint8_t data[65536 + 16];
        size_t size; /* 0: nothing is said */
} Bytes;

/* An offer of a host that there is not, of memory from 0 on. */
void craft_offer(Bytes *ret, const char *vm, uint64_t generation, uint64_t bytes, uint64_t page_size);
