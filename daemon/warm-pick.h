/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Which warm slab serves a request, and which ones make room for it: pure functions of what is there. */

#include "placement.h"

typedef struct SlabFacts {
        unsigned node;
        uint64_t page_size;
        uint64_t bytes;
        uint64_t filled; /* allocated and zeroed, of these */
        bool ready;      /* all of it, and nobody works on it */
} SlabFacts;

/*
 * The smallest ready one that is large enough and on a node that the request allows, or -1.  Its pages must
 * not be smaller than "min_page_size", what the request would get without it: being early is no reason for a
 * worse mapping.
 */
int warm_pick(const SlabFacts *slabs, size_t n, const PlacementRequest *req, uint64_t min_page_size);

/*
 * For a request that finds no room: sets ret_give_up[i] for slabs without which it does, what is not
 * complete first and then the smallest; and where the request would go then.  false, and none, if all of
 * them would not be enough.  "claims" are those of the slabs too.
 */
bool warm_make_room(const NodeTable *t, const Claim *claims, size_t n_claims, const SlabFacts *slabs,
                    size_t n, const PlacementRequest *req, bool *ret_give_up, Placement *ret);
