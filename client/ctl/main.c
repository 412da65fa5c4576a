/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* tdpctl: the command line of tdpd. */

#include <stdio.h>
#include <string.h>

#include "daemon.h"
#include "log.h"
#include "pager.h"
#include "suggest.h"
#include "verbs.h"

static void help(void) {
        printf("tdpctl [OPTIONS] VERB ...\n\n"
               "Builds, pins and keeps second-level mappings (EPT, NPT) of virtual machines.\n\n"
               "Verbs:\n");
        for (size_t i = 0; i < n_verbs; i++) {
                const struct verb *v = &verbs[i];
                char left[64];

                if (v->hidden)
                        continue;
                (void) snprintf(left, sizeof(left), "%s %s", v->name,
                                v->command || strlen(v->arguments) > 16 ? "..." : v->arguments);
                printf("  %-19s %s\n", left, v->help);
        }
        printf("\nOptions:\n");
        args_print_help(stdout, args_global_mask());
        printf("\n\"tdpctl VERB --help\" shows a verb's own options; tdpctl(1) has the rest.\n");
}

static void help_verb(const struct verb *v) {
        printf("tdpctl %s%s%s%s\n\n%s.\n", v->name,
               v->options && !v->command && v->arguments[0] != '-' ? " [OPTIONS]" : "",
               v->arguments[0] ? " " : "", v->arguments, v->help);
        if (v->options) {
                printf("\nOptions:\n");
                args_print_help(stdout, v->options & ~OPT_BIT(OPT_INCOMING));
        }
        printf("\nGlobal options:\n");
        args_print_help(stdout, args_global_mask());
        if (v->notes)
                printf("\n%s\n", v->notes);
}

static int unknown_verb(const char *word) {
        const char *meant = suggest(word, &verbs[0].name, n_verbs, sizeof(verbs[0]));

        if (meant)
                (void) log_error(0, "Unknown verb \"%s\". Did you mean \"%s\"?", word, meant);
        else
                (void) log_error(0, "Unknown verb \"%s\". \"tdpctl --help\" lists them.", word);
        return EXIT_USAGE;
}

static int check_n_args(const struct verb *v, const struct args *args) {
        const char *space = v->arguments[0] ? " " : "";

        if (args->n_positional < v->min_args)
                return log_error(-EINVAL, "\"%s\" needs more arguments: tdpctl %s%s%s", v->name, v->name,
                                 space, v->arguments);
        if (v->max_args >= 0 && args->n_positional > v->max_args)
                return log_error(-EINVAL, "\"%s\" is one argument too many: tdpctl %s%s%s",
                                 args->positional[v->max_args], v->name, space, v->arguments);
        return 0;
}

/* Whoever closes a pipe early knows what they do; a full disk is another thing. */
static int flush_output(int r) {
        if (fflush(stdout) != 0 && errno != EPIPE && r == EXIT_OK)
                return log_error(EXIT_FAILED, "Output could not be written: %s", strerror(errno));
        return r;
}

static int version(void) {
        puts("tdpctl " TDP_VERSION);
        return flush_output(EXIT_OK);
}

int main(int argc, char **argv) {
        struct args args = {};
        const struct verb *v;
        int first, r;

        first = args_parse_global(&args, argc, argv);
        if (first < 0)
                return EXIT_USAGE;
        if (args.version)
                return version();
        if (args.help && first == argc) {
                help();
                return flush_output(EXIT_OK);
        }
        if (first == argc) {
                (void) log_error(0, "A verb is missing. \"tdpctl --help\" lists them.");
                return EXIT_USAGE;
        }

        if (strcmp(argv[first], "help") == 0) {
                help();
                return flush_output(EXIT_OK);
        }
        v = verb_find(argv[first]);
        if (!v)
                return unknown_verb(argv[first]);

        r = args_parse_verb(&args, argc - first, argv + first, v->options, v->command);
        if (r < 0)
                return v->failure;
        if (args.version)
                return version();
        if (args.help) {
                help_verb(v);
                return flush_output(EXIT_OK);
        }
        if (check_n_args(v, &args) < 0)
                return v->failure;

        if (args.quiet)
                log_set_quiet();
        if (v->pager && !args.no_pager)
                pager_open();
        r = flush_output(v->run(&args));
        pager_close();
        return r;
}
