/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Counts the instructions of what KVM does often, for a VM without a global mapping. See ../README.md. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loops.h"

#define ROUNDS_MAX 99U
#define WARM_UP    3U

static struct {
        const char *json, *loop;
        bool quick;
        uint64_t size; /* of a guest with 4K pages */
} arg = {
        .size = UINT64_C(16) << 20,
};

/* Large pages are fewer for that, but enough to average over. */
static uint64_t guest_size(int level) {
        return level == LEVEL_4K ? arg.size : 8 * arg.size;
}

static int compare(const void *a, const void *b) {
        double x = *(const double *) a, y = *(const double *) b;

        return x < y ? -1 : x > y;
}

/* Returns whether there was something to measure. */
static bool run_loop(const Loop *loop, double scale, FILE *json, bool first) {
        unsigned rounds = arg.quick ? loop->rounds_quick : loop->rounds;
        double results[ROUNDS_MAX];
        uint64_t ops;
        Bed b;

        if (rounds == 0 || (arg.loop && strcmp(arg.loop, loop->name) != 0))
                return false;

        bed_new(&b, loop->level, guest_size(loop->level));
        for (unsigned i = 0; i < WARM_UP; i++)
                loop->round(&b, &ops);
        for (unsigned i = 0; i < rounds; i++)
                results[i] = (double) loop->round(&b, &ops) / scale / (double) ops;
        bed_free(&b);

        qsort(results, rounds, sizeof(double), compare);
        printf("%-22s %10lu %8lu %8u %14.1f %14.1f %14.1f\n", loop->name, level_size(loop->level), ops,
               rounds, results[0], results[rounds / 2], results[rounds - 1]);
        fflush(stdout);
        if (json)
                fprintf(json,
                        "%s\n  {\"loop\": \"%s\", \"page_size\": %lu, \"ops\": %lu, \"rounds\": %u, "
                        "\"instructions_per_op\": %.1f, \"median\": %.1f, \"most\": %.1f}",
                        first ? "[" : ",", loop->name, level_size(loop->level), ops, rounds, results[0],
                        results[rounds / 2], results[rounds - 1]);
        return true;
}

static void usage(FILE *f) {
        fputs("Usage: off-bench [OPTION]...\n\n"
              "  --loop NAME    one of them only\n"
              "  --quick        few of them, in few rounds\n"
              "  --size MIB     memory of a guest with 4K pages (default: 16); with 2M pages it is 8 times as much\n"
              "  --json FILE    write the results to FILE\n",
              f);
}

static void set_option(int option) {
        switch (option) {
        case 'l':
                arg.loop = optarg;
                break;
        case 'q':
                arg.quick = true;
                break;
        case 's':
                arg.size = (uint64_t) parse_number("--size", optarg, 2, 32) << 20;
                break;
        case 'j':
                arg.json = optarg;
                break;
        }
}

int main(int argc, char **argv) {
        static const struct option options[] = {
                { "loop", required_argument, NULL, 'l' }, { "quick", no_argument, NULL, 'q' },
                { "size", required_argument, NULL, 's' }, { "json", required_argument, NULL, 'j' },
                { "help", no_argument, NULL, 'h' },       {},
        };
        FILE *json;
        bool first = true;
        double scale;

        parse_options(argc, argv, options, usage, set_option);
        json = open_results(arg.json);

        scale = ticks_per_instruction();
        printf("%-22s %10s %8s %8s %14s %14s %14s\n", "loop", "page", "ops", "rounds", "least", "median",
               "most");
        for (unsigned i = 0; i < n_loops; i++)
                if (run_loop(&loops[i], scale, json, first))
                        first = false;
        if (first)
                die_text("nothing could be measured");

        if (json) {
                fputs("\n]\n", json);
                if (fclose(json) != 0)
                        die(arg.json);
        }
        return EXIT_SUCCESS;
}
