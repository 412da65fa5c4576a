/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "memstream.h"

static const RecordFrame frame = { "tdpd-record ", RECORD_VERSION, RECORD_SIZE_MAX };

typedef enum Kind {
        KIND_U64,
        KIND_U32,
        KIND_HEX,
        KIND_BOOL,
        KIND_TEXT, /* a char array: a plain word */
        KIND_STATE,
        KIND_DECISION,
        KIND_IDSET,
        /* Lists: */
        KIND_PART,
        KIND_SPAN,
        KIND_REASON,
} Kind;

typedef struct Key {
        const char *name;
        Kind kind;
        size_t offset;
        size_t room; /* KIND_TEXT */
} Key;

#define KEY(name, kind, field)                                                                              \
        { name, kind, offsetof(Record, field), sizeof(((Record *) NULL)->field) }

/* In the order in which they are written.  All are written, and all but lists must be there. */
static const Key keys[] = {
        KEY("boot-id", KIND_TEXT, boot_id),
        KEY("name", KIND_TEXT, name),
        KEY("lease", KIND_HEX, lease),
        KEY("uid", KIND_U32, uid),
        KEY("state", KIND_STATE, state),
        KEY("was-built", KIND_BOOL, was_built),
        KEY("generation", KIND_U64, generation),
        KEY("bytes", KIND_U64, bytes),
        KEY("page-size", KIND_U64, page_size),
        KEY("nodes", KIND_IDSET, nodes),
        KEY("part", KIND_PART, parts),
        KEY("pid", KIND_U32, pid),
        KEY("start-time", KIND_U64, start_time),
        KEY("handle", KIND_BOOL, has_handle),
        KEY("last-job", KIND_U32, last_job),
        KEY("job", KIND_U32, job_id),
        KEY("job-type", KIND_TEXT, job_type),
        KEY("has-decision", KIND_BOOL, has_decision),
        KEY("decision", KIND_DECISION, decision),
        KEY("facts", KIND_U32, facts.known),
        KEY("balloon", KIND_U32, facts.values[FACT_BALLOON]),
        KEY("free-page-reporting", KIND_U32, facts.values[FACT_FREE_PAGE_REPORTING]),
        KEY("discard", KIND_U32, facts.values[FACT_DISCARD]),
        KEY("confidential", KIND_U32, facts.values[FACT_CONFIDENTIAL]),
        KEY("viommu", KIND_U32, facts.values[FACT_VIOMMU]),
        KEY("vfio-devices", KIND_U32, facts.values[FACT_VFIO_DEVICES]),
        KEY("migrations", KIND_U32, facts.values[FACT_MIGRATIONS]),
        KEY("vcpus", KIND_U32, facts.values[FACT_VCPUS]),
        KEY("max-level", KIND_U32, max_level),
        KEY("auto-slots", KIND_BOOL, auto_slots),
        KEY("built", KIND_SPAN, built),
        KEY("let-go", KIND_SPAN, let_go),
        KEY("built-charge", KIND_U64, built_charge),
        KEY("built-slots-bytes", KIND_U64, built_slots_bytes),
        KEY("built-level", KIND_U32, built_level),
        KEY("heal-level", KIND_U32, heal_level),
        KEY("charge-bytes", KIND_U64, charge_bytes),
        KEY("populate-usec", KIND_U64, populate_usec),
        KEY("policy-build", KIND_BOOL, policy.build),
        KEY("policy-leaves", KIND_U64, policy.leaves),
        KEY("policy-saved-usec", KIND_U64, policy.saved_usec),
        KEY("policy-build-usec", KIND_U64, policy.build_usec),
        KEY("policy-pinned-bytes", KIND_U64, policy.pinned_bytes),
        KEY("policy-rule", KIND_TEXT, policy.rule),
        KEY("reason", KIND_REASON, policy.reasons),
};

static bool kind_is_list(Kind k) {
        return k >= KIND_PART;
}

void record_done(Record *r) {
        free(r->parts);
        spanset_done(&r->built);
        spanset_done(&r->let_go);
        *r = (Record){};
}

static int write_value(FILE *f, const Key *k, const Record *r) {
        const void *p = (const char *) r + k->offset;
        const SpanSet *spans = p;
        _cleanup_free_ char *set = NULL;

        switch (k->kind) {
        case KIND_U64:
                fprintf(f, "%s %" PRIu64 "\n", k->name, *(const uint64_t *) p);
                break;
        case KIND_U32:
                fprintf(f, "%s %" PRIu32 "\n", k->name, *(const uint32_t *) p);
                break;
        case KIND_HEX:
                fprintf(f, "%s %016" PRIx64 "\n", k->name, *(const uint64_t *) p);
                break;
        case KIND_BOOL:
                fprintf(f, "%s %s\n", k->name, *(const bool *) p ? "yes" : "no");
                break;
        case KIND_TEXT:
                fprintf(f, "%s %s\n", k->name, (const char *) p);
                break;
        case KIND_STATE:
                fprintf(f, "%s %s\n", k->name, vm_state_to_string(*(const VMState *) p));
                break;
        case KIND_DECISION:
                fprintf(f, "%s %s\n", k->name, decision_to_string(*(const Decision *) p));
                break;
        case KIND_IDSET:
                if (idset_format(p, &set) < 0)
                        return -ENOMEM;
                fprintf(f, "%s %s\n", k->name, set);
                break;
        case KIND_PART:
                for (size_t i = 0; i < r->n_parts; i++)
                        fprintf(f, "%s %u %" PRIu64 "\n", k->name, r->parts[i].node, r->parts[i].bytes);
                break;
        case KIND_SPAN:
                for (size_t i = 0; i < spans->n; i++)
                        fprintf(f, "%s %" PRIu64 " %" PRIu64 "\n", k->name, spans->spans[i].gpa,
                                spans->spans[i].size);
                break;
        case KIND_REASON:
                for (size_t i = 0; i < r->policy.n_reasons; i++)
                        fprintf(f, "%s %s %s\n", k->name, r->policy.reasons[i].word,
                                r->policy.reasons[i].text);
                break;
        }
        return 0;
}

int record_format(const Record *r, char **ret, size_t *ret_size) {
        _cleanup_free_ char *text = NULL;
        size_t size = 0;
        FILE *f;
        int k = 0;

        if (r->n_parts > RECORD_PARTS_MAX || r->built.n > RECORD_SPANS_MAX || r->let_go.n > RECORD_SPANS_MAX)
                return -EFBIG;
        f = open_memstream(&text, &size);
        if (!f)
                return -ENOMEM;
        fprintf(f, "%s%u\n", frame.magic, frame.version);
        for (size_t i = 0; i < ELEMENTSOF(keys) && k >= 0; i++)
                k = write_value(f, &keys[i], r);
        k = record_close(f, &text, &size, k);
        if (k < 0)
                return k;
        if (size > RECORD_SIZE_MAX)
                return -EFBIG;
        *ret = TAKE_PTR(text);
        *ret_size = size;
        return 0;
}

static int parse_pair(char *s, uint64_t *ret_a, uint64_t *ret_b) {
        char *space = strchr(s, ' ');

        if (!space)
                return -EINVAL;
        *space = '\0';
        return record_read_u64(s, ret_a) < 0 ? -EINVAL : record_read_u64(space + 1, ret_b);
}

static int parse_part(char *s, Record *r) {
        uint64_t node, bytes;
        PlacementPart *grown;

        if (parse_pair(s, &node, &bytes) < 0 || node >= NODE_ID_MAX || bytes == 0 ||
            r->n_parts >= RECORD_PARTS_MAX)
                return -EINVAL;
        grown = reallocarray(r->parts, r->n_parts + 1, sizeof(*grown));
        if (!grown)
                return -ENOMEM;
        r->parts = grown;
        grown[r->n_parts++] = (PlacementPart){ .node = (unsigned) node, .bytes = bytes };
        return 0;
}

static int parse_span(char *s, SpanSet *set) {
        Span span;

        if (parse_pair(s, &span.gpa, &span.size) < 0 || span.size == 0 ||
            span.size > UINT64_MAX - span.gpa || set->n >= RECORD_SPANS_MAX)
                return -EINVAL;
        if (set->n > 0 && span.gpa <= span_end(set->spans[set->n - 1]))
                return -EINVAL;
        return spans_append(&set->spans, &set->n, span);
}

static int parse_reason(char *s, Record *r) {
        size_t i = r->policy.n_reasons;
        char *space = strchr(s, ' ');

        if (!space || space == s || i >= POLICY_REASONS_MAX || (size_t) (space - s) >= RECORD_WORD_MAX ||
            strlen(space + 1) >= sizeof(r->policy.reasons[i].text))
                return -EINVAL;
        *space = '\0';
        strcpy(r->words[i], s);
        strcpy(r->policy.reasons[i].text, space + 1);
        r->policy.n_reasons++;
        return 0;
}

static int parse_value(const Key *k, char *s, Record *r) {
        void *p = (char *) r + k->offset;
        uint64_t v;

        switch (k->kind) {
        case KIND_U64:
                return record_read_u64(s, p);
        case KIND_U32:
                if (record_read_u64(s, &v) < 0 || v > UINT32_MAX)
                        return -EINVAL;
                *(uint32_t *) p = (uint32_t) v;
                return 0;
        case KIND_HEX:
                return record_read_hex(s, p);
        case KIND_BOOL:
                *(bool *) p = streq(s, "yes");
                return streq(s, "yes") || streq(s, "no") ? 0 : -EINVAL;
        case KIND_TEXT:
                if (strlen(s) >= k->room || strchr(s, ' '))
                        return -EINVAL;
                strcpy(p, s);
                return 0;
        case KIND_STATE:
                *(VMState *) p = vm_state_from_string(s);
                return *(VMState *) p < 0 ? -EINVAL : 0;
        case KIND_DECISION:
                *(Decision *) p = decision_from_string(s);
                return *(Decision *) p < 0 ? -EINVAL : 0;
        case KIND_IDSET:
                return idset_parse(s, p);
        case KIND_PART:
                return parse_part(s, r);
        case KIND_SPAN:
                return parse_span(s, p);
        case KIND_REASON:
                return parse_reason(s, r);
        }
        return -EINVAL;
}

static int parse_line(char *line, Record *r, uint64_t *seen, RecordFault *fault) {
        char *value = strchr(line, ' ');
        int k;

        if (value)
                *value++ = '\0';
        for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
                if (!streq(keys[i].name, line))
                        continue;
                if (!value)
                        return record_fail(fault, "bad-value", "key \"%s\" has no value", line);
                if ((*seen & UINT64_C(1) << i) && !kind_is_list(keys[i].kind))
                        return record_fail(fault, "bad-value", "key \"%s\" is there twice", line);
                *seen |= UINT64_C(1) << i;
                k = parse_value(&keys[i], value, r);
                if (k < 0 && k != -ENOMEM)
                        return record_fail(fault, "bad-value", "\"%.60s\" is nothing for key \"%s\"", value,
                                           line);
                return k;
        }
        return record_fail(fault, "unknown-key", "there is no key \"%.60s\"", line);
}

/* What each state must have, and what belongs together. */
static const char *find_contradiction(const Record *r) {
        bool has_vmm = r->state >= VM_ATTACHED && r->state < VM_RELEASED;
        uint64_t sum = 0;

        if (!vm_name_is_valid(r->name))
                return "the name is not plain";
        if (strlen(r->boot_id) != BOOT_ID_LEN)
                return "the boot id is none";
        if (r->lease == 0)
                return "the lease is 0";
        if (r->state < VM_ATTACHED && (r->n_parts == 0 || r->pid != 0 || r->has_handle))
                return "it is reserved and has no memory, or has a VMM";
        if (has_vmm && (r->pid == 0 || r->pid > INT32_MAX))
                return "it is attached and has no VMM";
        if (r->state >= VM_BUILDING && r->state < VM_RELEASED && !r->has_handle)
                return "it is built and has no handle";
        if ((r->job_id != 0) != (r->job_type[0] != '-'))
                return "a job has no type";
        if (r->n_parts > 0 && (r->page_size < KIB(4) || (r->page_size & (r->page_size - 1)) != 0))
                return "the page size is none";
        for (size_t i = 0; i < r->n_parts; i++)
                if (r->parts[i].bytes % r->page_size != 0 || r->parts[i].bytes > INT64_MAX - sum)
                        return "a part is not of whole pages";
                else
                        sum += r->parts[i].bytes;
        if (r->n_parts > 0 && sum != r->bytes)
                return "the parts are not the whole";
        return NULL;
}

static int parse_keys(char *text, Record *r, RecordFault *fault) {
        const char *contradiction;
        uint64_t seen = 0;
        char *line;
        int k;

        while ((line = strsep(&text, "\n")) && *line != '\0') {
                k = parse_line(line, r, &seen, fault);
                if (k < 0)
                        return k;
        }
        for (size_t i = 0; i < ELEMENTSOF(keys); i++)
                if (!(seen & UINT64_C(1) << i) && !kind_is_list(keys[i].kind))
                        return record_fail(fault, "bad-value", "key \"%s\" is missing", keys[i].name);
        contradiction = find_contradiction(r);
        if (contradiction)
                return record_fail(fault, "bad-value", "%s", contradiction);
        for (size_t i = 0; i < r->policy.n_reasons; i++)
                r->policy.reasons[i].word = r->words[i];
        return 0;
}

int record_parse(const char *text, size_t size, Record *ret, RecordFault *fault) {
        _cleanup_free_ char *copy = NULL;
        int k;

        k = record_open(&frame, text, size, &copy, fault);
        if (k < 0)
                return k;
        *ret = (Record){};
        k = parse_keys(copy, ret, fault);
        if (k < 0)
                record_done(ret);
        return k;
}
