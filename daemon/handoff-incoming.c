/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The destination takes up an offer. */
#include <errno.h>
#include <inttypes.h>
#include <sys/random.h>
#include <utlist.h>

#include "bus-error.h"
#include "bus-handoff.h"
#include "clock.h"
#include "format.h"
#include "handoff-calls.h"
#include "handoff-error.h"
#include "handoff-match.h"
#include "handoff-work.h"
#include "vm.h"

static int check_repeated(Handoff *h, const HandoffMessage *offer, sd_bus_error *error) {
        HandoffIdentity identity = {
                .side = HANDOFF_DESTINATION,
                .id = h->r.id,
                .self = h->manager->handoffs->host,
                .peer = h->r.peer,
                .vm = h->r.vm,
                .generation = h->r.generation,
        };
        HandoffProblem problem;
        HandoffStep step;
        HandoffEvent e;
        int r;

        r = handoff_match(&identity, offer, &e, &problem);
        if (r < 0)
                return handoff_refuse_message(&problem, r, error);
        r = handoff_event(h, e, NULL, &step, error);
        if (r < 0)
                return r;
        return step.send == HANDOFF_SEND_ABORT ? handoff_refuse_ended(h, error) : 0;
}

static int check_new(Manager *m, const HandoffMessage *offer, const char *name, sd_bus_error *error) {
        const HandoffId *host = &m->handoffs->host;
        uint64_t seen = handoff_seen(m, offer->vm);
        Handoff *h;
        int r;

        if (handoff_id_is_set(&offer->to) && !handoff_id_equal(&offer->to, host))
                return sd_bus_error_setf(error, TDP_ERROR_MISMATCH,
                                         "the offer of VM \"%s\" is for another host", offer->vm);
        if (handoff_refuse_offer(offer->generation, seen, false) == HANDOFF_REASON_STALE)
                return sd_bus_error_setf(
                                error, TDP_ERROR_STALE,
                                "the offer of VM \"%s\" is of generation %" PRIu64
                                ", and this host has had generation %" PRIu64
                                ": it is old, or of another VM of that name; give it another name, or "
                                "have the handoff forgotten that the last one came or went by",
                                offer->vm, offer->generation, seen);
        r = handoff_check_known(m, &offer->id, HANDOFF_DESTINATION, error);
        if (r < 0)
                return r;
        DL_FOREACH (m->handoffs->list, h)
                if (h->r.side == HANDOFF_DESTINATION && streq(h->r.vm, offer->vm) &&
                    !handoff_state_is_final(h->r.state) && !handoff_state_owns(h->r.state))
                        return handoff_refuse(h, HANDOFF_EXISTS, error);
        r = vm_check_name(m, name, error);
        if (r < 0)
                return r;
        return 0;
}

/* Of the sizes that were offered, and may be had, the first one that there is enough of. */
static int reserve_any(Handoff *h, const VMOptions *asked, uint64_t wait_usec, sd_bus_error *error) {
        const HandoffOffer *offer = &h->r.offer;
        VMOptions o = *asked;
        int r = -ENOENT;
        VM *vm;

        o.lease = h->r.lease;
        o.wait_usec = wait_usec;
        if (!(o.facts.known & 1U << FACT_VCPUS) && offer->vcpus > 0)
                vm_facts_set(&o.facts, FACT_VCPUS, offer->vcpus);
        for (size_t i = 0; i < offer->n_page_sizes; i++) {
                if (asked->page_size != 0 && asked->page_size != offer->page_sizes[i])
                        continue;
                sd_bus_error_free(error);
                o.page_size = offer->page_sizes[i];
                r = vm_reserve(h->manager, h->r.uid, h->r.name, handoff_offer_bytes(offer, o.page_size), &o,
                               &vm, error);
                /* Pages of another size may be there. */
                if (r >= 0 || r == -ENOMEM ||
                    (!sd_bus_error_has_name(error, TDP_ERROR_NO_PAGES) &&
                     !sd_bus_error_has_name(error, TDP_ERROR_UNSUPPORTED) &&
                     !sd_bus_error_has_name(error, TDP_ERROR_INVALID)))
                        return r;
        }
        return r;
}

static int reserve(Handoff *h, const VMOptions *asked, sd_bus_error *error) {
        int r;

        r = reserve_any(h, asked, 0, error);
        /* Only if no size will do it is waited for one. */
        if (asked->wait_usec > 0 && sd_bus_error_has_name(error, TDP_ERROR_NO_PAGES)) {
                sd_bus_error_free(error);
                r = reserve_any(h, asked, asked->wait_usec, error);
        }
        if (r == -ENOENT)
                return sd_bus_error_setf(error, TDP_ERROR_UNSUPPORTED,
                                         "pages of %s were asked for, and VM \"%s\" is not offered for them",
                                         format_bytes(asked->page_size), h->r.vm);
        return r;
}

static int make_record(Manager *m, uid_t uid, const HandoffMessage *offer, const char *name,
                       HandoffRecord *ret) {
        HandoffRecord r = {
                .side = HANDOFF_DESTINATION,
                .state = HANDOFF_D_NONE,
                .id = offer->id,
                .peer = offer->from,
                .generation = offer->generation,
                .uid = uid,
                .deadline_usec = clock_usec_of(CLOCK_BOOTTIME) + offer->offer.time_left_usec,
                .offer = offer->offer,
        };

        strcpy(r.vm, offer->vm);
        strcpy(r.name, name);
        if (getrandom(r.grant.bytes, sizeof(r.grant.bytes), 0) != sizeof(r.grant.bytes) ||
            getrandom(&r.lease, sizeof(r.lease), 0) != sizeof(r.lease))
                return -EIO;
        r.lease |= 1; /* 0 would be none */
        *ret = r;
        return 0;
}

int handoff_prepare(Manager *m, uid_t uid, const HandoffMessage *offer, const VMOptions *o, Handoff **ret,
                    sd_bus_error *error) {
        const char *name = o->name ?: offer->vm;
        HandoffRecord record;
        HandoffStep step;
        Handoff *h;
        int r;

        h = handoff_find(m, &offer->id, HANDOFF_DESTINATION);
        if (h) {
                *ret = h;
                return check_repeated(h, offer, error);
        }
        r = check_new(m, offer, name, error);
        if (r >= 0)
                r = make_record(m, uid, offer, name, &record);
        if (r >= 0)
                r = handoff_new(m, &record, &h, error);
        if (r < 0)
                return r;
        r = handoff_event(h, HANDOFF_GOT_OFFER, NULL, &step, error);
        if (r >= 0)
                r = reserve(h, o, error);
        if (r >= 0)
                handoff_look_now(h); /* warm memory is there already */
        if (r < 0) {
                /* Nobody has heard of the grant. */
                handoff_drop(h);
                return r;
        }
        bus_handoff_added(h);
        *ret = h;
        return 0;
}
