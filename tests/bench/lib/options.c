/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Options, and their values. What is wrong ends the program with status 2. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

void parse_options(int argc, char **argv, const struct option *options, void (*usage)(FILE *f),
                   void (*set)(int option)) {
        int c;

        while ((c = getopt_long(argc, argv, "h", options, NULL)) >= 0) {
                if (c == '?') {
                        usage(stderr);
                        exit(2);
                }
                if (c == 'h') {
                        usage(stdout);
                        exit(EXIT_SUCCESS);
                }
                set(c);
        }
        if (optind < argc) {
                fprintf(stderr, "%s: unexpected argument '%s'\n", program_invocation_short_name,
                        argv[optind]);
                exit(2);
        }
}

FILE *open_results(const char *path) {
        FILE *f;

        if (!path)
                return NULL;
        f = fopen(path, "we");
        if (!f)
                die(path);
        return f;
}

int parse_choice(const char *const *table, int begin, int end, const char *option, const char *value) {
        for (int i = begin; i < end; i++)
                if (strcmp(table[i], value) == 0)
                        return i;

        fprintf(stderr, "%s: %s '%s': must be one of", program_invocation_short_name, option, value);
        for (int i = begin; i < end; i++)
                fprintf(stderr, " %s", table[i]);
        fputc('\n', stderr);
        exit(2);
}

unsigned parse_number(const char *option, const char *value, unsigned min, unsigned max) {
        char *end;
        unsigned long n;

        errno = 0;
        n = strtoul(value, &end, 10);
        if (errno || end == value || *end || *value == '-' || n < min || n > max) {
                fprintf(stderr, "%s: %s '%s': a number from %u to %u is needed\n",
                        program_invocation_short_name, option, value, min, max);
                exit(2);
        }
        return (unsigned) n;
}
