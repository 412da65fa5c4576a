/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* tdpctl's own command line, and QEMU's. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants what is above */
#include <cmocka.h>

#include "args.h"
#include "qemu-args.h"
#include "verbs.h"

#define WORDS_MAX 32

/* Splits at blanks, in place. */
static int split(char *line, char **words) {
        char *save = NULL;
        int n = 0;

        for (char *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save))
                words[n++] = w;
        words[n] = NULL;
        return n;
}

static int parse(const char *text, struct args *args, char *line, size_t size, char **words) {
        const struct verb *v;
        int n, first;

        (void) snprintf(line, size, "tdpctl %s", text);
        n = split(line, words);
        *args = (struct args){};
        first = args_parse_global(args, n, words);
        if (first < 0 || first == n)
                return first < 0 ? first : -ENODATA;
        v = verb_find(words[first]);
        assert_non_null(v);
        return args_parse_verb(args, n - first, words + first, v->options, v->command);
}

static void test_good(void **state) {
        char line[256], *words[WORDS_MAX];
        struct args a;

        assert_int_equal(parse("--json=short -q vms --no-legend", &a, line, sizeof(line), words), 0);
        assert_int_equal(a.json, JSON_SHORT);
        assert_true(a.quiet && a.no_legend && a.n_positional == 0);

        assert_int_equal(parse("show db --json", &a, line, sizeof(line), words), 0);
        assert_int_equal(a.json, JSON_PRETTY);
        assert_string_equal(a.positional[0], "db");

        assert_int_equal(parse("--json=off --json=pretty --json=off vms", &a, line, sizeof(line), words), 0);
        assert_int_equal(a.json, JSON_OFF);

        assert_int_equal(parse("attach --max-level=2M db 12 --no-auto-slots", &a, line, sizeof(line), words),
                         0);
        assert_int_equal(a.max_level, 2);
        assert_int_equal(a.n_positional, 2);
        assert_true(a.no_auto_slots);

        assert_int_equal(parse("-H me@there explain --memory 8G --page-size 1G --nodes 0-1,3 --vcpus=4", &a,
                               line, sizeof(line), words),
                         0);
        assert_string_equal(a.host, "me@there");
        assert_true(a.memory == UINT64_C(8) << 30 && a.page_size == 1 << 30 && a.vcpus == 4);
        assert_string_equal(a.nodes, "0-1,3");
        assert_true(args_given(&a, OPT_VCPUS));
        assert_false(args_given(&a, OPT_DECISION));
}

/* What follows the program is its own, with and without "--". */
static void test_run(void **state) {
        static const char *const lines[] = {
                "run --name db --memory 8G -- qemu -m 3 --json --name x",
                "run --name db --memory 8G qemu -m 3 --json --name x",
        };
        char line[256], *words[WORDS_MAX];
        struct args a;

        for (size_t i = 0; i < ELEMENTSOF(lines); i++) {
                assert_int_equal(parse(lines[i], &a, line, sizeof(line), words), 0);
                assert_string_equal(a.name, "db");
                assert_int_equal(a.json, JSON_OFF);
                assert_int_equal(a.n_positional, 6);
                assert_string_equal(a.positional[0], "qemu");
        }
}

static void test_bad(void **state) {
        static const char *const lines[] = {
                "--jsn vms",
                "--json=xml vms",
                "--json= vms",
                "vms --memory=1G",
                "--memory=1G vms",
                "explain --memory",
                "explain --memory=",
                "explain --memory=-1",
                "explain --memory=1X",
                "explain --memory=99999999T",
                "explain --vcpus=x",
                "explain --vcpus=4294967296",
                "explain --name=",
                "build x --max-level=4",
                "build x --max-level=8M",
                "build x --name=y",
                "vms -Z",
                "vms --quiet=yes",
                "attach x --pid=-3",
                "run --pid=3 -- q",
        };
        char line[256], *words[WORDS_MAX];
        struct args a;

        for (size_t i = 0; i < ELEMENTSOF(lines); i++)
                if (parse(lines[i], &a, line, sizeof(line), words) >= 0)
                        fail_msg("\"%s\" was accepted", lines[i]);
}

static int scan(const char *text, struct qemu_args *ret) {
        char line[256], *words[WORDS_MAX];

        (void) snprintf(line, sizeof(line), "%s", text);
        (void) split(line, words);
        return qemu_args_scan(words, UINT64_C(8) << 30, ret);
}

static void test_qemu_scan(void **state) {
        struct qemu_args a;

        assert_int_equal(scan("qemu", &a), 0);
        assert_false(a.stopped || a.accelerator || a.memory);
        assert_int_equal(scan("qemu -S -nographic -accel tcg -m 8G", &a), 0);
        assert_true(a.stopped && a.accelerator && a.memory);
        assert_int_equal(scan("qemu --enable-kvm -m 8192", &a), 0);
        assert_true(a.accelerator && a.memory);
        assert_int_equal(scan("qemu -M q35,accel=kvm -m maxmem=16G,size=8192M", &a), 0);
        assert_true(a.accelerator && a.memory);
        /* Words that are values are no options. */
        assert_int_equal(scan("qemu -append -S -name -numa -device x", &a), 0);
        assert_false(a.stopped);
        /* A program before QEMU. */
        assert_int_equal(scan("taskset -c 0-1 qemu -S", &a), 0);
        assert_true(a.stopped);
        assert_int_equal(scan("qemu -machine q35,xmemory-backend=y", &a), 0);
}

static void test_qemu_refused(void **state) {
        static const char *const lines[] = {
                "q -m 4G",
                "q -m 8193",
                "q -m 0.5G",
                "q -m size=4G",
                "q --m 4G",
                "q -m 18446744073709551615",
                "q -mem-path /x",
                "q -mem-prealloc",
                "q -numa node",
                "q -daemonize",
                "q -preconfig",
                "q -M memory-backend=x",
                "q -machine q35,memory-backend=x",
        };
        struct qemu_args a;

        for (size_t i = 0; i < ELEMENTSOF(lines); i++)
                if (scan(lines[i], &a) >= 0)
                        fail_msg("\"%s\" was accepted", lines[i]);
}

static void assert_command(char *const *argv, struct qemu_args scanned, const struct qemu_part *parts,
                           size_t n, bool stop, const char *expected) {
        char text[1024] = "", **built;

        assert_int_equal(qemu_args_build(argv, &scanned, parts, n, 9, stop, false, &built), 0);
        for (size_t i = 0; built[i]; i++) {
                strcat(text, i > 0 ? " " : "");
                strcat(text, built[i]);
        }
        qemu_args_free(built);
        assert_string_equal(text, expected);
}

static void test_qemu_build(void **state) {
        static const struct qemu_part parts[] = { { 1 << 20, 7 }, { 2 << 20, 8 } };
        char *argv[] = { (char *) "q", (char *) "-x", NULL };

        assert_command(argv, (struct qemu_args){}, parts, 1, true,
                       "q -x -accel kvm -object "
                       "memory-backend-file,id=tdpd0,size=1048576,mem-path=/proc/self/fd/7,share=on "
                       "-m size=1048576B -machine memory-backend=tdpd0 "
                       "-readconfig /proc/self/fd/9 -S");
        assert_command(argv, (struct qemu_args){ .stopped = true, .accelerator = true, .memory = true },
                       parts, 2, true,
                       "q -x -object "
                       "memory-backend-file,id=tdpd0,size=1048576,mem-path=/proc/self/fd/7,share=on "
                       "-object memory-backend-file,id=tdpd1,size=2097152,mem-path=/proc/self/fd/8,share=on "
                       "-numa node,nodeid=0,memdev=tdpd0 -numa node,nodeid=1,memdev=tdpd1 "
                       "-readconfig /proc/self/fd/9");
        /* The vCPUs are shared among the guest's nodes. */
        assert_command(argv, (struct qemu_args){ .accelerator = true, .memory = true, .max_cpus = 5 }, parts,
                       2, false,
                       "q -x -object "
                       "memory-backend-file,id=tdpd0,size=1048576,mem-path=/proc/self/fd/7,share=on "
                       "-object memory-backend-file,id=tdpd1,size=2097152,mem-path=/proc/self/fd/8,share=on "
                       "-numa node,nodeid=0,cpus=0-1,memdev=tdpd0 -numa node,nodeid=1,cpus=2-4,memdev=tdpd1 "
                       "-readconfig /proc/self/fd/9");
        assert_command(argv, (struct qemu_args){ .accelerator = true, .memory = true, .max_cpus = 1 }, parts,
                       2, false,
                       "q -x -object "
                       "memory-backend-file,id=tdpd0,size=1048576,mem-path=/proc/self/fd/7,share=on "
                       "-object memory-backend-file,id=tdpd1,size=2097152,mem-path=/proc/self/fd/8,share=on "
                       "-numa node,nodeid=0,memdev=tdpd0 -numa node,nodeid=1,cpus=0-0,memdev=tdpd1 "
                       "-readconfig /proc/self/fd/9");
        assert_command(argv, (struct qemu_args){ .accelerator = true, .memory = true }, parts, 1, false,
                       "q -x -object "
                       "memory-backend-file,id=tdpd0,size=1048576,mem-path=/proc/self/fd/7,share=on "
                       "-machine memory-backend=tdpd0 "
                       "-readconfig /proc/self/fd/9");
}

static void test_qemu_build_incoming(void **state) {
        static const struct qemu_part part = { 1 << 20, 7 };
        struct qemu_args scanned = { .accelerator = true, .memory = true };
        char *argv[] = { (char *) "q", NULL }, **built;
        size_t n = 0;

        assert_int_equal(qemu_args_build(argv, &scanned, &part, 1, 9, true, true, &built), 0);
        while (built[n])
                n++;
        assert_string_equal(built[n - 3], "-S");
        assert_string_equal(built[n - 2], "-incoming");
        assert_string_equal(built[n - 1], "defer");
        qemu_args_free(built);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_good),
                cmocka_unit_test(test_run),
                cmocka_unit_test(test_bad),
                cmocka_unit_test(test_qemu_scan),
                cmocka_unit_test(test_qemu_refused),
                cmocka_unit_test(test_qemu_build),
                cmocka_unit_test(test_qemu_build_incoming),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
