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

typedef enum Craft {
        CRAFT_VM,         /* "other" */
        CRAFT_GENERATION, /* the value */
        CRAFT_ID,         /* another one, all bytes the value; and so: */
        CRAFT_FROM,
        CRAFT_TO,
        CRAFT_GRANT,
        CRAFT_PAGE_SIZE, /* of an answer, or the only one of an offer */
        CRAFT_TIME_LEFT, /* of an offer */
} Craft;

/* The message with that changed, which must be one still. */
void craft_change(const Bytes *message, Craft what, uint64_t value, Bytes *ret);
/* "offer", "commit", ...; and of an abort its reason. */
const char *craft_type(const Bytes *message);
const char *craft_reason(const Bytes *message);
