/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What dirty logging costs a VM's vCPUs when it is switched on, and what is left of its large leaves when it
 * is switched off again. With our modules VMs are built, with others they are mapped on demand. See
 * ../README.md.
 */

#include <inttypes.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "bench.h"

#define EAGER_SPLIT "/sys/module/kvm/parameters/eager_page_split"

/* How a VM comes to be mapped before dirty logging is switched on. */
typedef struct Variant {
        const char *name;
        int level;     /* size of the pages that its memory is made of */
        bool built;    /* needs our modules; the others need KVM to be without them */
        int max_level; /* of the build */
        bool split;    /* ahead of time */
        bool lazy;     /* KVM is told not to split when dirty logging is switched on, but when vCPUs write */
} Variant;

static const Variant variants[] = {
        { .name = "on-demand", .level = LEVEL_2M },
        { .name = "on-demand-lazy", .level = LEVEL_2M, .lazy = true },
        { .name = "on-demand-4k", .level = LEVEL_4K },
        { .name = "on-demand", .level = LEVEL_1G },
        { .name = "built", .level = LEVEL_2M, .built = true },
        { .name = "built-split", .level = LEVEL_2M, .built = true, .split = true },
        { .name = "built-4k", .level = LEVEL_2M, .built = true, .max_level = LEVEL_4K },
        { .name = "built", .level = LEVEL_1G, .built = true },
        { .name = "built-split", .level = LEVEL_1G, .built = true, .split = true },
        { .name = "built-4k", .level = LEVEL_1G, .built = true, .max_level = LEVEL_4K },
};

/* What the vCPU has gone through while it wrote to the memory. */
typedef struct Pass {
        uint64_t ticks, faults, exits;
} Pass;

static struct {
        const char *json;
        bool quick;
        unsigned repeat;
        uint64_t size; /* of guests with pages up to 2M */
} arg = {
        .repeat = 5,
        .size = UINT64_C(64) << 20,
};

static void set_eager_split(bool on) {
        FILE *f = fopen(EAGER_SPLIT, "we");

        if (!f || fputc(on ? 'Y' : 'N', f) == EOF || fclose(f) != 0)
                die(EAGER_SPLIT);
}

/* Of a leaf of 1G, enough pages to tell; of smaller ones all. */
static uint64_t step_of(const Variant *v) {
        return v->level == LEVEL_1G ? UINT64_C(64) << 10 : level_size(LEVEL_4K);
}

static Pass write_to_all(Guest *g, const Variant *v) {
        Pass before = { .faults = guest_faults(g, 0), .exits = guest_exits(g, 0) };
        uint64_t t = start_ticks();

        guest_touch_every(g, 0, step_of(v));
        return (Pass){
                .ticks = ticks() - t,
                .faults = guest_faults(g, 0) - before.faults,
                .exits = guest_exits(g, 0) - before.exits,
        };
}

static uint64_t set_dirty_log(Guest *g, bool on) {
        uint64_t t = start_ticks();

        guest_set_slot(g, 0, 0, g->size, g->memory, on ? KVM_MEM_LOG_DIRTY_PAGES : 0);
        return ticks() - t;
}

static void protect_by_hand(Guest *g) {
        struct kvm_enable_cap cap = {
                .cap = KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
                .args = { KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE | KVM_DIRTY_LOG_INITIALLY_SET },
        };

        if (ioctl(g->vm_fd, KVM_ENABLE_CAP, &cap) < 0)
                die("KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2");
}

/* The pages that were written to since the log was read before. */
static uint64_t *get_dirty_log(Guest *g, uint64_t *ret_pages) {
        uint64_t words = g->size / level_size(LEVEL_4K) / 64, pages = 0;
        struct kvm_dirty_log log = { .dirty_bitmap = calloc(words, sizeof(uint64_t)) };
        const uint64_t *bitmap = log.dirty_bitmap;

        if (!bitmap || ioctl(g->vm_fd, KVM_GET_DIRTY_LOG, &log) < 0)
                die("KVM_GET_DIRTY_LOG");
        for (uint64_t i = 0; i < words; i++)
                pages += (uint64_t) __builtin_popcountll(bitmap[i]);
        *ret_pages = pages;
        return log.dirty_bitmap;
}

/* As a VMM that has asked for it does before it sends all of the memory for the first time. */
static uint64_t clear_dirty_log(Guest *g) {
        uint64_t pages, t, *bitmap = get_dirty_log(g, &pages);
        struct kvm_clear_dirty_log clear = {
                .num_pages = (uint32_t) (g->size / level_size(LEVEL_4K)),
                .dirty_bitmap = bitmap,
        };

        if (pages != clear.num_pages)
                die_text("%" PRIu64 " of %u pages are dirty initially", pages, clear.num_pages);
        t = start_ticks();
        if (ioctl(g->vm_fd, KVM_CLEAR_DIRTY_LOG, &clear) < 0)
                die("KVM_CLEAR_DIRTY_LOG");
        t = ticks() - t;
        free(bitmap);
        return t;
}

/* Maps all of the memory, and returns the handle or -1. */
static int prepare(Guest *g, const Variant *v) {
        int handle_fd;

        if (!v->built) {
                write_to_all(g, v);
                return -1;
        }
        handle_fd = gtdp_attach(g);
        gtdp_build(handle_fd, g, v->max_level);
        if (v->split)
                gtdp_split(handle_fd, g);
        return handle_fd;
}

static void print_leaves(FILE *f, const char *name, Guest *g) {
        fprintf(f, ", \"%s\": {\"4K\": %lu, \"2M\": %lu, \"1G\": %lu}", name, guest_leaves(g, LEVEL_4K),
                guest_leaves(g, LEVEL_2M), guest_leaves(g, LEVEL_1G));
}

static void print_pass(FILE *f, const char *name, const Pass *p, double scale) {
        fprintf(f, ", \"%s\": {\"instructions\": %.0f, \"faults\": %" PRIu64 ", \"exits\": %" PRIu64 "}",
                name, (double) p->ticks / scale, p->faults, p->exits);
}

static void measure(const Variant *v, bool manual, double scale, FILE *f) {
        uint64_t enable, clear = 0, disable, dirty, writes;
        int handle_fd;
        Pass pass;
        Guest g;

        guest_new(&g, v->level, v->level == LEVEL_1G ? level_size(LEVEL_1G) : arg.size, 1);
        writes = g.size / step_of(v);
        guest_populate(&g, false);
        set_eager_split(!v->lazy);
        if (manual)
                protect_by_hand(&g);
        handle_fd = prepare(&g, v);

        fprintf(f, "{\"variant\": \"%s\", \"page_size\": %lu, \"manual\": %s, \"writes\": %" PRIu64, v->name,
                level_size(v->level), manual ? "true" : "false", writes);
        print_leaves(f, "leaves_before", &g);

        enable = set_dirty_log(&g, true);
        if (manual)
                clear = clear_dirty_log(&g);
        print_leaves(f, "leaves_enabled", &g);
        pass = write_to_all(&g, v);
        print_pass(f, "first_pass", &pass, scale);
        pass = write_to_all(&g, v);
        print_pass(f, "second_pass", &pass, scale);

        free(get_dirty_log(&g, &dirty));
        if (dirty != writes)
                die_text("%s: the guest has written to %" PRIu64 " pages, but %" PRIu64 " are in the log",
                         v->name, writes, dirty);

        disable = set_dirty_log(&g, false);
        print_leaves(f, "leaves_disabled", &g);
        pass = write_to_all(&g, v);
        print_pass(f, "pass_after", &pass, scale);
        print_leaves(f, "leaves_after", &g);
        fprintf(f,
                ", \"enable_instructions\": %.0f, \"clear_instructions\": %.0f, \"disable_instructions\": %.0f",
                (double) enable / scale, (double) clear / scale, (double) disable / scale);
        if (handle_fd >= 0)
                fprintf(f, ", \"lost_bytes\": %" PRIu64, gtdp_lost(handle_fd));
        fputs("}", f);
        fflush(f);

        if (handle_fd >= 0)
                close(handle_fd);
        guest_free(&g);
        set_eager_split(true);
}

static void usage(FILE *f) {
        fputs("Usage: dirty-log-bench [OPTION]...\n\n"
              "  --quick        fewer runs, with less memory; a single one with 1G pages\n"
              "  --json FILE    write the results of each run to FILE, instead of stdout\n",
              f);
}

static void set_option(int option) {
        switch (option) {
        case 'q':
                arg.quick = true;
                arg.repeat = 3;
                arg.size = UINT64_C(32) << 20;
                break;
        case 'j':
                arg.json = optarg;
                break;
        }
}

int main(int argc, char **argv) {
        static const struct option options[] = {
                { "quick", no_argument, NULL, 'q' },
                { "json", required_argument, NULL, 'j' },
                { "help", no_argument, NULL, 'h' },
                {},
        };
        bool built, first = true;
        FILE *f;
        double scale;

        parse_options(argc, argv, options, usage, set_option);
        f = open_results(arg.json) ?: stdout;

        built = have_gtdp();
        scale = ticks_per_instruction();
        for (unsigned i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
                /* There is a lot of work in a leaf of 1G. */
                bool once = arg.quick && variants[i].level == LEVEL_1G;

                if (variants[i].built != built)
                        continue;
                for (unsigned manual = 0; manual < (once ? 1 : 2); manual++)
                        for (unsigned run = 0; run < (once ? 1 : arg.repeat); run++) {
                                fputs(first ? "[\n" : ",\n", f);
                                first = false;
                                measure(&variants[i], manual, scale, f);
                        }
        }
        fputs("\n]\n", f);
        if (fclose(f) != 0)
                die(arg.json ?: "stdout");
        return EXIT_SUCCESS;
}
