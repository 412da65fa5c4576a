/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Which slabs are to be kept warm: "64G*2 node=0 page=1G, 4G*8 page=2M". */

#include "macro.h"

#define WARM_SPECS_MAX     32U
#define WARM_COUNT_MAX     1024U
#define WARM_SPEC_TEXT_MAX 80

/* One flavour. */
typedef struct WarmSpec {
        uint64_t bytes; /* of each slab */
        uint32_t count;
        bool has_node; /* else any that has room */
        unsigned node;
        uint64_t page_size; /* 0: the largest that divides the size and has free pages */
} WarmSpec;

typedef struct WarmSpecs {
        WarmSpec specs[WARM_SPECS_MAX];
        size_t n;
} WarmSpecs;

/* Adds what a list says, all or nothing.  -EINVAL: it makes no sense, -ERANGE: a number is too small or too
 * large, or there are more than WARM_SPECS_MAX flavours. */
int warm_specs_add(WarmSpecs *specs, const char *s);
/* As it is written, whatever way it was: "64G*2 node=0 page=1G". */
const char *warm_spec_format(const WarmSpec *spec, char buf[static WARM_SPEC_TEXT_MAX]);

static inline bool warm_spec_equal(const WarmSpec *a, const WarmSpec *b) {
        return a->bytes == b->bytes && a->page_size == b->page_size && a->has_node == b->has_node &&
               (!a->has_node || a->node == b->node);
}
