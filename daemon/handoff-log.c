/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "handoff-log.h"

#include "format.h"
#include "log-message.h"

static void tell(LogMessage message, const Handoff *h, const char *text) {
        log_message(message,
                    FIELDS(FIELD_TEXT("TDP_VM", h->r.vm), FIELD_NUMBER("TDP_UID", h->r.uid),
                           FIELD_TEXT("TDP_HANDOFF", h->key),
                           FIELD_TEXT("TDP_ROLE", handoff_role_to_string(h->r.side)),
                           FIELD_BYTES(h->r.offer.bytes), FIELD_NUMBER("TDP_GENERATION", h->r.generation),
                           FIELD_TEXT("TDP_REASON",
                                      h->r.abort.reason ? handoff_reason_to_string(h->r.abort.reason)
                                                        : NULL)),
                    "Handoff %s: VM %s of generation %" PRIu64 ", %s: %s", h->key, h->r.vm, h->r.generation,
                    format_bytes(h->r.offer.bytes), text);
}

void handoff_log(const Handoff *h) {
        char text[HANDOFF_TEXT_MAX + 96];

        switch (h->r.state) {
        case HANDOFF_S_OFFERED:
                tell(MESSAGE_HANDOFF_OFFERED, h, "offered");
                break;
        case HANDOFF_D_READY:
                tell(MESSAGE_HANDOFF_PREPARED, h, "its memory is ready here");
                break;
        case HANDOFF_S_COMMITTING:
                tell(MESSAGE_HANDOFF_COMMITTED, h,
                     "the destination decides now; the VM must not run here before it has");
                break;
        case HANDOFF_D_TAKEN:
        case HANDOFF_D_OWNER:
                tell(MESSAGE_HANDOFF_OWNED, h, "this host owns the VM");
                break;
        case HANDOFF_S_RELEASED:
                tell(MESSAGE_HANDOFF_RELEASED, h, "its memory is freed here");
                break;
        case HANDOFF_S_UNDOING:
        case HANDOFF_D_FREEING:
                snprintf(text, sizeof(text), "off (%s): %s", handoff_reason_to_string(h->r.abort.reason),
                         h->r.abort.text);
                tell(MESSAGE_HANDOFF_ABORTED, h, text);
                break;
        default:
                break;
        }
}
