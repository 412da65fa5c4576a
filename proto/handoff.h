/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Messages of a handoff (handoff.proto), as plain values. This folder is the only one that packs, unpacks
 * and validates them: what is unpacked here is within every limit of handoff-fields.c and does not
 * contradict itself. Whether it fits the handoff that it claims to belong to is the daemon's to tell.
 */

#include "name.h"
#include "span.h"

#define HANDOFF_VERSION 1U

#define HANDOFF_MESSAGE_MAX    65536U /* bytes */
#define HANDOFF_REGIONS_MAX    512U
#define HANDOFF_PAGE_SIZES_MAX 8U
#define HANDOFF_NEEDS_MAX      8U
#define HANDOFF_FEATURE_MAX    32U
#define HANDOFF_TEXT_MAX       256U
#define HANDOFF_UNKNOWN_MAX    32U /* fields of newer versions, in each part of a message */

typedef enum HandoffType {
        HANDOFF_OFFER,
        HANDOFF_ANSWER,
        HANDOFF_START,
        HANDOFF_COMMIT,
        HANDOFF_COMPLETE,
        HANDOFF_ABORT,
        _HANDOFF_TYPE_MAX,
} HandoffType;

/* The values of these are those of handoff.proto. */
typedef enum HandoffRole {
        HANDOFF_SOURCE = 1,
        HANDOFF_DESTINATION = 2,
} HandoffRole;

typedef enum HandoffMode {
        HANDOFF_GLOBAL = 1,
        HANDOFF_ON_DEMAND = 2,
        HANDOFF_SHADOW = 3,
} HandoffMode;

typedef enum HandoffLogging {
        HANDOFF_LOGGING_NONE = 1,
        HANDOFF_LOGGING_BITMAP = 2,
        HANDOFF_LOGGING_RING = 3,
} HandoffLogging;

typedef enum HandoffReason {
        HANDOFF_REASON_CANCELED = 1,
        HANDOFF_REASON_DEADLINE,
        HANDOFF_REASON_NO_PAGES,
        HANDOFF_REASON_NOT_CONFIGURED,
        HANDOFF_REASON_UNSUPPORTED,
        HANDOFF_REASON_NAME_TAKEN,
        HANDOFF_REASON_STALE,
        HANDOFF_REASON_UNKNOWN,
        HANDOFF_REASON_VMM_GONE,
        HANDOFF_REASON_VERIFY,
        HANDOFF_REASON_LIMIT,
        HANDOFF_REASON_VERSION,
        HANDOFF_REASON_FAILED,
        _HANDOFF_REASON_MAX, /* a newer version may have more of them */
} HandoffReason;

/* All zero: not there. */
typedef struct HandoffId {
        uint8_t bytes[16];
} HandoffId;

typedef struct HandoffOffer {
        Span regions[HANDOFF_REGIONS_MAX];
        size_t n_regions;
        uint64_t bytes;
        uint64_t page_sizes[HANDOFF_PAGE_SIZES_MAX];
        size_t n_page_sizes;
        HandoffMode mode;
        uint64_t time_left_usec;
        uint32_t vcpus;
        bool post_copy;
} HandoffOffer;

typedef struct HandoffAnswer {
        uint64_t bytes;
        uint64_t page_size;
        HandoffMode mode;
        uint64_t time_left_usec;
} HandoffAnswer;

typedef struct HandoffStart {
        HandoffLogging logging;
        uint64_t split_leaf;
        uint64_t time_left_usec;
} HandoffStart;

typedef struct HandoffCommit {
        bool post_copy;
        uint64_t bytes_left;
} HandoffCommit;

typedef struct HandoffComplete {
        uint64_t bytes_left;
        uint64_t new_generation;
        uint64_t holes;
        uint64_t bytes_released;
} HandoffComplete;

typedef struct HandoffAbort {
        uint32_t reason; /* HandoffReason, or a newer version's */
        char text[HANDOFF_TEXT_MAX + 1];
        uint64_t needed;
        uint64_t available;
} HandoffAbort;

/* Fields that this version does not know: kept, and packed again. */
typedef struct HandoffUnknown HandoffUnknown;

typedef struct HandoffMessage {
        uint32_t version; /* 0 when packed: ours */
        uint32_t min_version;
        char needs[HANDOFF_NEEDS_MAX][HANDOFF_FEATURE_MAX + 1];
        size_t n_needs;
        HandoffRole role;
        HandoffId id, from, to, grant;
        char vm[VM_NAME_MAX + 1];
        uint64_t generation;

        HandoffType type;
        union {
                HandoffOffer offer;
                HandoffAnswer answer;
                HandoffStart start;
                HandoffCommit commit;
                HandoffComplete complete;
                HandoffAbort abort;
        };

        HandoffUnknown *unknown, *unknown_in_body;
} HandoffMessage;

typedef enum HandoffError {
        HANDOFF_OK,
        HANDOFF_TOO_LARGE,
        HANDOFF_TRUNCATED,
        HANDOFF_MALFORMED,
        HANDOFF_TOO_MANY,
        HANDOFF_OUT_OF_RANGE,
        HANDOFF_MISSING,
        HANDOFF_CONTRADICTION,
        HANDOFF_TOO_NEW,
        HANDOFF_UNKNOWN_FEATURE,
        HANDOFF_MISMATCH, /* fine, and of another handoff than it claims to be */
        _HANDOFF_ERROR_MAX,
} HandoffError;

/* Which message, which field, what is there and what may be.  ASCII. */
typedef struct HandoffProblem {
        HandoffError error;
        char text[256];
} HandoffProblem;

/* Sets *p, and returns the errno that goes with it. */
int handoff_problem(HandoffProblem *p, HandoffError e, const char *format, ...) _printf_(3, 4);

/*
 * -EMSGSIZE, -EBADMSG or -EPROTONOSUPPORT with *problem set, or -ENOMEM; *ret is untouched then. What
 * is packed must be what unpacking accepts: -EINVAL with *problem set if it is not.
 */
int handoff_unpack(const void *data, size_t size, HandoffMessage *ret, HandoffProblem *problem);
int handoff_pack(const HandoffMessage *m, uint8_t **ret, size_t *ret_size, HandoffProblem *problem);
void handoff_message_done(HandoffMessage *m);

/* What an answer says, against the offer that it is for: -EBADMSG with *problem set if it does not match. */
int handoff_check_answer(const HandoffOffer *offer, const HandoffAnswer *answer, HandoffProblem *problem);
/* What is needed for it at least: its bytes, rounded up to whole pages. */
uint64_t handoff_offer_bytes(const HandoffOffer *offer, uint64_t page_size);

const char *handoff_type_to_string(HandoffType t);
const char *handoff_role_to_string(HandoffRole r);
const char *handoff_mode_to_string(HandoffMode m);
const char *handoff_reason_to_string(uint32_t reason); /* "other" if it is a newer version's */
const char *handoff_error_to_string(HandoffError e);

static inline bool handoff_id_is_set(const HandoffId *id) {
        return memcmp(id, &(const HandoffId){}, sizeof(*id)) != 0;
}

static inline bool handoff_id_equal(const HandoffId *a, const HandoffId *b) {
        return memcmp(a, b, sizeof(*a)) == 0;
}
