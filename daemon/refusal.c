/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "refusal.h"

#include <errno.h>

#include "clock.h"
#include "log-message.h"

#define WINDOW_USEC (UINT64_C(30) * 1000000)
#define WINDOW_MAX  20U

static struct {
        uint64_t start_usec;
        unsigned told, left_out;
} window;

static bool may_tell(void) {
        uint64_t now = clock_usec();

        if (window.start_usec == 0 || now - window.start_usec >= WINDOW_USEC) {
                if (window.left_out > 0)
                        log_warning("%u more requests were refused than are in the log", window.left_out);
                window.start_usec = now;
                window.told = window.left_out = 0;
        }
        if (window.told == WINDOW_MAX) {
                window.left_out++;
                return false;
        }
        window.told++;
        return true;
}

int refusal_log(const char *what, const char *vm, uid_t uid, int r, const sd_bus_error *error) {
        bool named = sd_bus_error_is_set(error);

        if (r >= 0 || !may_tell())
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
