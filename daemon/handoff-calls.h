/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What begins a handoff, and what the other side says to it. */

#include "handoffs.h"

typedef struct HandoffOptions {
        uint64_t deadline_usec;
        uint64_t page_sizes[HANDOFF_PAGE_SIZES_MAX];
        size_t n_page_sizes;
        uint64_t bytes; /* of a VM whose memory tdpd does not know */
        bool post_copy;
        HandoffLogging logging;
        bool has_split_leaf;
        uint64_t split_leaf;
        uint64_t bytes_left;
} HandoffOptions;

typedef enum HandoffUse {
        HANDOFF_USE_OFFER = 1 << 0,
        HANDOFF_USE_START = 1 << 1,
        HANDOFF_USE_COMMIT = 1 << 2,
} HandoffUse;

/* handoff-options.c: InvalidArgument for unknown keys, wrong types and values out of range. */
int handoff_options_read(sd_bus_message *m, HandoffUse use, HandoffOptions *ret, sd_bus_error *error);

/* handoff-offer.c: what is to be said is in (*ret)->pending then. */
int handoff_offer(VM *vm, uid_t uid, const HandoffOptions *o, Handoff **ret, sd_bus_error *error);
int handoff_start(Handoff *h, const HandoffOptions *o, sd_bus_error *error);
int handoff_commit(Handoff *h, const HandoffOptions *o, sd_bus_error *error);

/* handoff-incoming.c: an offer. Reserves, or refuses with nothing left behind. */
int handoff_prepare(Manager *m, uid_t uid, const HandoffMessage *offer, const VMOptions *o, Handoff **ret,
                    sd_bus_error *error);

/* handoff-deliver.c: any other message. *ret is NULL if it is for none that is here; what is said to it at
 * once is in *ret_reply. */
int handoff_deliver(Manager *m, const HandoffMessage *message, Handoff **ret, uint8_t **ret_reply,
                    size_t *ret_size, sd_bus_error *error);
/* Unpacks, or refuses. */
int handoff_read_message(const void *data, size_t size, HandoffMessage *ret, sd_bus_error *error);
