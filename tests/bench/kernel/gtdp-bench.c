/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Counts the instructions that the host spends on a VM's second-level page tables, for each way to fill
 * them. Static, so that it runs on any emulated host. See README.md for what is measured, and how.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define REPEAT_MAX 15U

typedef enum Method {
        METHOD_ONDEMAND,
        METHOD_TOUCH_FIRST,
        METHOD_PRE_FAULT_MEMORY,
        METHOD_GTDP,
        _METHOD_MAX,
} Method;

static const char *const method_table[_METHOD_MAX] = {
        [METHOD_ONDEMAND] = "ondemand",
        [METHOD_TOUCH_FIRST] = "touch-first",
        [METHOD_PRE_FAULT_MEMORY] = "pre-fault-memory",
        [METHOD_GTDP] = "gtdp",
};

static const char *const level_table[] = {
        [LEVEL_4K] = "4K",
        [LEVEL_2M] = "2M",
        [LEVEL_1G] = "1G",
};

typedef struct Result {
        uint64_t leaves, populate, build, guest, faults;
        double per_leaf;
} Result;

static struct {
        const char *arch, *json;
        int method, level; /* -1 and 0: all of them */
        bool foreign, elsewhere;
        unsigned repeat;
        uint64_t size;
} arg = {
        .arch = "unknown",
        .method = -1,
        .repeat = 3,
        .size = UINT64_C(256) << 20,
};

static uint64_t touch_ticks(Guest *g, unsigned vcpu) {
        uint64_t start = ticks();

        guest_touch(g, vcpu);
        return ticks() - start;
}

/* Enough 2M leaves to average over, whatever has been asked for at 4K: they are cheap to populate. */
static uint64_t guest_size(int level) {
        switch (level) {
        case LEVEL_2M:
                return 128 * level_size(LEVEL_2M);
        case LEVEL_1G:
                return level_size(LEVEL_1G);
        default:
                return arg.size;
        }
}

/* What the fields mean is in README.md. */
static Result measure(Method method, int level, double scale) {
        unsigned n_vcpus = method == METHOD_TOUCH_FIRST ? 2 : 1, vcpu = n_vcpus - 1;
        uint64_t populate, build = 0, guest, floor, faults, cost;
        int handle_fd = -1;
        Result result;
        Guest g;

        guest_new(&g, level, guest_size(level), n_vcpus);
        populate = ticks();
        guest_populate(&g, arg.elsewhere);
        populate = ticks() - populate;

        if (method == METHOD_TOUCH_FIRST)
                build = touch_ticks(&g, 0);
        else if (method == METHOD_PRE_FAULT_MEMORY)
                build = build_pre_fault(&g);
        else if (method == METHOD_GTDP) {
                handle_fd = gtdp_attach(&g);
                build = arg.foreign ? gtdp_build_foreign(handle_fd, &g) : gtdp_build(handle_fd, &g, 0);
        }

        faults = guest_faults(&g, vcpu);
        guest = touch_ticks(&g, vcpu);
        faults = guest_faults(&g, vcpu) - faults;
        floor = touch_ticks(&g, vcpu);

        switch (method) {
        case METHOD_ONDEMAND:
                cost = guest - floor;
                break;
        case METHOD_TOUCH_FIRST:
                cost = build - floor;
                break;
        default:
                cost = build;
        }

        result = (Result){
                .leaves = guest_leaves(&g, level),
                .populate = (uint64_t) ((double) populate / scale),
                .build = (uint64_t) ((double) build / scale),
                .guest = (uint64_t) ((double) guest / scale),
                .faults = faults,
        };
        if (result.leaves == 0)
                die_text("%s at %s: KVM has no leaf of that size", method_table[method], level_table[level]);
        if (handle_fd >= 0 && gtdp_leaves(handle_fd, level) != result.leaves)
                die_text("%s at %s: the handle counts %lu leaves, KVM %lu", method_table[method],
                         level_table[level], gtdp_leaves(handle_fd, level), result.leaves);
        result.per_leaf = (double) cost / scale / (double) result.leaves;

        if (handle_fd >= 0)
                close(handle_fd);
        guest_free(&g);
        return result;
}

static int compare(const void *a, const void *b) {
        double x = ((const Result *) a)->per_leaf, y = ((const Result *) b)->per_leaf;

        return x < y ? -1 : x > y;
}

/* The median: one timer interrupt is a lot among few leaves. */
static Result measure_median(Method method, int level, double scale) {
        Result results[REPEAT_MAX];

        for (unsigned i = 0; i < arg.repeat; i++)
                results[i] = measure(method, level, scale);
        qsort(results, arg.repeat, sizeof(Result), compare);
        return results[arg.repeat / 2];
}

/* Why a combination cannot be measured here, or NULL. */
static const char *missing(Method method, int level) {
        if (level > LEVEL_4K && free_pages(level) < guest_size(level) / level_size(level))
                return "not enough free huge pages";
        if (method == METHOD_PRE_FAULT_MEMORY && !have_pre_fault())
                return "this kernel has no KVM_PRE_FAULT_MEMORY";
        if (method == METHOD_GTDP && !have_gtdp())
                return "no /dev/kvm-gtdp";
        return NULL;
}

static void print_json(FILE *f, bool first, Method method, int level, const Result *r) {
        fprintf(f,
                "%s\n  {\"arch\": \"%s\", \"method\": \"%s\", \"page_size\": %lu, \"leaves\": %lu, "
                "\"populate_instructions\": %lu, \"build_instructions\": %lu, \"guest_instructions\": %lu, "
                "\"instructions_per_leaf\": %.1f}",
                first ? "[" : ",", arg.arch, method_table[method], level_size(level), r->leaves, r->populate,
                r->build, r->guest, r->per_leaf);
}

static void run(FILE *json) {
        double scale = ticks_per_instruction();
        bool first = true;

        printf("%s: %.3f ticks per instruction, median of %u\n\n", arg.arch, scale, arg.repeat);
        printf("%-17s %4s %8s %14s %14s %14s %8s %12s\n", "method", "page", "leaves", "populate", "build",
               "guest", "faults", "per leaf");

        for (int level = LEVEL_4K; level <= LEVEL_1G; level++)
                for (Method method = 0; method < _METHOD_MAX; method++) {
                        const char *why;
                        Result r;

                        if ((arg.level > 0 && arg.level != level) ||
                            (arg.method >= 0 && arg.method != (int) method))
                                continue;
                        why = missing(method, level);
                        if (why) {
                                printf("%-17s %4s skipped: %s\n", method_table[method], level_table[level],
                                       why);
                                continue;
                        }
                        r = measure_median(method, level, scale);
                        printf("%-17s %4s %8lu %14lu %14lu %14lu %8lu %12.1f\n", method_table[method],
                               level_table[level], r.leaves, r.populate, r.build, r.guest, r.faults,
                               r.per_leaf);
                        fflush(stdout);
                        if (json)
                                print_json(json, first, method, level, &r);
                        first = false;
                }

        if (json)
                fputs(first ? "[]\n" : "\n]\n", json);
        if (first)
                die_text("nothing could be measured");
}

static void usage(FILE *f) {
        fputs("Usage: gtdp-bench [OPTION]...\n\n"
              "  --method METHOD    ondemand, touch-first, pre-fault-memory or gtdp (default: all)\n"
              "  --page-size SIZE   4K, 2M or 1G (default: all)\n"
              "  --size MIB         memory of the guest with 4K pages (default: 256)\n"
              "  --repeat N         take the median of N runs (default: 3)\n"
              "  --foreign          gtdp: build from a process that has not the memory mapped\n"
              "  --elsewhere        populate through another mapping of the same file, as tdpd does\n"
              "  --arch NAME        what the results say of the host\n"
              "  --json FILE        write the results to FILE\n",
              f);
}

static void set_option(int option) {
        switch (option) {
        case 'm':
                arg.method = parse_choice(method_table, 0, _METHOD_MAX, "--method", optarg);
                break;
        case 'p':
                arg.level = parse_choice(level_table, LEVEL_4K, LEVEL_1G + 1, "--page-size", optarg);
                break;
        case 's':
                arg.size = (uint64_t) parse_number("--size", optarg, 2, 2048) << 20;
                if (arg.size % level_size(LEVEL_2M) != 0) {
                        fprintf(stderr, "gtdp-bench: --size '%s': an even number is needed\n", optarg);
                        exit(2);
                }
                break;
        case 'r':
                arg.repeat = parse_number("--repeat", optarg, 1, REPEAT_MAX);
                break;
        case 'f':
                arg.foreign = true;
                break;
        case 'e':
                arg.elsewhere = true;
                break;
        case 'a':
                arg.arch = optarg;
                break;
        case 'j':
                arg.json = optarg;
                break;
        }
}

int main(int argc, char **argv) {
        static const struct option options[] = {
                { "method", required_argument, NULL, 'm' }, { "page-size", required_argument, NULL, 'p' },
                { "size", required_argument, NULL, 's' },   { "repeat", required_argument, NULL, 'r' },
                { "foreign", no_argument, NULL, 'f' },      { "elsewhere", no_argument, NULL, 'e' },
                { "arch", required_argument, NULL, 'a' },   { "json", required_argument, NULL, 'j' },
                { "help", no_argument, NULL, 'h' },         {},
        };
        FILE *json;

        parse_options(argc, argv, options, usage, set_option);
        json = open_results(arg.json);
        run(json);
        if (json && fclose(json) != 0)
                die(arg.json);
        return EXIT_SUCCESS;
}
