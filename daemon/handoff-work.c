/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "handoff-work.h"

#include <errno.h>
#include <utlist.h>

#include "bus-job.h"
#include "clock.h"
#include "handoff-error.h"
#include "handoff-keep.h"
#include "log-message.h"
#include "slots.h"
#include "vm.h"

/* While the VMM still logs, leaves cannot become large. */
#define UNDO_USEC (UINT64_C(30) * 1000000)
#define LOOK_USEC (UINT64_C(200) * 1000)
/* The VM stands still while the destination verifies: what is mapped later than that is told as holes. */
#define VERIFY_USEC (UINT64_C(500) * 1000)

HandoffMode handoff_vm_mode(const VM *vm) {
        struct kvm_gtdp_info info;

        if (handle_get_info(vm->manager->options.device, &info) < 0)
                return HANDOFF_ON_DEMAND;
        if (info.mode == KVM_GTDP_MODE_SHADOW)
                return HANDOFF_SHADOW;
        return vm->policy.build ? HANDOFF_GLOBAL : HANDOFF_ON_DEMAND;
}

/* The memory of a VM to come is being populated, or all there. */
static void prepare(Handoff *h, VM *vm) {
        HandoffMessage m;

        if (!vm || vm->releasing) {
                handoff_set_abort(&m, handoff_error_reason(h->error_name), "%s",
                                  h->why[0] ? h->why : "its memory was released while it was populated");
                handoff_happens(h, HANDOFF_PREPARE_FAILED, &m);
        } else if (vm->state != VM_RESERVED) {
                m = (HandoffMessage){
                        .type = HANDOFF_ANSWER,
                        .answer = { .bytes = vm->bytes,
                                    .page_size = vm->page_size,
                                    .mode = handoff_vm_mode(vm) },
                };
                handoff_happens(h, HANDOFF_PREPARED, &m);
        }
}

/* A VM that was there has none any more, on either side. */
static bool lost(Handoff *h, VM *vm) {
        HandoffMessage why;

        if (vm && !vm->releasing)
                return false;
        handoff_set_abort(&why, HANDOFF_REASON_VMM_GONE, "the VM, or its VMM, has gone from the %s",
                          handoff_role_to_string(h->r.side));
        handoff_happens(h, HANDOFF_VMM_GONE, &why);
        return true;
}

static int on_look_again(sd_event_source *s, uint64_t usec, void *userdata) {
        handoff_look_soon(userdata);
        return 0;
}

/* false: there is no timer, and what happens next must do. */
static bool look_later(Handoff *h, uint64_t usec) {
        h->look_again = sd_event_source_disable_unref(h->look_again);
        return sd_event_add_time_relative(h->manager->event, &h->look_again, CLOCK_BOOTTIME, usec, 0,
                                          on_look_again, h) >= 0;
}

static bool is_logging(VM *vm) {
        _cleanup_(slots_done) Slots slots = {};

        return slots_read(vm->handle, &slots) >= 0 && slots.logging.n > 0;
}

static bool start_job(Handoff *h, VM *vm, JobType type, uint32_t level, const SpanSet *within) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        Job *j;
        int r;

        r = vm_check_build(vm, type, &error);
        if (r >= 0)
                r = vm_start_build(vm, JOB_NO_UID, type, level, within, &j, &error);
        if (r < 0) {
                log_warning("Handoff %s: VM %s: job %s cannot be started: %s", h->key, vm->name,
                            job_type_to_string(type), error.message ?: strerror(-r));
                return false;
        }
        bus_job_added(j);
        return true;
}

/* Memory in the hands of a VMM, and of the mapping what can be had soon. */
static void verify(Handoff *h, VM *vm) {
        uint64_t now = clock_usec_of(CLOCK_BOOTTIME), holes;
        const struct kvm_gtdp_stats *stats;
        HandoffMessage m;

        if (lost(h, vm))
                return;
        if (!h->r.memory_taken && vm->pid == 0) {
                handoff_set_abort(&m, HANDOFF_REASON_VERIFY,
                                  "no VMM has taken the memory that was prepared here");
                handoff_happens(h, HANDOFF_VERIFY_FAILED, &m);
                return;
        }
        if (h->until_usec == 0)
                h->until_usec = now + VERIFY_USEC;
        if (vm->job && now < h->until_usec && look_later(h, h->until_usec - now))
                return; /* its end comes here again */
        vm->has_stats = false;
        stats = vm_stats(vm);
        holes = stats && vm->policy.build ? stats->hole_bytes : 0;
        /* With post-copy there are holes, until the rest has come. */
        if (holes > 0 && !h->r.commit.post_copy && !h->healed && !vm->job && vm->built.n > 0) {
                h->healed = true;
                if (start_job(h, vm, JOB_HEAL, vm->heal_level, &vm->built))
                        return;
        }
        m = (HandoffMessage){
                .type = HANDOFF_COMPLETE,
                .complete = { .bytes_left = h->r.commit.post_copy ? h->r.commit.bytes_left : 0,
                              .new_generation = h->r.generation + 1,
                              .holes = holes },
        };
        handoff_happens(h, m.complete.bytes_left > 0 ? HANDOFF_VERIFIED_PART : HANDOFF_VERIFIED, &m);
}

static void own(Handoff *h, VM *vm) {
        if (vm && vm->generation != h->r.generation + 1) {
                vm->generation = h->r.generation + 1;
                vm_keep_now(vm);
        }
}

static void free_or_release(Handoff *h, VM *vm) {
        HandoffMessage m = {
                .type = HANDOFF_COMPLETE,
                .complete.bytes_released = h->r.offer.bytes,
        };

        if (!vm)
                handoff_happens(h, HANDOFF_FREED, &m);
        else if (!vm->releasing)
                (void) vm_release(vm, NULL); /* and it is looked at again when it has gone */
}

/* Leaves that were split become large again, once nothing is logged any more. */
static void undo(Handoff *h, VM *vm) {
        bool logged = h->r.start.logging > HANDOFF_LOGGING_NONE; /* KVM splits what is written then */
        bool was_split = (logged || h->r.start.split_leaf > 0) && vm && !vm->releasing && vm->handle >= 0;

        if (was_split && vm->job) {
                if (vm->job->type == JOB_SPLIT)
                        job_cancel(vm->job);
                return;
        }
        if (was_split && !h->undone) {
                if (h->until_usec == 0)
                        h->until_usec = clock_usec_of(CLOCK_BOOTTIME) + UNDO_USEC;
                if (is_logging(vm) && clock_usec_of(CLOCK_BOOTTIME) < h->until_usec &&
                    look_later(h, LOOK_USEC))
                        return;
                h->undone = true;
                if (start_job(h, vm, JOB_COLLAPSE, vm->built_level, NULL))
                        return;
        }
        handoff_happens(h, HANDOFF_UNDONE, NULL);
}

static uint32_t leaf_level(uint64_t bytes) {
        return bytes >= GIB(1) ? 3 : bytes >= MIB(2) ? 2 : 1;
}

static void split(Handoff *h, VM *vm) {
        if (lost(h, vm) || h->split || h->r.start.split_leaf == 0 || vm->handle < 0 || vm->job)
                return;
        h->split = true;
        (void) start_job(h, vm, JOB_SPLIT, leaf_level(h->r.start.split_leaf), NULL);
}

static void look(Handoff *h) {
        VM *vm = handoff_vm(h);

        switch (h->r.state) {
        case HANDOFF_S_OFFERED:
        case HANDOFF_S_GRANTED:
        case HANDOFF_D_READY:
        case HANDOFF_D_RECEIVING:
        case HANDOFF_D_TAKEN:
                if (h->r.state == HANDOFF_D_TAKEN)
                        own(h, vm);
                (void) lost(h, vm);
                break;
        case HANDOFF_S_STARTED:
                split(h, vm);
                break;
        case HANDOFF_S_RELEASING:
        case HANDOFF_D_FREEING:
                free_or_release(h, vm);
                break;
        case HANDOFF_S_UNDOING:
                undo(h, vm);
                break;
        case HANDOFF_D_PREPARING:
                prepare(h, vm);
                break;
        case HANDOFF_D_VERIFYING:
                verify(h, vm);
                break;
        case HANDOFF_D_OWNER:
                own(h, vm);
                break;
        default:
                break;
        }
}

static int on_look(sd_event_source *s, void *userdata) {
        Manager *m = userdata;
        Handoff *h, *tmp;

        DL_FOREACH_SAFE(m->handoffs->list, h, tmp)
        if (h->looks) {
                h->looks = false;
                look(h);
        }
        return 0;
}

void handoff_look_now(Handoff *h) {
        h->looks = false;
        look(h);
}

void handoff_look_soon(Handoff *h) {
        Handoffs *s = h->manager->handoffs;
        int r = 0;

        h->looks = true;
        if (!s->look)
                r = sd_event_add_defer(h->manager->event, &s->look, on_look, h->manager);
        else
                r = sd_event_source_set_enabled(s->look, SD_EVENT_ONESHOT);
        if (r < 0)
                log_warning_errno(r, "Handoff %s: it is looked at when something happens next", h->key);
}
