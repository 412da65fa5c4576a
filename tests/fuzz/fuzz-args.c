/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The command lines of tdpctl and of the VMM that it runs: a word on each line. */

#include <unistd.h>

#include "args.h"
#include "cleanup.h"
#include "fuzz.h"
#include "qemu-args.h"
#include "verbs.h"

#define WORDS_MAX 64

static void scan_vmm(char *const *argv) {
        static const struct qemu_part parts[] = { { UINT64_C(1) << 30, 5 }, { UINT64_C(1) << 30, 6 } };
        struct qemu_args scanned;
        char **built = NULL;
        size_t n = 0;

        if (qemu_args_scan(argv, UINT64_C(2) << 30, &scanned) < 0)
                return;
        FUZZ_CHECK(qemu_args_build(argv, &scanned, parts, 2, 7, true, true, &built) == 0);
        /* The user's words come first, as they are. */
        for (; argv[n]; n++)
                FUZZ_CHECK(built[n] && strcmp(argv[n], built[n]) == 0);
        FUZZ_CHECK(built[n]);
        qemu_args_free(built);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = fuzz_string(data, size);
        char *words[WORDS_MAX + 2] = { (char *) "tdpctl" }, *rest = text;
        const struct verb *verb;
        struct args args = {};
        int n = 1, first;

        while (n <= WORDS_MAX && (words[n] = fuzz_line(&rest)))
                n++;
        words[n] = NULL;

        scan_vmm(words);
        first = args_parse_global(&args, n, words);
        if (first < 0 || first == n)
                return 0;
        FUZZ_CHECK(first > 0 && first < n);
        verb = verb_find(words[first]);
        if (!verb || args_parse_verb(&args, n - first, words + first, verb->options, verb->command) < 0)
                return 0;
        FUZZ_CHECK(args.n_positional >= 0 && args.n_positional < n);
        FUZZ_CHECK(args.n_positional == 0 || args.positional[args.n_positional - 1]);
        return 0;
}
