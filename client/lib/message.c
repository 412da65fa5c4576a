/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Messages of handoffs: bytes that are carried, and not looked into. */

#include <string.h>

#include "libtdp-private.h"

TDP_EXPORT int tdp_message_new(const void *data, size_t size, struct tdp_message **ret_message) {
        struct tdp_message *message;

        if (!data || size == 0)
                return -EINVAL;
        if (size > TDP_MESSAGE_MAX)
                return -EMSGSIZE;

        message = malloc(sizeof(*message) + size);
        if (!message)
                return -ENOMEM;
        message->size = size;
        memcpy(message->data, data, size);

        *ret_message = message;
        return 0;
}

TDP_EXPORT struct tdp_message *tdp_message_free(struct tdp_message *message) {
        if (!message)
                return NULL;
        /* It may hold a grant. */
        explicit_bzero(message->data, message->size);
        free(message);
        return NULL;
}

TDP_EXPORT const void *tdp_message_get_data(const struct tdp_message *message) {
        return message->data;
}

TDP_EXPORT size_t tdp_message_get_size(const struct tdp_message *message) {
        return message->size;
}
