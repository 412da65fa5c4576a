/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bus-vm-range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "auth.h"
#include "bus-error.h"
#include "bus-job.h"
#include "handoffs.h"
#include "memstream.h"
#include "slots.h"
#include "vm.h"

/* Says where there is something, so that the next try can be right. */
static int refuse_span(const VM *vm, Span asked, const SpanSet *there, const char *what,
                       sd_bus_error *error) {
        _cleanup_free_ char *list = NULL;
        size_t size;
        FILE *f;

        f = open_memstream(&list, &size);
        if (!f)
                return -ENOMEM;
        for (size_t i = 0; i < there->n && i < 16; i++)
                fprintf(f, "%s0x%" PRIx64 "+0x%" PRIx64, i > 0 ? ", " : "", there->spans[i].gpa,
                        there->spans[i].size);
        if (there->n > 16)
                fputs(", ...", f);
        if (memstream_close(f, &list) < 0)
                return -ENOMEM;
        return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                 "range 0x%" PRIx64 "+0x%" PRIx64
                                 " has no %s memory of VM \"%s\": there is %s",
                                 asked.gpa, asked.size, what, vm->name, list);
}

/* What there is to work on.  Only what was built is healed: all else is not asked for. */
static int find_memory(VM *vm, JobType type, const VMOptions *o, SpanSet *ret, sd_bus_error *error) {
        _cleanup_(slots_done) Slots slots = {};
        _cleanup_(spanset_done) SpanSet set = {};
        const SpanSet *there = type == JOB_HEAL ? &vm->built : &slots.all;
        Span asked = {};
        int r, has_span;

        has_span = options_get_span(o, &asked, error);
        if (has_span < 0)
                return has_span;
        r = slots_read(vm->handle, &slots);
        if (r == -ESRCH)
                return sd_bus_error_setf(error, TDP_ERROR_NO_SUCH_PROCESS, "the VM or its VMM has gone");
        if (r < 0)
                return sd_bus_error_setf(error, TDP_ERROR_FAILED, "the VM's slots cannot be read: %s",
                                         strerror(-r));
        if (there->n == 0)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID, "VM \"%s\" has no %s memory", vm->name,
                                         type == JOB_HEAL ? "built" : "writable");

        for (size_t i = 0; i < there->n && r >= 0; i++)
                r = spanset_add(&set, has_span ? span_intersect(there->spans[i], asked) : there->spans[i]);
        if (r < 0)
                return r;
        if (set.n == 0)
                return refuse_span(vm, asked, there, type == JOB_HEAL ? "built" : "writable", error);
        *ret = set;
        set = (SpanSet){};
        return has_span;
}

int bus_vm_start_range_job(VM *vm, sd_bus_message *message, JobType type, sd_bus_error *error) {
        _cleanup_(spanset_done) SpanSet within = {};
        VMOptions options;
        Caller caller;
        bool all;
        Job *j;
        int r;

        r = options_read(message, type == JOB_HEAL ? OPTION_HEAL : OPTION_SPLIT, &options, error);
        if (r < 0)
                return r;
        if (type == JOB_SPLIT && options.max_level > 2)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "a split to max-level %" PRIu32
                                         " (1G) would do nothing: use 2 (2M), or 1 or 0 (4K)",
                                         options.max_level);
        r = auth_get_changer(vm, message, &caller, error);
        if (r != 0)
                return r;

        if (vm->releasing || (vm->state != VM_ATTACHED && vm->state != VM_BUILT && vm->state != VM_HEALING))
                return sd_bus_error_setf(
                                error, TDP_ERROR_BUSY,
                                "VM \"%s\" is %s: this can be done when it is attached, built or healing",
                                vm->name, vm_state_to_string(vm->state));
        r = vm_check_build(vm, type, error);
        if (r >= 0)
                r = handoff_check_build(vm, error);
        if (r < 0)
                return r;
        r = find_memory(vm, type, &options, &within, error);
        if (r < 0)
                return r;

        all = r == 0 && type != JOB_HEAL;
        r = vm_start_build(vm, caller.uid, type, type == JOB_HEAL ? vm->heal_level : options.max_level,
                           all ? NULL : &within, &j, error);
        if (r < 0)
                return r;
        bus_job_added(j);
        return sd_bus_reply_method_return(message, "o", j->path);
}
