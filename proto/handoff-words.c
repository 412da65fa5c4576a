/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "handoff.h"

static const char *const types[_HANDOFF_TYPE_MAX] = {
        [HANDOFF_OFFER] = "offer",   [HANDOFF_ANSWER] = "answer",     [HANDOFF_START] = "start",
        [HANDOFF_COMMIT] = "commit", [HANDOFF_COMPLETE] = "complete", [HANDOFF_ABORT] = "abort",
};

static const char *const roles[] = {
        [HANDOFF_SOURCE] = "source",
        [HANDOFF_DESTINATION] = "destination",
};

static const char *const modes[] = {
        [HANDOFF_GLOBAL] = "global",
        [HANDOFF_ON_DEMAND] = "on-demand",
        [HANDOFF_SHADOW] = "shadow",
};

static const char *const reasons[_HANDOFF_REASON_MAX] = {
        [HANDOFF_REASON_CANCELED] = "canceled",
        [HANDOFF_REASON_DEADLINE] = "deadline",
        [HANDOFF_REASON_NO_PAGES] = "no-pages",
        [HANDOFF_REASON_NOT_CONFIGURED] = "not-configured",
        [HANDOFF_REASON_UNSUPPORTED] = "unsupported",
        [HANDOFF_REASON_NAME_TAKEN] = "name-taken",
        [HANDOFF_REASON_STALE] = "stale",
        [HANDOFF_REASON_UNKNOWN] = "unknown",
        [HANDOFF_REASON_VMM_GONE] = "vmm-gone",
        [HANDOFF_REASON_VERIFY] = "verify",
        [HANDOFF_REASON_LIMIT] = "limit",
        [HANDOFF_REASON_VERSION] = "version",
        [HANDOFF_REASON_FAILED] = "failed",
};

static const char *const errors[_HANDOFF_ERROR_MAX] = {
        [HANDOFF_OK] = "ok",
        [HANDOFF_TOO_LARGE] = "too-large",
        [HANDOFF_TRUNCATED] = "truncated",
        [HANDOFF_MALFORMED] = "malformed",
        [HANDOFF_TOO_MANY] = "too-many",
        [HANDOFF_OUT_OF_RANGE] = "out-of-range",
        [HANDOFF_MISSING] = "missing",
        [HANDOFF_CONTRADICTION] = "contradiction",
        [HANDOFF_TOO_NEW] = "too-new",
        [HANDOFF_UNKNOWN_FEATURE] = "unknown-feature",
        [HANDOFF_MISMATCH] = "mismatch",
};

#define WORD(table, i) ((size_t) (i) < ELEMENTSOF(table) ? (table)[i] : NULL)

const char *handoff_type_to_string(HandoffType t) {
        return WORD(types, t);
}

const char *handoff_role_to_string(HandoffRole r) {
        return WORD(roles, r);
}

const char *handoff_mode_to_string(HandoffMode m) {
        return WORD(modes, m);
}

const char *handoff_reason_to_string(uint32_t reason) {
        return WORD(reasons, reason) ?: "other";
}

const char *handoff_error_to_string(HandoffError e) {
        return WORD(errors, e);
}
