/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What KVM does often: each loop is one kind of it. */

#include "bench.h"

/* A VM to run loops on, with memory to spare for one more slot. */
typedef struct Bed {
        Guest guest;
        int level; /* size of the pages that its memory is made of */
        void *spare;
} Bed;

typedef struct Loop {
        const char *name;
        int level;
        /* The least is taken of this many rounds, or of fewer in a hurry; 0: not worth it then. */
        unsigned rounds, rounds_quick;
        /* One round: how often something was done, and the ticks that it took, preparations left out. */
        uint64_t (*round)(Bed *b, uint64_t *ret_ops);
} Loop;

extern const Loop loops[];
extern const unsigned n_loops;

void bed_new(Bed *ret, int level, uint64_t size);
void bed_free(Bed *b);
