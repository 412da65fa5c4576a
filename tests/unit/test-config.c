/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>

#include "config.h"
#include "log.h"

static char *read_all(const char *relative) {
        char path[512], *buf = calloc(1, 65536);
        const char *root = getenv("SOURCE_ROOT");
        FILE *f;

        assert_non_null(root);
        assert_non_null(buf);
        snprintf(path, sizeof(path), "%s/%s", root, relative);
        f = fopen(path, "re");
        if (!f)
                fail_msg("cannot read %s", path);
        assert_true(fread(buf, 1, 65535, f) > 0);
        fclose(f);
        return buf;
}

static int parse(Config *c, ConfigError *e, const char *text, size_t size) {
        assert_int_equal(config_init(c), 0);
        return config_parse(c, "file", text, size, e);
}

static void load(Config *c, const char *text) {
        ConfigError e;

        if (parse(c, &e, text, strlen(text)) < 0)
                fail_msg("refused:\n%s\n%s", text, e.text);
}

static void test_shipped_file(void **state) {
        _cleanup_free_ char *shipped = read_all("config/tdpd.conf"), *dumped = NULL;
        size_t size;
        FILE *f = open_memstream(&dumped, &size);

        assert_non_null(f);
        assert_int_equal(config_dump(f), 0);
        fclose(f);
        assert_string_equal(shipped, dumped);
}

/* Where the section ends that "p" is in: a key of another one may have the same name. */
static const char *section_end(const char *p) {
        const char *once = strstr(p, "\n["), *named = strstr(p, "\n#["), *end = once;

        if (named && (!end || named < end))
                end = named;
        return end ? end : p + strlen(p);
}

/* A section is in one place, and a key is there once in it. */
static void test_sections_are_whole(void **state) {
        _cleanup_free_ char *shipped = read_all("config/tdpd.conf");

        for (char *p = shipped; (p = strchr(p, '\n'));) {
                const char *again;
                char line[64];

                p++;
                if (*p != '[' && (*p != '#' || p[1] < 'A' || !memchr(p, '=', strcspn(p, " \n"))))
                        continue;
                snprintf(line, sizeof(line), "\n%.*s", (int) strcspn(p, "=\n"), p);
                again = strstr(p, line);
                if (again && (*p == '[' || again < section_end(p)) &&
                    strcspn(again + 1, "=\n") == strlen(line) - 1)
                        fail_msg("\"%s\" is there twice", line + 1);
        }
}

/* The part of the manual that has the keys. */
static void test_manual(void **state) {
        static const char from[] = ".\\\" tdpd --dump-config=man\n", to[] = ".\\\" until here\n";
        _cleanup_free_ char *manual = read_all("docs/man/tdpd.conf.5"), *dumped = NULL;
        char *start = strstr(manual, from), *end = strstr(manual, to);
        size_t size;
        FILE *f = open_memstream(&dumped, &size);

        assert_non_null(f);
        assert_int_equal(config_dump_man(f), 0);
        fclose(f);
        assert_non_null(start);
        assert_non_null(end);
        *end = '\0';
        assert_string_equal(start + strlen(from), dumped);
}

static void test_good_values(void **state) {
        Config c;

        load(&c,
             "# comment\n[Policy]\nDecision=never\nMinBytes = 2G\nMinSavingUSec=0\n[Limits]\nMaxVMs=infinity\n"
             "MaxBytes=4096\nMaxJobs=1\n[Workers]\nThreads=1024\n[Access]\nGroup=kvm\n");
        assert_int_equal(c.decision, DECISION_NEVER);
        assert_int_equal(c.min_bytes, GIB(2));
        assert_int_equal(c.min_saving_usec, 0);
        assert_int_equal(c.limits.vms, UINT64_MAX);
        assert_int_equal(c.limits.bytes, 4096);
        assert_int_equal(c.limits.jobs, 1);
        assert_int_equal(c.threads, 1024);
        assert_string_equal(c.group, "kvm");
        config_done(&c);
}

static void test_last_one_counts(void **state) {
        Config c;

        load(&c, "[Limits]\nMaxVMs=1\n[Workers]\n\n[Limits]\nMaxVMs=2\nMaxJobs=3\nMaxJobs=\n"
                 "[Access]\nGroup=kvm\nGroup=\n[Policy]\nDecision=never\nDecision= ; a comment\n");
        assert_int_equal(c.limits.vms, 2);
        /* Nothing is the default again. */
        assert_int_equal(c.limits.jobs, 64);
        assert_int_equal(c.decision, DECISION_AUTO);
        assert_string_equal(c.group, "tdp");
        config_done(&c);
}

/* All of what people's editors do. */
static void test_forms(void **state) {
        static const char *const forms[] = {
                "[Workers]\nThreads=7",
                "\xef\xbb\xbf[Workers]\nThreads=7\n",
                "[Workers]\r\nThreads=7\r\n",
                "\n\n  [Workers]\t\n  # caf\xc3\xa9 \xff\x01\n;\n\tThreads  =\t7 \n\n",
                "[Limits]\n[Workers]\nThreads=7 ; seven\n",
                "[Workers]\nThreads=8\n  Threads=7\n", /* no continuation of the line before */
                "[Workers]\nThreads=0000000000000000000000000000000000000000000000000000000000000000000000000"
                "0000000000000000000000000000007\n",
        };

        for (size_t i = 0; i < ELEMENTSOF(forms); i++) {
                Config c;

                load(&c, forms[i]);
                assert_int_equal(c.threads, 7);
                config_done(&c);
        }
}

/* Refused, with place, key, what was given, and what may be. */
static void test_bad_values(void **state) {
        static const struct {
                const char *text, *want;
        } bad[] = {
                { "[Policy]\nMinBytes=M\n",
                  "file:2: [Policy] MinBytes=M makes no sense: allowed is a number from 0 to infinity bytes, "
                  "and the suffixes K, M, G and T" },
                { "[Policy]\nMinBytes=-1\n", "file:2: [Policy] MinBytes=-1 makes no sense: " },
                { "[Policy]\nMinBytes=+1\n", "file:2: [Policy] MinBytes=+1 makes no sense: " },
                { "[Policy]\nMinBytes=1X\n", "file:2: [Policy] MinBytes=1X makes no sense: " },
                { "[Policy]\nMinBytes=infinityM\n", "MinBytes=infinityM makes no sense: " },
                { "[Policy]\nMinBytes=99999999999999999999\n", " is out of range: " },
                { "[Policy]\nMinBytes=18446744073709551615K\n", " is out of range: " },
                { "[Policy]\n\n\nDecision=perhaps\n",
                  "file:4: [Policy] Decision=perhaps makes no sense: allowed is auto, always or never" },
                { "[Limits]\nMaxJobs=0\n",
                  "file:2: [Limits] MaxJobs=0 is out of range: allowed is a number from 1 to infinity jobs" },
                { "[Workers]\nThreads=0\n", "allowed is a number from 1 to 1024 threads" },
                { "[Workers]\nThreads=1025\n", "out of range" },
                { "[Workers]\nThreads=1.5\n", "makes no sense" },
                { "[Workers]\nThreads=infinity\n", "out of range" },
                { "[Workers\nThreads=1\n", "file:1: a section is [NAME], alone on its line" },
                { "[Workers] Threads=1\n", "file:1: a section is [NAME], alone on its line" },
                { "[Workers]\nnonsense\n", "file:2: neither a [section], nor KEY=VALUE, nor a comment" },
                { "[Workers]\nnonsense ; a=b\n",
                  "file:2: neither a [section], nor KEY=VALUE, nor a comment" },
                { "[Workers]\nThreads=\x1b[31m1\n", "file:2: byte 0x1b is no text" },
                { "[Workers]\nThreads=\xc3\xa9\n", "file:2: byte 0xc3 is no text" },
                { "[Workersxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx]\n",
                  "file:1: the section's name has " },
        };

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                ConfigError e;
                Config c;

                assert_int_not_equal(parse(&c, &e, bad[i].text, strlen(bad[i].text)), 0);
                if (!strstr(e.text, bad[i].want))
                        fail_msg("%s\nsaid \"%s\", not \"%s\"", bad[i].text, e.text, bad[i].want);
                config_done(&c);
        }
}

static void test_bytes_and_long_lines(void **state) {
        static const char nul[] = "[Workers]\nThreads=1\0\n";
        char line[5000];
        ConfigError e;
        Config c;

        assert_int_not_equal(parse(&c, &e, nul, sizeof(nul) - 1), 0);
        assert_non_null(strstr(e.text, "file:2: byte 0x00 is no text"));
        config_done(&c);

        /* A comment may be as long as it likes, anything else is never cut in two. */
        memset(line, 'x', sizeof(line));
        memcpy(line, "# ", 2);
        assert_int_equal(parse(&c, &e, line, sizeof(line)), 0);
        config_done(&c);
        for (size_t n = 100; n < sizeof(line); n++) {
                int r;

                memset(line, 'x', n);
                memcpy(line, "[Access]\nGroup=", 15);
                r = parse(&c, &e, line, n);
                if (r == 0)
                        assert_int_equal(strlen(c.group), n - 15);
                else if (n < 15 + 150 || !strstr(e.text, "file:2: the line has "))
                        fail_msg("%zu bytes: %s", n, e.text);
                config_done(&c);
        }
}

static unsigned seed = 1;

static unsigned rnd(unsigned n) {
        seed = seed * 1103515245 + 12345;
        return (seed >> 16) % n;
}

/* Whatever is in it: read or refused, and with a reason that can be sent to anybody. */
static void test_garbage(void **state) {
        static const char *const pieces[] = {
                "[",
                "]",
                "=",
                "\n",
                "\r\n",
                " ",
                "\t",
                "#",
                ";",
                ":",
                "[Policy]\n",
                "[Workers]\n",
                "Threads=",
                "MinBytes=",
                "Decision=",
                "always",
                "infinity",
                "0",
                "99999999999999999999",
                "64M",
                "\\",
                "[Access]\nGroup=",
                "\xef\xbb\xbf",
                "\xff",
                "x",
                "%s%n",
                "[Rule a]\n",
                "\v",
                "\x7f",
        };

        log_set_max_level(LOG_ERR);
        for (unsigned round = 0; round < 20000; round++) {
                char text[400];
                size_t n = 0, want = rnd(sizeof(text) - 40);
                ConfigError e;
                Config c;
                int r;

                while (n < want)
                        if (rnd(4) == 0)
                                text[n++] = (char) rnd(256);
                        else {
                                const char *piece = pieces[rnd(ELEMENTSOF(pieces))];

                                memcpy(text + n, piece, strlen(piece));
                                n += strlen(piece);
                        }
                r = parse(&c, &e, text, n);
                if ((r < 0) != (e.text[0] != '\0'))
                        fail_msg("%i with \"%s\"", r, e.text);
                for (const char *p = e.text; *p; p++)
                        assert_true(*p >= ' ' && *p <= '~');
                assert_true(c.threads >= 1 && c.threads <= 1024);
                assert_non_null(c.group);
                config_done(&c);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_shipped_file),    cmocka_unit_test(test_sections_are_whole),
                cmocka_unit_test(test_manual),          cmocka_unit_test(test_good_values),
                cmocka_unit_test(test_last_one_counts), cmocka_unit_test(test_forms),
                cmocka_unit_test(test_bad_values),      cmocka_unit_test(test_bytes_and_long_lines),
                cmocka_unit_test(test_garbage),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
