/* SPDX-License-Identifier: LGPL-2.1-or-later */

/*
 * Statistics of a run. The kernel's counters go with QEMU's address space, so they are read while QEMU
 * lives: at regular times, and once more when it says that the guest has ended. A guest that ends QEMU
 * without a word (isa-debug-exit) is seen as of the last regular look.
 */

#include <string.h>
#include <time.h>

#include "cleanup.h"
#include "json.h"
#include "log.h"
#include "run.h"

#define INTERVAL_USEC UINT64_C(200000)
/* The kernel walks the page table for each look: that may take a twentieth of the time, not more. */
#define COST_FACTOR         20
#define SAMPLE_TIMEOUT_USEC UINT64_C(2000000)

static uint64_t now_usec(void) {
        struct timespec ts;

        (void) clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

void run_stats_init(struct run_stats *s, bool wanted) {
        *s = (struct run_stats){ .wanted = wanted };
}

void run_stats_done(struct run_stats *s) {
        if (s->vm)
                json_object_put(s->vm);
        s->vm = NULL;
}

void run_stats_guest_started(struct run_stats *s) {
        s->start_usec = now_usec();
}

void run_stats_guest_ended(struct run_stats *s) {
        if (s->end_usec == 0)
                s->end_usec = now_usec();
}

int run_stats_due_msec(const struct run_stats *s) {
        uint64_t now = now_usec();

        if (!s->wanted)
                return -1;
        return now >= s->next_usec ? 0 : (int) ((s->next_usec - now + 999) / 1000);
}

void run_stats_sample(struct run_stats *s, struct tdp_ctx *ctx, struct tdp_vm *vm, struct qemu *qemu) {
        uint64_t before = now_usec(), cost, built;
        int r;

        if (!s->wanted || !vm || qemu_has_ended(qemu))
                return;

        tdp_set_timeout(ctx, SAMPLE_TIMEOUT_USEC);
        r = tdp_vm_refresh(vm);
        tdp_set_timeout(ctx, 0);

        cost = COST_FACTOR * (now_usec() - before);
        s->next_usec = now_usec() + (cost > INTERVAL_USEC ? cost : INTERVAL_USEC);

        /* What is read while QEMU goes may be zero already. */
        if (r < 0 || qemu_has_ended(qemu))
                return;
        built = tdp_value_get_uint(tdp_value_find(tdp_vm_get_properties(vm), "BuiltBytes"));
        if (built == 0 && s->built_bytes > 0)
                return;

        run_stats_done(s);
        s->vm = json_from_vm(vm);
        s->built_bytes = built;
        s->at_shutdown = s->end_usec > 0;
        s->n_samples++;
}

static uint64_t get(json_object *vm, const char *key) {
        json_object *v;

        return json_object_object_get_ex(vm, key, &v) ? json_object_get_uint64(v) : 0;
}

static json_object *to_json(const struct run_stats *s, const char *name, const struct qemu *qemu) {
        json_object *o = json_object_new_object(), *leaves, *process;

        json_add_string(o, "name", name);
        json_add_uint(o, "populate_ns", get(s->vm, "populate_usec") * 1000);
        json_add_uint(o, "build_ns", get(s->vm, "build_usec") * 1000);
        json_add_uint(o, "guest_ns",
                      s->start_usec > 0 && s->end_usec > s->start_usec ? (s->end_usec - s->start_usec) * 1000
                                                                       : 0);
        json_add_uint(o, "pinned_bytes", get(s->vm, "pinned_bytes"));
        json_add_uint(o, "mapped_bytes", get(s->vm, "mapped_bytes"));
        json_add_uint(o, "faults", get(s->vm, "faults_since_build"));
        json_add_uint(o, "faults_other", get(s->vm, "faults_other"));

        leaves = json_object_new_object();
        json_add_uint(leaves, "4k", get(s->vm, "leaves_4k"));
        json_add_uint(leaves, "2m", get(s->vm, "leaves_2m"));
        json_add_uint(leaves, "1g", get(s->vm, "leaves_1g"));
        json_object_object_add(o, "leaves", leaves);

        process = json_object_new_object();
        json_add_uint(process, "pid", (uint64_t) qemu->pid);
        json_add_uint(process, "exit_code", (uint64_t) qemu->code);
        json_object_object_add(process, "signaled", json_object_new_boolean(qemu->signaled));
        json_object_object_add(o, "qemu", process);

        json_add_uint(o, "samples", s->n_samples);
        json_object_object_add(o, "sampled_at_shutdown", json_object_new_boolean(s->at_shutdown));
        json_object_object_add(o, "vm", json_object_get(s->vm));
        return o;
}

int run_stats_output(const struct run_stats *s, const struct args *args, const struct qemu *qemu) {
        int r;

        if (args_given(args, OPT_STATS_FILE)) {
                r = json_write_file(args->stats_file, to_json(s, args->name, qemu));
                if (r < 0)
                        return log_error(r, "Statistics could not be written to \"%s\": %s",
                                         args->stats_file, strerror(-r));
        }
        return args->json != JSON_OFF ? json_print(args, to_json(s, args->name, qemu)) : 0;
}
