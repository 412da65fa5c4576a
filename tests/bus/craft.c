/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "craft.h"

#include <stdio.h>
#include <sys/random.h>

#include "handoff.h"

static void pack(const HandoffMessage *m, Bytes *ret) {
        HandoffProblem problem;
        uint8_t *data;

        if (handoff_pack(m, &data, &ret->size, &problem) < 0) {
                fprintf(stderr, "handoff_pack: %s\n", problem.text);
                abort();
        }
        memcpy(ret->data, data, ret->size);
        free(data);
}

void craft_offer(Bytes *ret, const char *vm, uint64_t generation, uint64_t bytes, uint64_t page_size) {
        HandoffMessage m = {
                .role = HANDOFF_SOURCE,
                .generation = generation,
                .type = HANDOFF_OFFER,
                .offer = { .regions = { { .size = bytes } },
                           .n_regions = 1,
                           .bytes = bytes,
                           .page_sizes = { page_size },
                           .n_page_sizes = 1,
                           .mode = HANDOFF_GLOBAL,
                           .time_left_usec = 600000000 },
        };

        if (getrandom(m.id.bytes, sizeof(m.id.bytes), 0) != sizeof(m.id.bytes))
                abort();
        memset(m.from.bytes, 0x5a, sizeof(m.from.bytes));
        strcpy(m.vm, vm);
        pack(&m, ret);
}
