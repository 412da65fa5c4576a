/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The option table, and the parser that reads it. */

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cleanup.h"
#include "log.h"
#include "size.h"
#include "suggest.h"

enum kind {
        KIND_FLAG,
        KIND_STRING,
        KIND_SIZE,
        KIND_UINT,
        KIND_LEVEL,
        KIND_RANGE,
        KIND_SECONDS,
        KIND_JSON,
};

struct opt_def {
        const char *name;
        char letter;
        bool global;
        enum kind kind;
        size_t offset;
        const char *metavar;
        const char *help;
};

#define FIELD(f) offsetof(struct args, f)

static const struct opt_def defs[_OPT_MAX] = {
        [OPT_HELP] = { "help", 'h', true, KIND_FLAG, FIELD(help), NULL, "Show this, or a verb's own help" },
        [OPT_VERSION] = { "version", 0, true, KIND_FLAG, FIELD(version), NULL, "Show the version" },
        [OPT_HOST] = { "host", 'H', true, KIND_STRING, FIELD(host), "[USER@]HOST",
                       "Talk to the tdpd of that host, over SSH" },
        [OPT_JSON] = { "json", 0, true, KIND_JSON, FIELD(json), "MODE",
                       "Output as JSON: short, pretty (default) or off" },
        [OPT_NO_PAGER] = { "no-pager", 0, true, KIND_FLAG, FIELD(no_pager), NULL,
                           "Do not pipe output into a pager" },
        [OPT_NO_LEGEND] = { "no-legend", 0, true, KIND_FLAG, FIELD(no_legend), NULL,
                            "No headers and footers in tables" },
        [OPT_QUIET] = { "quiet", 'q', true, KIND_FLAG, FIELD(quiet), NULL,
                        "No progress and no remarks, errors only" },
        [OPT_DEBUG] = { "debug", 0, true, KIND_FLAG, FIELD(debug), NULL, "Log what the library does" },
        [OPT_NAME] = { "name", 0, false, KIND_STRING, FIELD(name), "NAME", "The VM's name for tdpd" },
        [OPT_MEMORY] = { "memory", 'm', false, KIND_SIZE, FIELD(memory), "SIZE",
                         "The guest's memory, like 8G" },
        [OPT_PAGE_SIZE] = { "page-size", 0, false, KIND_SIZE, FIELD(page_size), "SIZE",
                            "4K, 2M or 1G; default: the largest with enough free pages" },
        [OPT_NODES] = { "nodes", 0, false, KIND_STRING, FIELD(nodes), "NODES",
                        "NUMA nodes, like 0-1,3; default: where it fits best" },
        [OPT_NUMA_MODE] = { "numa-mode", 0, false, KIND_STRING, FIELD(numa_mode), "MODE",
                            "auto (default), strict, preferred or interleave" },
        [OPT_CPUS] = { "cpus", 0, false, KIND_STRING, FIELD(cpus), "CPUS",
                       "The nodes of these CPUs, like 0-7,16" },
        [OPT_PARTS] = { "parts", 0, false, KIND_STRING, FIELD(parts), "NODE:SIZE,...",
                        "So much on each node, like 0:3G,1:1G" },
        [OPT_DECISION] = { "decision", 0, false, KIND_STRING, FIELD(decision), "WORD",
                           "auto (default), always or never build the mapping" },
        [OPT_VCPUS] = { "vcpus", 0, false, KIND_UINT, FIELD(vcpus), "N",
                        "Number of vCPUs, for the decision" },
        [OPT_BALLOON] = { "balloon", 0, false, KIND_FLAG, FIELD(balloon), NULL,
                          "It has a balloon that moves by itself" },
        [OPT_FREE_PAGE_REPORTING] = { "free-page-reporting", 0, false, KIND_FLAG, FIELD(free_page_reporting),
                                      NULL, "Its guest gives back what it does not use" },
        [OPT_DISCARD] = { "discard", 0, false, KIND_FLAG, FIELD(discard), NULL,
                          "Its VMM throws memory away" },
        [OPT_CONFIDENTIAL] = { "confidential", 0, false, KIND_FLAG, FIELD(confidential), NULL,
                               "Its memory is SEV's or TDX's" },
        [OPT_VFIO_DEVICES] = { "vfio-devices", 0, false, KIND_UINT, FIELD(vfio_devices), "N",
                               "Number of passed-through devices" },
        [OPT_VIOMMU] = { "viommu", 0, false, KIND_FLAG, FIELD(viommu), NULL,
                         "They are behind a virtual IOMMU" },
        [OPT_MIGRATIONS] = { "migrations", 0, false, KIND_UINT, FIELD(migrations), "N",
                             "How often it will probably be migrated" },
        [OPT_NO_WARM] = { "no-warm", 0, false, KIND_FLAG, FIELD(no_warm), NULL,
                          "Do not use memory that was populated ahead" },
        [OPT_WAIT] = { "wait", 0, false, KIND_SECONDS, FIELD(wait_usec), "SECONDS",
                       "Wait so long for pages if there are too few" },
        [OPT_MAX_LEVEL] = { "max-level", 0, false, KIND_LEVEL, FIELD(max_level), "LEVEL",
                            "Largest leaf: 4K, 2M, 1G, or 0 for no limit" },
        [OPT_NO_AUTO_SLOTS] = { "no-auto-slots", 0, false, KIND_FLAG, FIELD(no_auto_slots), NULL,
                                "Do not build memory slots that appear later" },
        [OPT_PID] = { "pid", 0, false, KIND_UINT, FIELD(pid), "PID", "The process that runs the VM" },
        [OPT_NO_WAIT] = { "no-wait", 0, false, KIND_FLAG, FIELD(no_wait), NULL,
                          "Do not wait until the mapping is built" },
        [OPT_STATS_FILE] = { "stats-file", 0, false, KIND_STRING, FIELD(stats_file), "FILE",
                             "Write the VM's statistics there, as JSON, when QEMU has ended" },
        [OPT_RANGE] = { "range", 0, false, KIND_RANGE, FIELD(range), "GPA+SIZE",
                        "Guest-physical memory, like 4G+512M; default: all" },
        [OPT_ROOT] = { "root", 0, false, KIND_STRING, FIELD(root), "DIR",
                       "Look below DIR, where another host's files are" },
        [OPT_DELAY] = { "delay", 'd', false, KIND_SECONDS, FIELD(delay_usec), "SECONDS",
                        "Time between two samples, like 0.5; default: 1" },
        [OPT_ITERATIONS] = { "iterations", 'n', false, KIND_UINT, FIELD(iterations), "N",
                             "End after N samples; default: no end on a terminal, else 1" },
        [OPT_BATCH] = { "batch", 'b', false, KIND_FLAG, FIELD(batch), NULL,
                        "One sample below the other, for files and pipes" },
        [OPT_ALLOW_PARTIAL] = { "allow-partial", 0, false, KIND_FLAG, FIELD(allow_partial), NULL,
                                "If not all pages can be had, keep those that can" },
        [OPT_DROP_CACHES] = { "drop-caches", 0, false, KIND_FLAG, FIELD(drop_caches), NULL,
                              "Drop the host's page cache if nothing else helps" },
        [OPT_HOLDERS] = { "holders", 0, false, KIND_FLAG, FIELD(holders), NULL,
                          "Show who holds huge pages" },
        [OPT_ENCODING] = { "encoding", 0, false, KIND_STRING, FIELD(encoding), "WORD",
                           "How messages are written: binary (default), base64 or hex" },
        [OPT_OUTPUT] = { "output", 'o', false, KIND_STRING, FIELD(output), "FILE",
                         "Write the message there; -, the default: standard output" },
        [OPT_ROLE] = { "role", 0, false, KIND_STRING, FIELD(role), "ROLE",
                       "source or destination, if a host has both" },
        [OPT_DEADLINE] = { "deadline", 0, false, KIND_UINT, FIELD(deadline), "SECONDS",
                           "When it is called off, if it has not come to commit" },
        [OPT_PAGE_SIZES] = { "page-sizes", 0, false, KIND_STRING, FIELD(page_sizes), "SIZE,...",
                             "Page sizes that will do on the destination, best first" },
        [OPT_POST_COPY] = { "post-copy", 0, false, KIND_FLAG, FIELD(post_copy), NULL,
                            "The guest runs there before all of its memory is" },
        [OPT_BYTES_LEFT] = { "bytes-left", 0, false, KIND_SIZE, FIELD(bytes_left), "SIZE",
                             "With post-copy: how much is still to be copied" },
        [OPT_LOGGING] = { "logging", 0, false, KIND_STRING, FIELD(logging), "WORD",
                          "How the VMM logs dirty memory: none, bitmap or ring" },
        [OPT_SPLIT_LEAF] = { "split-leaf", 0, false, KIND_SIZE, FIELD(split_leaf), "SIZE",
                             "The largest leaf that may stay; default: 4K" },
        [OPT_TO] = { "to", 0, false, KIND_STRING, FIELD(to), "[USER@]HOST",
                     "The destination, reached over SSH" },
        [OPT_DATA_ADDRESS] = { "data-address", 0, false, KIND_STRING, FIELD(data_address), "ADDRESS",
                               "Where the destination's QEMU listens for the data; default: HOST" },
        [OPT_PORT] = { "port", 0, false, KIND_UINT, FIELD(port), "N",
                       "TCP port for that; default: one that is free" },
        [OPT_BANDWIDTH] = { "bandwidth", 0, false, KIND_SIZE, FIELD(bandwidth), "SIZE",
                            "Bytes per second at most; default: no limit" },
        [OPT_DOWNTIME_LIMIT] = { "downtime-limit", 0, false, KIND_UINT, FIELD(downtime_limit), "MSEC",
                                 "How long the last round of copying may take; default: QEMU's, 300" },
        [OPT_INCOMING] = { "incoming", 0, false, KIND_STRING, FIELD(incoming), "SOCKET",
                           "Be the destination of a migration" },
};

static const char *const json_modes[] = {
        [JSON_OFF] = "off",
        [JSON_SHORT] = "short",
        [JSON_PRETTY] = "pretty",
};

uint64_t args_global_mask(void) {
        uint64_t mask = 0;

        for (unsigned i = 0; i < _OPT_MAX; i++)
                if (defs[i].global)
                        mask |= OPT_BIT(i);
        return mask;
}

const char *args_option_name(uint64_t mask) {
        return defs[__builtin_ctzll(mask)].name;
}

static int parse_json(const char *text, enum json_mode *ret) {
        if (!text) {
                *ret = JSON_PRETTY;
                return 0;
        }
        for (unsigned i = 0; i < ELEMENTSOF(json_modes); i++)
                if (strcmp(text, json_modes[i]) == 0) {
                        *ret = i;
                        return 0;
                }
        return -EINVAL;
}

static int parse_level(const char *text, uint32_t *ret) {
        static const char *const names[] = { "0", "4K", "2M", "1G" };
        uint64_t level;

        for (unsigned i = 0; i < ELEMENTSOF(names); i++)
                if (strcasecmp(text, names[i]) == 0) {
                        *ret = i;
                        return 0;
                }
        if (uint_parse(text, 3, &level) < 0)
                return -EINVAL;
        *ret = level;
        return 0;
}

static int parse_seconds(const char *text, uint64_t *ret) {
        char *end;
        double seconds;

        if (!isdigit((unsigned char) text[0]) && text[0] != '.')
                return -EINVAL;
        seconds = strtod(text, &end);
        if (end == text || *end != '\0' || !(seconds >= 0.1) || seconds > 3600)
                return -EINVAL;
        *ret = (uint64_t) (seconds * 1e6);
        return 0;
}

/* Addresses are often hexadecimal, sizes have suffixes: both may be either. */
static int parse_address(const char *text, uint64_t *ret) {
        char *end;

        if (strncasecmp(text, "0x", 2) != 0)
                return size_parse(text, ret);
        if (!isxdigit((unsigned char) text[2]))
                return -EINVAL;
        errno = 0;
        *ret = strtoull(text, &end, 16);
        return *end != '\0' ? -EINVAL : -errno;
}

static int parse_range(const char *text, struct args_range *ret) {
        const char *plus = strchr(text, '+');
        _cleanup_free_ char *gpa = NULL;
        int r;

        if (!plus)
                return -EINVAL;
        gpa = strndup(text, plus - text);
        if (!gpa)
                return -ENOMEM;
        r = parse_address(gpa, &ret->gpa);
        if (r >= 0)
                r = parse_address(plus + 1, &ret->size);
        return r;
}

static int set_value(struct args *args, const struct opt_def *d, const char *text) {
        void *field = (char *) args + d->offset;
        uint64_t n;
        int r;

        switch (d->kind) {
        case KIND_FLAG:
                *(bool *) field = true;
                return 0;

        case KIND_STRING:
                if (text[0] == '\0')
                        return log_error(-EINVAL, "--%s needs a value, an empty one was given.", d->name);
                *(const char **) field = text;
                return 0;

        case KIND_SIZE:
                r = size_parse(text, field);
                if (r == -ERANGE)
                        return log_error(r, "--%s=%s is more than 64 bits can count.", d->name, text);
                if (r < 0)
                        return log_error(r,
                                         "--%s=%s is not a size. Give a whole number, with K, M, G or T if "
                                         "it is not in bytes, like 512M.",
                                         d->name, text);
                return 0;

        case KIND_UINT:
                r = uint_parse(text, UINT32_MAX, &n);
                if (r < 0)
                        return log_error(r, "--%s=%s is not a number between 0 and %u.", d->name, text,
                                         UINT32_MAX);
                *(uint32_t *) field = n;
                return 0;

        case KIND_LEVEL:
                r = parse_level(text, field);
                if (r < 0)
                        return log_error(r, "--%s=%s is not a level. Give 4K, 2M, 1G, or 0 for no limit.",
                                         d->name, text);
                return 0;

        case KIND_RANGE:
                r = parse_range(text, field);
                if (r < 0)
                        return log_error(
                                        r,
                                        "--%s=%s is not a range. Give an address and a size, like 4G+512M or "
                                        "0x100000000+0x20000000.",
                                        d->name, text);
                return 0;

        case KIND_SECONDS:
                r = parse_seconds(text, field);
                if (r < 0)
                        return log_error(
                                        r,
                                        "--%s=%s is not a time. Give seconds from 0.1 to 3600, like 2 or 0.5.",
                                        d->name, text);
                return 0;

        case KIND_JSON:
                r = parse_json(text, field);
                if (r < 0)
                        return log_error(r, "--%s=%s is not known. Give short, pretty or off.", d->name,
                                         text);
                return 0;
        }
        return -EINVAL;
}

/* getopt's own messages know no suggestions. */
static int unknown_option(const char *word, bool missing_value, const char *verb) {
        const char *end = strchr(word, '='), *meant;
        _cleanup_free_ char *name = NULL;

        if (missing_value)
                return log_error(-EINVAL, "Option %s needs a value.", word);

        if (strncmp(word, "--", 2) != 0)
                return log_error(-EINVAL, "Unknown option %s. See tdpctl %s%s--help.", word, verb ?: "",
                                 verb ? " " : "");

        name = end ? strndup(word + 2, end - word - 2) : strdup(word + 2);
        if (!name)
                return log_error(-ENOMEM, "Out of memory.");

        for (unsigned i = 0; i < _OPT_MAX; i++)
                if (end && strcmp(defs[i].name, name) == 0 && defs[i].kind == KIND_FLAG)
                        return log_error(-EINVAL, "Option --%s takes no value.", name);

        meant = suggest(name, &defs[0].name, _OPT_MAX, sizeof(defs[0]));
        if (meant)
                return log_error(-EINVAL, "Unknown option --%s. Did you mean --%s?", name, meant);
        return log_error(-EINVAL, "Unknown option --%s. See tdpctl %s%s--help.", name, verb ?: "",
                         verb ? " " : "");
}

static int parse(struct args *args, int argc, char **argv, uint64_t allowed, bool stop_at_first,
                 const char *verb) {
        struct option longs[_OPT_MAX + 1] = {};
        char shorts[2 + 2 * _OPT_MAX + 1], *p = shorts;
        int c, r;

        *p++ = stop_at_first ? '+' : '-';
        if (!stop_at_first)
                p--; /* let getopt move what is no option to the end */
        *p++ = ':';
        for (unsigned i = 0; i < _OPT_MAX; i++) {
                longs[i] = (struct option){
                        .name = defs[i].name,
                        .has_arg = defs[i].kind == KIND_FLAG   ? no_argument
                                   : defs[i].kind == KIND_JSON ? optional_argument
                                                               : required_argument,
                        .val = 256 + i,
                };
                if (defs[i].letter) {
                        *p++ = defs[i].letter;
                        if (longs[i].has_arg == required_argument)
                                *p++ = ':';
                }
        }
        *p = '\0';

        opterr = 0;
        optind = 0; /* glibc: start afresh */
        while ((c = getopt_long(argc, argv, shorts, longs, NULL)) >= 0) {
                unsigned i;

                if (c == '?' || c == ':') {
                        char letter[] = { '-', (char) optopt, '\0' };

                        /* optopt is the letter of a short option, or the val of a known long one. */
                        if (c == ':' && optopt >= 256)
                                return log_error(-EINVAL, "Option --%s needs a value.",
                                                 defs[optopt - 256].name);
                        if (optopt > 0 && optopt < 256)
                                return unknown_option(letter, c == ':', verb);
                        return unknown_option(argv[optind - 1], false, verb);
                }

                for (i = 0; i < _OPT_MAX; i++)
                        if (c == 256 + (int) i || (defs[i].letter && c == defs[i].letter))
                                break;
                if (i == _OPT_MAX)
                        return log_error(-EINVAL, "Unknown option %s.", argv[optind - 1]);

                if (!(allowed & OPT_BIT(i))) {
                        if (verb)
                                return log_error(-EINVAL,
                                                 "Option --%s has no meaning for \"%s\". See tdpctl "
                                                 "%s --help.",
                                                 defs[i].name, verb, verb);
                        return log_error(-EINVAL, "Option --%s belongs behind the verb. See tdpctl --help.",
                                         defs[i].name);
                }

                r = set_value(args, &defs[i], optarg);
                if (r < 0)
                        return r;
                args->given |= OPT_BIT(i);
        }
        return optind;
}

int args_parse_global(struct args *args, int argc, char **argv) {
        return parse(args, argc, argv, args_global_mask(), true, NULL);
}

int args_parse_verb(struct args *args, int argc, char **argv, uint64_t allowed, bool command) {
        int first;

        first = parse(args, argc, argv, allowed | args_global_mask(), command, argv[0]);
        if (first < 0)
                return first;

        args->positional = argv + first;
        args->n_positional = argc - first;
        return 0;
}

void args_print_help(FILE *f, uint64_t mask) {
        for (unsigned i = 0; i < _OPT_MAX; i++) {
                const struct opt_def *d = &defs[i];
                char left[64], letter[5] = "    ";

                if (!(mask & OPT_BIT(i)))
                        continue;
                if (d->letter)
                        (void) snprintf(letter, sizeof(letter), "-%c, ", d->letter);
                (void) snprintf(left, sizeof(left),
                                d->kind == KIND_JSON ? "%s--%s[=%s]"
                                : d->metavar         ? "%s--%s=%s"
                                                     : "%s--%s",
                                letter, d->name, d->metavar ?: "");
                fprintf(f, "  %-27s %s\n", left, d->help);
        }
}
