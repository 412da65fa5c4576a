/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>

#include "handoff-fields.h"
#include "handoff.pb-c.h"

/* The package's names are long. */
typedef Tdpd__Handoff__Message PbMessage;
typedef Tdpd__Handoff__Region PbRegion;

struct HandoffUnknown {
        size_t n;
        ProtobufCMessageUnknownField *fields;
};

static HandoffUnknown *unknown_free(HandoffUnknown *u) {
        if (!u)
                return NULL;
        for (size_t i = 0; i < u->n; i++)
                free(u->fields[i].data);
        free(u->fields);
        free(u);
        return NULL;
}

DEFINE_CLEANUP(HandoffUnknown, unknown_free);

static int unknown_read(const ProtobufCMessage *from, HandoffUnknown **ret) {
        _cleanup_(unknown_freep) HandoffUnknown *u = NULL;

        if (from->n_unknown_fields == 0) {
                *ret = NULL;
                return 0;
        }
        u = calloc(1, sizeof(*u));
        if (!u)
                return -ENOMEM;
        u->fields = calloc(from->n_unknown_fields, sizeof(*u->fields));
        if (!u->fields)
                return -ENOMEM;
        for (; u->n < from->n_unknown_fields; u->n++) {
                ProtobufCMessageUnknownField *f = u->fields + u->n;

                *f = from->unknown_fields[u->n];
                f->data = malloc(f->len + !f->len);
                if (!f->data)
                        return -ENOMEM;
                memcpy(f->data, from->unknown_fields[u->n].data, f->len);
        }
        *ret = TAKE_PTR(u);
        return 0;
}

/* Lent to protobuf-c, for packing. */
static void unknown_write(const HandoffUnknown *u, ProtobufCMessage *to) {
        to->n_unknown_fields = u ? (unsigned) u->n : 0;
        to->unknown_fields = u ? u->fields : NULL;
}

static HandoffId id_read(ProtobufCBinaryData data) {
        HandoffId id = {};

        if (data.len == sizeof(id.bytes))
                memcpy(id.bytes, data.data, sizeof(id.bytes));
        return id;
}

static ProtobufCBinaryData id_write(const HandoffId *id) {
        if (!handoff_id_is_set(id))
                return (ProtobufCBinaryData){};
        return (ProtobufCBinaryData){ .len = sizeof(id->bytes), .data = (uint8_t *) id->bytes };
}

/* Lengths have been checked. */
static void string_read(const char *s, char *buf, size_t size) {
        snprintf(buf, size, "%s", s ?: "");
}

static void offer_read(const Tdpd__Handoff__Offer *pb, HandoffOffer *o) {
        o->n_regions = pb->n_regions;
        for (size_t i = 0; i < pb->n_regions; i++)
                o->regions[i] = (Span){ .gpa = pb->regions[i]->gpa, .size = pb->regions[i]->bytes };
        o->bytes = pb->bytes;
        o->n_page_sizes = pb->n_page_sizes;
        for (size_t i = 0; i < pb->n_page_sizes; i++)
                o->page_sizes[i] = pb->page_sizes[i];
        o->mode = (HandoffMode) pb->mode;
        o->time_left_usec = pb->time_left_usec;
        o->vcpus = pb->vcpus;
        o->post_copy = pb->post_copy;
}

/* The body as protobuf-c sees it in general. */
static ProtobufCMessage *body_of(PbMessage *pb) {
        return pb->body_case == TDPD__HANDOFF__MESSAGE__BODY__NOT_SET ? NULL : &pb->offer->base;
}

static void body_read(const PbMessage *pb, HandoffMessage *m) {
        switch (m->type) {
        case HANDOFF_OFFER:
                offer_read(pb->offer, &m->offer);
                break;
        case HANDOFF_ANSWER:
                m->answer = (HandoffAnswer){ pb->answer->bytes, pb->answer->page_size,
                                             (HandoffMode) pb->answer->mode, pb->answer->time_left_usec };
                break;
        case HANDOFF_START:
                m->start = (HandoffStart){ (HandoffLogging) pb->start->logging, pb->start->split_leaf,
                                           pb->start->time_left_usec };
                break;
        case HANDOFF_COMMIT:
                m->commit = (HandoffCommit){ pb->commit->post_copy, pb->commit->bytes_left };
                break;
        case HANDOFF_COMPLETE:
                m->complete = (HandoffComplete){ pb->complete->bytes_left, pb->complete->new_generation,
                                                 pb->complete->holes, pb->complete->bytes_released };
                break;
        case HANDOFF_ABORT:
                m->abort = (HandoffAbort){ .reason = (uint32_t) pb->abort->reason,
                                           .needed = pb->abort->needed,
                                           .available = pb->abort->available };
                string_read(pb->abort->text, m->abort.text, sizeof(m->abort.text));
                break;
        default:
                break;
        }
}

static void message_freep(PbMessage **pb) {
        if (*pb)
                tdpd__handoff__message__free_unpacked(*pb, NULL);
}

int handoff_unpack(const void *data, size_t size, HandoffMessage *ret, HandoffProblem *problem) {
        _cleanup_(message_freep) PbMessage *pb = NULL;
        HandoffMessage m;
        int r;

        *problem = (HandoffProblem){};
        r = handoff_scan(data, size, problem);
        if (r < 0)
                return r;
        /* Nothing is left that it could refuse. */
        pb = tdpd__handoff__message__unpack(NULL, size, data);
        if (!pb)
                return -ENOMEM;

        m = (HandoffMessage){
                .version = pb->version,
                .min_version = pb->min_version,
                .n_needs = pb->n_needs,
                .role = (HandoffRole) pb->role,
                .id = id_read(pb->id),
                .from = id_read(pb->from),
                .to = id_read(pb->to),
                .grant = id_read(pb->grant),
                .generation = pb->generation,
                .type = (HandoffType) (pb->body_case - TDPD__HANDOFF__MESSAGE__BODY_OFFER),
        };
        for (size_t i = 0; i < pb->n_needs; i++)
                string_read(pb->needs[i], m.needs[i], sizeof(m.needs[i]));
        string_read(pb->vm, m.vm, sizeof(m.vm));
        body_read(pb, &m);

        r = handoff_check(&m, problem);
        if (r < 0)
                return r;
        r = unknown_read(&pb->base, &m.unknown);
        if (r >= 0)
                r = unknown_read(body_of(pb), &m.unknown_in_body);
        if (r < 0) {
                handoff_message_done(&m);
                return r;
        }
        *ret = m;
        return 0;
}

void handoff_message_done(HandoffMessage *m) {
        m->unknown = unknown_free(m->unknown);
        m->unknown_in_body = unknown_free(m->unknown_in_body);
}

/* What protobuf-c packs from; the message lends it all but these. */
typedef struct Packing {
        PbMessage message;
        union {
                Tdpd__Handoff__Offer offer;
                Tdpd__Handoff__Answer answer;
                Tdpd__Handoff__Start start;
                Tdpd__Handoff__Commit commit;
                Tdpd__Handoff__Complete complete;
                Tdpd__Handoff__Abort abort;
        };
        PbRegion regions[HANDOFF_REGIONS_MAX];
        PbRegion *region_pointers[HANDOFF_REGIONS_MAX];
        char *needs[HANDOFF_NEEDS_MAX];
} Packing;

static void offer_write(const HandoffOffer *o, Packing *p) {
        tdpd__handoff__offer__init(&p->offer);
        for (size_t i = 0; i < o->n_regions; i++) {
                tdpd__handoff__region__init(p->regions + i);
                p->regions[i].gpa = o->regions[i].gpa;
                p->regions[i].bytes = o->regions[i].size;
                p->region_pointers[i] = p->regions + i;
        }
        p->offer.n_regions = o->n_regions;
        p->offer.regions = p->region_pointers;
        p->offer.bytes = o->bytes;
        p->offer.n_page_sizes = o->n_page_sizes;
        p->offer.page_sizes = (uint64_t *) o->page_sizes;
        p->offer.mode = (Tdpd__Handoff__Mode) o->mode;
        p->offer.time_left_usec = o->time_left_usec;
        p->offer.vcpus = o->vcpus;
        p->offer.post_copy = o->post_copy;
}

static void body_write(const HandoffMessage *m, Packing *p) {
        switch (m->type) {
        case HANDOFF_OFFER:
                offer_write(&m->offer, p);
                break;
        case HANDOFF_ANSWER:
                tdpd__handoff__answer__init(&p->answer);
                p->answer.bytes = m->answer.bytes;
                p->answer.page_size = m->answer.page_size;
                p->answer.mode = (Tdpd__Handoff__Mode) m->answer.mode;
                p->answer.time_left_usec = m->answer.time_left_usec;
                break;
        case HANDOFF_START:
                tdpd__handoff__start__init(&p->start);
                p->start.logging = (Tdpd__Handoff__Logging) m->start.logging;
                p->start.split_leaf = m->start.split_leaf;
                p->start.time_left_usec = m->start.time_left_usec;
                break;
        case HANDOFF_COMMIT:
                tdpd__handoff__commit__init(&p->commit);
                p->commit.post_copy = m->commit.post_copy;
                p->commit.bytes_left = m->commit.bytes_left;
                break;
        case HANDOFF_COMPLETE:
                tdpd__handoff__complete__init(&p->complete);
                p->complete.bytes_left = m->complete.bytes_left;
                p->complete.new_generation = m->complete.new_generation;
                p->complete.holes = m->complete.holes;
                p->complete.bytes_released = m->complete.bytes_released;
                break;
        case HANDOFF_ABORT:
                tdpd__handoff__abort__init(&p->abort);
                p->abort.reason = (Tdpd__Handoff__Reason) m->abort.reason;
                p->abort.text = (char *) m->abort.text;
                p->abort.needed = m->abort.needed;
                p->abort.available = m->abort.available;
                break;
        default:
                break;
        }
        p->message.body_case =
                        (Tdpd__Handoff__Message__BodyCase) (TDPD__HANDOFF__MESSAGE__BODY_OFFER + m->type);
        p->message.offer = &p->offer;
}

/* What does not fit the arrays cannot even be tried. */
static int check_counts(const HandoffMessage *m, HandoffProblem *problem) {
        if (m->type >= _HANDOFF_TYPE_MAX || (unsigned) m->role > HANDOFF_DESTINATION)
                return handoff_problem(problem, HANDOFF_MISSING, "message: no type or role");
        if (m->n_needs > HANDOFF_NEEDS_MAX)
                return handoff_problem(problem, HANDOFF_TOO_MANY, "needs: more than %u", HANDOFF_NEEDS_MAX);
        if (m->type != HANDOFF_OFFER)
                return 0;
        if (m->offer.n_regions > HANDOFF_REGIONS_MAX)
                return handoff_problem(problem, HANDOFF_TOO_MANY, "offer.regions: more than %u",
                                       HANDOFF_REGIONS_MAX);
        if (m->offer.n_page_sizes > HANDOFF_PAGE_SIZES_MAX)
                return handoff_problem(problem, HANDOFF_TOO_MANY, "offer.page_sizes: more than %u",
                                       HANDOFF_PAGE_SIZES_MAX);
        return 0;
}

int handoff_pack(const HandoffMessage *m, uint8_t **ret, size_t *ret_size, HandoffProblem *problem) {
        _cleanup_free_ uint8_t *data = NULL;
        Packing p = {};
        size_t size;

        *problem = (HandoffProblem){};
        if (check_counts(m, problem) < 0)
                return -EINVAL;

        tdpd__handoff__message__init(&p.message);
        p.message.version = m->version ?: HANDOFF_VERSION;
        p.message.min_version = m->min_version ?: 1;
        p.message.n_needs = m->n_needs;
        for (size_t i = 0; i < m->n_needs; i++)
                p.needs[i] = (char *) m->needs[i];
        p.message.needs = p.needs;
        p.message.role = (Tdpd__Handoff__Role) m->role;
        p.message.id = id_write(&m->id);
        p.message.from = id_write(&m->from);
        p.message.to = id_write(&m->to);
        p.message.vm = (char *) m->vm;
        p.message.generation = m->generation;
        p.message.grant = id_write(&m->grant);
        body_write(m, &p);
        unknown_write(m->unknown, &p.message.base);
        unknown_write(m->unknown_in_body, body_of(&p.message));

        size = tdpd__handoff__message__get_packed_size(&p.message);
        data = malloc(size);
        if (!data)
                return -ENOMEM;
        tdpd__handoff__message__pack(&p.message, data);

        /* Held against the same table as what comes from outside. */
        if (handoff_scan(data, size, problem) < 0)
                return -EINVAL;
        HandoffMessage check = *m;
        check.version = p.message.version;
        check.min_version = p.message.min_version;
        if (handoff_check(&check, problem) < 0)
                return -EINVAL;
        *ret = TAKE_PTR(data);
        *ret_size = size;
        return 0;
}
