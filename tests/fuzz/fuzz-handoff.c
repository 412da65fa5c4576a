/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages of a handoff: what is accepted is within all limits, and can be said again. Stored ones are
 * "hex:" and hex. */

#include "fuzz.h"
#include "handoff.h"

static size_t unhex(const uint8_t *data, size_t size, uint8_t *ret) {
        char digits[3] = "";
        size_t n = 0;

        for (size_t i = 0; i + 1 < size; i += 2) {
                char *end;

                memcpy(digits, data + i, 2);
                ret[n] = (uint8_t) strtoul(digits, &end, 16);
                if (end != digits + 2)
                        break;
                n++;
        }
        return n;
}

static void check(const HandoffMessage *m) {
        FUZZ_CHECK(m->type < _HANDOFF_TYPE_MAX && m->version >= 1 && m->min_version == HANDOFF_VERSION);
        FUZZ_CHECK(handoff_role_to_string(m->role));
        FUZZ_CHECK(vm_name_is_valid(m->vm) && handoff_id_is_set(&m->id) && handoff_id_is_set(&m->from));
        if (m->type == HANDOFF_OFFER) {
                uint64_t end = 0, sum = 0;

                FUZZ_CHECK(m->offer.n_regions >= 1 && m->offer.n_regions <= HANDOFF_REGIONS_MAX);
                FUZZ_CHECK(m->offer.n_page_sizes >= 1 && m->offer.n_page_sizes <= HANDOFF_PAGE_SIZES_MAX);
                for (size_t i = 0; i < m->offer.n_regions; i++) {
                        FUZZ_CHECK(m->offer.regions[i].gpa >= end && m->offer.regions[i].size > 0);
                        end = span_end(m->offer.regions[i]);
                        sum += m->offer.regions[i].size;
                }
                FUZZ_CHECK(sum == m->offer.bytes && end <= UINT64_C(1) << 52);
        } else if (m->type != HANDOFF_ABORT)
                FUZZ_CHECK(handoff_id_is_set(&m->to));
        if (m->type == HANDOFF_ABORT)
                FUZZ_CHECK(strlen(m->abort.text) <= HANDOFF_TEXT_MAX &&
                           handoff_reason_to_string(m->abort.reason));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ uint8_t *raw = malloc(size + 1), *packed = NULL, *again = NULL;
        size_t n, n_packed, n_again;
        HandoffMessage m, second;
        HandoffProblem p;

        FUZZ_CHECK(raw);
        if (size >= 4 && memcmp(data, "hex:", 4) == 0)
                n = unhex(data + 4, size - 4, raw);
        else {
                memcpy(raw, data, size);
                n = size;
        }
        if (handoff_unpack(raw, n, &m, &p) < 0) {
                FUZZ_CHECK(p.error != HANDOFF_OK && p.text[0]);
                return 0;
        }
        check(&m);
        FUZZ_CHECK(handoff_pack(&m, &packed, &n_packed, &p) == 0);
        FUZZ_CHECK(handoff_unpack(packed, n_packed, &second, &p) == 0);
        FUZZ_CHECK(handoff_pack(&second, &again, &n_again, &p) == 0);
        FUZZ_CHECK(n_again == n_packed && memcmp(packed, again, n_packed) == 0);
        handoff_message_done(&m);
        handoff_message_done(&second);
        return 0;
}
