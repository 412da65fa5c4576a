/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "refusal.h"

#include <errno.h>

#include "bus-error.h"
#include "clock.h"
#include "log-message.h"

#define WINDOW_USEC (UINT64_C(30) * 1000000)
#define WINDOW_MAX  20U

/* Those who ask for what is not theirs do not hide what is refused to others. */
typedef struct Window {
        uint64_t start_usec;
        unsigned told, left_out;
} Window;

static Window requests, denials;

static bool may_tell(Window *w) {
        uint64_t now = clock_usec();

        if (w->start_usec == 0 || now - w->start_usec >= WINDOW_USEC) {
                if (w->left_out > 0)
                        log_warning("%u more requests were refused than are in the log", w->left_out);
                w->start_usec = now;
                w->told = w->left_out = 0;
        }
        if (w->told == WINDOW_MAX) {
                w->left_out++;
                return false;
        }
        w->told++;
        return true;
}

int refusal_log(const char *what, const char *vm, uid_t uid, int r, const sd_bus_error *error) {
        bool named = sd_bus_error_is_set(error);

        if (r >= 0 || !may_tell(&requests))
                return r;
        log_message(MESSAGE_REQUEST_REFUSED,
                    FIELDS(FIELD_TEXT("TDP_VM", vm), FIELD_NUMBER("TDP_UID", uid),
                           FIELD_TEXT("TDP_REQUEST", what),
                           FIELD_TEXT("TDP_ERROR", named ? error->name : NULL),
                           FIELD_TEXT("TDP_REASON", named ? error->message : strerror(-r))),
                    "User %u asked to %s VM \"%.80s\", refused: %s", uid, what, vm,
                    named ? error->message : strerror(-r));
        return r;
}

int refusal_log_denied(sd_bus_message *message, uid_t uid, pid_t pid, int r, const sd_bus_error *error) {
        const char *member = log_text(sd_bus_message_get_member(message)),
                   *path = log_text(sd_bus_message_get_path(message)),
                   *sender = log_text(sd_bus_message_get_sender(message));

        if (r >= 0 || !sd_bus_error_has_name(error, TDP_ERROR_NOT_PERMITTED) || !may_tell(&denials))
                return r;
        log_message(MESSAGE_NOT_PERMITTED,
                    FIELDS(FIELD_NUMBER("TDP_UID", uid), FIELD_NUMBER("TDP_PID", (uint64_t) pid),
                           FIELD_TEXT("TDP_SENDER", sender), FIELD_TEXT("TDP_REQUEST", member),
                           FIELD_TEXT("TDP_OBJECT", path), FIELD_TEXT("TDP_REASON", error->message)),
                    "User %u (process %i, %s) called %s of %s and may not: %s", uid, (int) pid, sender,
                    member, path, error->message);
        return r;
}
