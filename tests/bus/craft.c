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

static void unpack(const Bytes *message, HandoffMessage *ret) {
        HandoffProblem problem;

        if (handoff_unpack(message->data, message->size, ret, &problem) < 0) {
                fprintf(stderr, "handoff_unpack: %s\n", problem.text);
                abort();
        }
        handoff_message_done(ret);
        ret->unknown = ret->unknown_in_body = NULL;
}

void craft_change(const Bytes *message, Craft what, uint64_t value, Bytes *ret) {
        HandoffMessage m;
        HandoffId id;

        unpack(message, &m);
        memset(&id, (int) value, sizeof(id));
        switch (what) {
        case CRAFT_VM:
                strcpy(m.vm, "other");
                break;
        case CRAFT_GENERATION:
                m.generation = value;
                break;
        case CRAFT_ID:
                m.id = id;
                break;
        case CRAFT_FROM:
                m.from = id;
                break;
        case CRAFT_TO:
                m.to = id;
                break;
        case CRAFT_GRANT:
                m.grant = id;
                break;
        case CRAFT_PAGE_SIZE:
                if (m.type == HANDOFF_ANSWER)
                        m.answer.page_size = value;
                else
                        m.offer.page_sizes[0] = value;
                break;
        case CRAFT_TIME_LEFT:
                m.offer.time_left_usec = value;
                break;
        }
        pack(&m, ret);
}

const char *craft_type(const Bytes *message) {
        HandoffMessage m;

        unpack(message, &m);
        return handoff_type_to_string(m.type);
}

const char *craft_reason(const Bytes *message) {
        HandoffMessage m;

        unpack(message, &m);
        return m.type == HANDOFF_ABORT ? handoff_reason_to_string(m.abort.reason) : "";
}
