/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The source's calls: offer, start, commit. */
#include <errno.h>
#include <inttypes.h>
#include <sys/random.h>

#include "bus-error.h"
#include "bus-handoff.h"
#include "clock.h"
#include "format.h"
#include "handoff-calls.h"
#include "handoff-work.h"
#include "slots.h"
#include "vm.h"

#define HIGH GIB(4) /* what does not fit below the PCI hole begins here, on a PC */

static const uint64_t page_sizes[] = { GIB(1), MIB(2), KIB(4) };

/* Memory that tdpd has reserved is all of the guest's RAM; slots have more than that, like that of a
 * display, and less, where RAM is hidden below 1M. */
static int set_our_regions(const VM *vm, const SpanSet *slots, HandoffOffer *o) {
        uint64_t high = 0;

        for (size_t i = 0; i < slots->n; i++)
                if (slots->spans[i].gpa >= HIGH)
                        high += slots->spans[i].size;
        if (high >= vm->bytes || vm->bytes - high > HIGH)
                high = 0;
        o->regions[o->n_regions++] = (Span){ .size = vm->bytes - high };
        if (high > 0)
                o->regions[o->n_regions++] = (Span){ .gpa = HIGH, .size = high };
        o->bytes = vm->bytes;
        return 0;
}

static int set_regions(const VM *vm, const HandoffOptions *options, HandoffOffer *o, sd_bus_error *error) {
        _cleanup_(slots_done) Slots slots = {};

        if (vm->handle >= 0 && slots_read(vm->handle, &slots) < 0)
                return sd_bus_error_setf(error, TDP_ERROR_NO_SUCH_PROCESS, "the VM or its VMM has gone");
        if (vm->memory)
                return set_our_regions(vm, &slots.all, o);
        if (slots.all.n > HANDOFF_REGIONS_MAX)
                return sd_bus_error_setf(
                                error, TDP_ERROR_UNSUPPORTED,
                                "VM \"%s\" has memory in %zu places, and a handoff knows %u at most",
                                vm->name, slots.all.n, HANDOFF_REGIONS_MAX);
        for (size_t i = 0; i < slots.all.n; i++) {
                o->regions[o->n_regions++] = slots.all.spans[i];
                o->bytes += slots.all.spans[i].size;
        }
        if (o->bytes > 0)
                return 0;
        if (options->bytes == 0)
                return sd_bus_error_setf(error, TDP_ERROR_UNSUPPORTED,
                                         "tdpd does not know the memory of VM \"%s\", as it was attached "
                                         "without %s: give its size as option \"bytes\"",
                                         vm->name, vm->manager->options.device);
        o->regions[o->n_regions++] = (Span){ .size = options->bytes };
        o->bytes = options->bytes;
        return 0;
}

/* By default all sizes of which the regions are whole pages. */
static void set_page_sizes(const HandoffOptions *options, HandoffOffer *o) {
        if (options->n_page_sizes > 0) {
                memcpy(o->page_sizes, options->page_sizes, sizeof(options->page_sizes));
                o->n_page_sizes = options->n_page_sizes;
                return;
        }
        for (size_t i = 0; i < ELEMENTSOF(page_sizes); i++) {
                bool fits = true;

                for (size_t k = 0; k < o->n_regions; k++)
                        fits = fits && (o->regions[k].gpa | o->regions[k].size) % page_sizes[i] == 0;
                if (fits)
                        o->page_sizes[o->n_page_sizes++] = page_sizes[i];
        }
}

static int check_vm(const VM *vm, sd_bus_error *error) {
        const Handoff *h;

        if (vm->pid == 0 || vm->releasing)
                return sd_bus_error_setf(error, TDP_ERROR_BUSY,
                                         "VM \"%s\" is %s: a VM is handed over while it runs", vm->name,
                                         vm_state_to_string(vm->state));
        h = handoff_find_by_vm(vm, HANDOFF_SOURCE);
        if (!h) {
                h = handoff_find_by_vm(vm, HANDOFF_DESTINATION);
                if (!h || handoff_state_owns(h->r.state))
                        return 0;
        }
        return sd_bus_error_setf(
                        error, TDP_ERROR_BUSY,
                        "VM \"%s\" is being handed over already (%s, %s): wait for the end, or cancel "
                        "handoff %s",
                        vm->name, handoff_role_to_string(h->r.side), handoff_state_to_string(h->r.state),
                        h->key);
}

int handoff_offer(VM *vm, uid_t uid, const HandoffOptions *o, Handoff **ret, sd_bus_error *error) {
        Manager *m = vm->manager;
        HandoffRecord record = { .side = HANDOFF_SOURCE, .state = HANDOFF_S_NONE, .uid = uid };
        HandoffStep step;
        Handoff *h;
        int r;

        r = check_vm(vm, error);
        if (r >= 0)
                r = set_regions(vm, o, &record.offer, error);
        if (r >= 0)
                r = vm_get_lease(vm, &record.lease);
        if (r < 0)
                return r;
        set_page_sizes(o, &record.offer);
        record.offer.mode = handoff_vm_mode(vm);
        record.offer.vcpus = vm->options.facts.values[FACT_VCPUS];
        record.offer.post_copy = o->post_copy;
        record.offer.time_left_usec = o->deadline_usec;
        record.deadline_usec = clock_usec_of(CLOCK_BOOTTIME) + o->deadline_usec;
        record.generation = MAX_OF(vm->generation, UINT64_C(1));
        strcpy(record.vm, vm->name);
        strcpy(record.name, vm->name);
        if (getrandom(record.id.bytes, sizeof(record.id.bytes), 0) != sizeof(record.id.bytes))
                return -EIO;

        r = handoff_new(m, &record, &h, error);
        if (r < 0)
                return r;
        r = handoff_event(h, HANDOFF_CALL_OFFER, NULL, &step, error);
        if (r < 0) {
                handoff_drop(h);
                return r;
        }
        bus_handoff_added(h);
        *ret = h;
        return 0;
}

int handoff_start(Handoff *h, const HandoffOptions *o, sd_bus_error *error) {
        HandoffMessage body = {
                .type = HANDOFF_START,
                .start = { .logging = o->logging,
                           .split_leaf = o->split_leaf,
                           .time_left_usec = handoff_time_left(h) },
        };
        const VM *vm = handoff_vm(h);
        HandoffStep step;
        int r;

        /* Logging is by pages of 4K, and what is split before it begins need not be split by a guest that
         * writes. */
        if (!o->has_split_leaf && o->logging != HANDOFF_LOGGING_NONE && vm && vm->policy.build)
                body.start.split_leaf = KIB(4);
        r = handoff_event(h, HANDOFF_CALL_START, &body, &step, error);
        if (r >= 0 && step.work == HANDOFF_WORK_SPLIT)
                handoff_look_now(h); /* for whoever asks for the job next */
        return r;
}

int handoff_commit(Handoff *h, const HandoffOptions *o, sd_bus_error *error) {
        HandoffMessage body = {
                .type = HANDOFF_COMMIT,
                .commit = { .post_copy = o->post_copy, .bytes_left = o->bytes_left },
        };
        HandoffStep step;

        if (o->bytes_left > 0 && !o->post_copy)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "bytes-left is %" PRIu64 " without post-copy: commit when all is "
                                         "there, or say post-copy",
                                         o->bytes_left);
        if (o->bytes_left > h->r.offer.bytes)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "bytes-left is %" PRIu64 ", and VM \"%s\" has %s", o->bytes_left,
                                         h->r.vm, format_bytes(h->r.offer.bytes));
        if (o->post_copy && h->r.side == HANDOFF_SOURCE && !h->r.offer.post_copy)
                return sd_bus_error_setf(
                                error, TDP_ERROR_INVALID,
                                "VM \"%s\" was not offered with post-copy: make a new offer that says "
                                "so",
                                h->r.vm);
        return handoff_event(h, HANDOFF_CALL_COMMIT, &body, &step, error);
}
