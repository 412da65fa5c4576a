/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "handoff-fields.h"
#include "format.h"

#define T(type)  (1U << HANDOFF_##type)
#define ALL      ((1U << _HANDOFF_TYPE_MAX) - 1)
#define PAGE_MIN KIB(4)
#define PAGE_MAX GIB(16)
#define GPA_MAX  (UINT64_C(1) << 52)
#define TIME_MAX (UINT64_C(86400) * 1000000)

static bool role(const HandoffMessage *m, char *text, size_t size) {
        static const uint32_t says[] = {
                [HANDOFF_SOURCE] = T(OFFER) | T(START) | T(COMMIT) | T(COMPLETE) | T(ABORT),
                [HANDOFF_DESTINATION] = T(ANSWER) | T(COMPLETE) | T(ABORT),
        };

        if (says[m->role] & 1U << m->type)
                return true;
        snprintf(text, size, "a %s does not say \"%s\"", handoff_role_to_string(m->role),
                 handoff_type_to_string(m->type));
        return false;
}

static bool grant(const HandoffMessage *m, char *text, size_t size) {
        if (m->type != HANDOFF_OFFER || !handoff_id_is_set(&m->grant))
                return true;
        snprintf(text, size, "an offer has none yet");
        return false;
}

static bool regions(const HandoffMessage *m, char *text, size_t size) {
        const HandoffOffer *o = &m->offer;
        uint64_t end = 0, sum = 0;

        for (size_t i = 0; i < o->n_regions; i++) {
                Span s = o->regions[i];

                if (s.gpa % PAGE_MIN != 0 || s.size % PAGE_MIN != 0) {
                        snprintf(text, size, "region %zu, 0x%" PRIx64 "+0x%" PRIx64 ", is not whole pages",
                                 i, s.gpa, s.size);
                        return false;
                }
                if (s.gpa < end) {
                        snprintf(text, size,
                                 "region %zu begins at 0x%" PRIx64 ", the one before ends at 0x%" PRIx64, i,
                                 s.gpa, end);
                        return false;
                }
                /* Neither can overflow: both are 2^52 at most. */
                end = s.gpa + s.size;
                sum += s.size;
                if (end > GPA_MAX) {
                        snprintf(text, size, "region %zu ends at 0x%" PRIx64 ", beyond 2^52", i, end);
                        return false;
                }
        }
        if (sum == o->bytes)
                return true;
        snprintf(text, size, "bytes is %" PRIu64 ", the regions have %" PRIu64, o->bytes, sum);
        return false;
}

static bool is_page_size(uint64_t n) {
        return n >= PAGE_MIN && n <= PAGE_MAX && (n & (n - 1)) == 0;
}

static bool page_sizes(const HandoffMessage *m, char *text, size_t size) {
        const HandoffOffer *o = &m->offer;

        for (size_t i = 0; i < o->n_page_sizes; i++) {
                if (!is_page_size(o->page_sizes[i])) {
                        snprintf(text, size, "%" PRIu64 " bytes are no page", o->page_sizes[i]);
                        return false;
                }
                for (size_t k = 0; k < i; k++)
                        if (o->page_sizes[k] == o->page_sizes[i]) {
                                snprintf(text, size, "%s twice", format_bytes(o->page_sizes[i]));
                                return false;
                        }
        }
        return true;
}

static bool granted(const HandoffMessage *m, char *text, size_t size) {
        const HandoffAnswer *a = &m->answer;

        if (is_page_size(a->page_size) && a->bytes % a->page_size == 0)
                return true;
        snprintf(text, size, "%" PRIu64 " bytes in pages of %" PRIu64, a->bytes, a->page_size);
        return false;
}

static bool split_leaf(const HandoffMessage *m, char *text, size_t size) {
        if (m->start.split_leaf == 0 || is_page_size(m->start.split_leaf))
                return true;
        snprintf(text, size, "%" PRIu64 " bytes are no page", m->start.split_leaf);
        return false;
}

static bool commit_left(const HandoffMessage *m, char *text, size_t size) {
        if (m->commit.post_copy || m->commit.bytes_left == 0)
                return true;
        snprintf(text, size, "%" PRIu64 " bytes are left to send, without post_copy", m->commit.bytes_left);
        return false;
}

static bool complete(const HandoffMessage *m, char *text, size_t size) {
        const HandoffComplete *c = &m->complete;

        if (m->role == HANDOFF_DESTINATION) {
                if (c->new_generation == m->generation + 1 && c->bytes_released == 0)
                        return true;
                snprintf(text, size,
                         "%" PRIu64 " with %" PRIu64 " bytes released, from the destination of %" PRIu64,
                         c->new_generation, c->bytes_released, m->generation);
        } else {
                if (c->new_generation == 0 && c->bytes_left == 0 && c->holes == 0)
                        return true;
                snprintf(text, size, "%" PRIu64 " with %" PRIu64 " bytes left, from the source",
                         c->new_generation, c->bytes_left);
        }
        return false;
}

/* clang-format off */
const HandoffField handoff_fields[] = {
        { PART_ENVELOPE, 1, "version", KIND_NUMBER, 0, 1, UINT32_MAX, 1, ALL },
        { PART_ENVELOPE, 2, "min_version", KIND_NUMBER, 0, 1, UINT32_MAX, 1, ALL },
        { PART_ENVELOPE, 3, "needs", KIND_TEXT, 0, 1, HANDOFF_FEATURE_MAX, HANDOFF_NEEDS_MAX, 0 },
        { PART_ENVELOPE, 4, "role", KIND_NUMBER, 0, HANDOFF_SOURCE, HANDOFF_DESTINATION, 1, ALL, role },
        { PART_ENVELOPE, 5, "id", KIND_ID, 0, 16, 16, 1, ALL },
        { PART_ENVELOPE, 6, "from", KIND_ID, 0, 16, 16, 1, ALL },
        { PART_ENVELOPE, 7, "to", KIND_ID, 0, 16, 16, 1, ALL & ~T(OFFER) & ~T(ABORT) },
        { PART_ENVELOPE, 8, "vm", KIND_NAME, 0, 1, VM_NAME_MAX, 1, ALL },
        { PART_ENVELOPE, 9, "generation", KIND_FIXED64, 0, 1, INT64_MAX, 1, ALL },
        { PART_ENVELOPE, 10, "grant", KIND_ID, 0, 16, 16, 1, ALL & ~T(OFFER) & ~T(ABORT), grant },
        { PART_ENVELOPE, 16, "offer", KIND_PART, HANDOFF_OFFER, 0, HANDOFF_MESSAGE_MAX, 1, T(OFFER) },
        { PART_ENVELOPE, 17, "answer", KIND_PART, HANDOFF_ANSWER, 0, HANDOFF_MESSAGE_MAX, 1, T(ANSWER) },
        { PART_ENVELOPE, 18, "start", KIND_PART, HANDOFF_START, 0, HANDOFF_MESSAGE_MAX, 1, T(START) },
        { PART_ENVELOPE, 19, "commit", KIND_PART, HANDOFF_COMMIT, 0, HANDOFF_MESSAGE_MAX, 1, T(COMMIT) },
        { PART_ENVELOPE, 20, "complete", KIND_PART, HANDOFF_COMPLETE, 0, HANDOFF_MESSAGE_MAX, 1, T(COMPLETE) },
        { PART_ENVELOPE, 21, "abort", KIND_PART, HANDOFF_ABORT, 0, HANDOFF_MESSAGE_MAX, 1, T(ABORT) },

        { HANDOFF_OFFER, 1, "offer.regions", KIND_PART, PART_REGION, 0, 128, HANDOFF_REGIONS_MAX, T(OFFER), regions },
        { HANDOFF_OFFER, 2, "offer.bytes", KIND_NUMBER, 0, PAGE_MIN, GPA_MAX, 1, T(OFFER) },
        { HANDOFF_OFFER, 3, "offer.page_sizes", KIND_NUMBERS, 0, PAGE_MIN, PAGE_MAX, HANDOFF_PAGE_SIZES_MAX, T(OFFER), page_sizes },
        { HANDOFF_OFFER, 4, "offer.mode", KIND_NUMBER, 0, HANDOFF_GLOBAL, HANDOFF_SHADOW, 1, T(OFFER) },
        { HANDOFF_OFFER, 5, "offer.time_left_usec", KIND_NUMBER, 0, 1, TIME_MAX, 1, T(OFFER) },
        { HANDOFF_OFFER, 6, "offer.vcpus", KIND_NUMBER, 0, 0, 65536, 1, 0 },
        { HANDOFF_OFFER, 7, "offer.post_copy", KIND_NUMBER, 0, 0, 1, 1, 0 },

        { HANDOFF_ANSWER, 1, "answer.bytes", KIND_NUMBER, 0, PAGE_MIN, GPA_MAX, 1, T(ANSWER), granted },
        { HANDOFF_ANSWER, 2, "answer.page_size", KIND_NUMBER, 0, PAGE_MIN, PAGE_MAX, 1, T(ANSWER) },
        { HANDOFF_ANSWER, 3, "answer.mode", KIND_NUMBER, 0, HANDOFF_GLOBAL, HANDOFF_SHADOW, 1, T(ANSWER) },
        { HANDOFF_ANSWER, 4, "answer.time_left_usec", KIND_NUMBER, 0, 1, TIME_MAX, 1, T(ANSWER) },

        { HANDOFF_START, 1, "start.logging", KIND_NUMBER, 0, HANDOFF_LOGGING_NONE, HANDOFF_LOGGING_RING, 1, T(START) },
        { HANDOFF_START, 2, "start.split_leaf", KIND_NUMBER, 0, 0, PAGE_MAX, 1, 0, split_leaf },
        { HANDOFF_START, 3, "start.time_left_usec", KIND_NUMBER, 0, 1, TIME_MAX, 1, T(START) },

        { HANDOFF_COMMIT, 1, "commit.post_copy", KIND_NUMBER, 0, 0, 1, 1, 0 },
        { HANDOFF_COMMIT, 2, "commit.bytes_left", KIND_NUMBER, 0, 0, GPA_MAX, 1, 0, commit_left },

        { HANDOFF_COMPLETE, 1, "complete.bytes_left", KIND_NUMBER, 0, 0, GPA_MAX, 1, 0 },
        { HANDOFF_COMPLETE, 2, "complete.new_generation", KIND_FIXED64, 0, 0, UINT64_C(1) << 63, 1, 0, complete },
        { HANDOFF_COMPLETE, 3, "complete.holes", KIND_NUMBER, 0, 0, GPA_MAX, 1, 0 },
        { HANDOFF_COMPLETE, 4, "complete.bytes_released", KIND_NUMBER, 0, 0, GPA_MAX, 1, 0 },

        { HANDOFF_ABORT, 1, "abort.reason", KIND_NUMBER, 0, 1, 255, 1, T(ABORT) },
        { HANDOFF_ABORT, 2, "abort.text", KIND_TEXT, 0, 0, HANDOFF_TEXT_MAX, 1, 0 },
        { HANDOFF_ABORT, 3, "abort.needed", KIND_NUMBER, 0, 0, GPA_MAX, 1, 0 },
        { HANDOFF_ABORT, 4, "abort.available", KIND_NUMBER, 0, 0, GPA_MAX, 1, 0 },

        { PART_REGION, 1, "region.gpa", KIND_NUMBER, 0, 0, GPA_MAX, 1, 0 },
        { PART_REGION, 2, "region.bytes", KIND_NUMBER, 0, PAGE_MIN, GPA_MAX, 1, T(OFFER) },
};
/* clang-format on */
const size_t handoff_n_fields = ELEMENTSOF(handoff_fields);

/* What a peer may insist on. */
static const char *const features[] = { "post-copy" };

bool handoff_feature_is_known(const char *s, size_t n) {
        for (size_t i = 0; i < ELEMENTSOF(features); i++)
                if (strlen(features[i]) == n && memcmp(features[i], s, n) == 0)
                        return true;
        return false;
}

int handoff_check(const HandoffMessage *m, HandoffProblem *p) {
        char text[128];

        for (size_t i = 0; i < handoff_n_fields; i++) {
                const HandoffField *f = handoff_fields + i;

                if ((f->part == PART_ENVELOPE || f->part == m->type) && f->relation &&
                    !f->relation(m, text, sizeof(text)))
                        return handoff_problem(p, HANDOFF_CONTRADICTION, "%s: %s", f->name, text);
        }
        return 0;
}

static uint64_t round_up(uint64_t n, uint64_t to) {
        return (n + to - 1) / to * to;
}

uint64_t handoff_offer_bytes(const HandoffOffer *offer, uint64_t page_size) {
        return round_up(offer->bytes, page_size);
}

int handoff_check_answer(const HandoffOffer *offer, const HandoffAnswer *answer, HandoffProblem *p) {
        uint64_t least = handoff_offer_bytes(offer, answer->page_size), most = 0;
        bool acceptable = false;

        for (size_t i = 0; i < offer->n_page_sizes; i++)
                acceptable |= offer->page_sizes[i] == answer->page_size;
        if (!acceptable)
                return handoff_problem(p, HANDOFF_CONTRADICTION,
                                       "answer.page_size: %s is none of the sizes that were offered",
                                       format_bytes(answer->page_size));
        /* A destination may keep regions apart, and none shares a page with the next one then. */
        for (size_t i = 0; i < offer->n_regions; i++)
                most += round_up(offer->regions[i].size, answer->page_size);
        if (answer->bytes < least || answer->bytes > most)
                return handoff_problem(p, HANDOFF_CONTRADICTION,
                                       "answer.bytes: %" PRIu64 ", the offer comes to %" PRIu64
                                       " to %" PRIu64 " in pages of %s",
                                       answer->bytes, least, most, format_bytes(answer->page_size));
        return 0;
}
