/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Frames, order, rates and keys of "top"; how it behaves on a terminal is test-top.py's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "top.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

static char frame[65536];

static const char *draw(const struct top_sample *s, struct top_view *v) {
        FILE *f = fmemopen(frame, sizeof(frame), "w");

        assert_non_null(f);
        top_draw(f, s, v);
        assert_int_equal(fclose(f), 0);
        return frame;
}

/* Lines, and the longest one. */
static unsigned measure(const char *text, size_t *ret_longest) {
        unsigned n = 0;

        *ret_longest = 0;
        for (const char *end; (end = strchr(text, '\n')); text = end + 1, n++)
                if ((size_t) (end - text) > *ret_longest)
                        *ret_longest = (size_t) (end - text);
        assert_string_equal(text, "");
        return n;
}

static size_t count(const char *text, char c) {
        size_t n = 0;

        for (; *text; text++)
                n += *text == c;
        return n;
}

static struct top_vm vm(const char *name, uint64_t bytes, uint64_t mapped, uint64_t holes, double rate) {
        return (struct top_vm){
                .name = (char *) name,
                .state = (char *) "built",
                .bytes = bytes,
                .built = bytes,
                .mapped = mapped,
                .pinned = bytes,
                .holes = holes,
                .fault_rate = rate,
        };
}

static void test_bar(void **state) {
        struct top_pool pools[] = {
                { .node = 0,
                  .page_size = GIB,
                  .total = 40 * GIB,
                  .free = 10 * GIB,
                  .leased = 16 * GIB,
                  .warm = 4 * GIB },
                /* One page in a thousand is seen, and what is leased and not allocated yet is free. */
                { .node = 1,
                  .page_size = 2 * MIB,
                  .total = 2000 * MIB,
                  .free = 1998 * MIB,
                  .leased = 1000 * MIB },
                { .node = 2, .page_size = 2 * MIB },
        };
        struct top_sample s = { .version = (char *) "1", .pools = pools, .n_pools = 3 };
        struct top_view v = { .columns = 132 };
        const char *text = draw(&s, &v);

        assert_non_null(strstr(
                        text,
                        "node 0      1G [####################+++++=============............] 40G: 16G leased, "
                        "4G warm, 10G others, 10G free\n"));
        text = strstr(text, "node 1");
        assert_non_null(text);
        assert_non_null(strstr(text, " [#......"));
        assert_non_null(strstr(text, ".] 2.0G: 1000M leased, 0 warm, 0 others, 2.0G free\n"));
        assert_non_null(strstr(text, "] 0: 0 leased, 0 warm, 0 others, 0 free\n"));
}

/* Whatever the size of the terminal, nothing is wider, higher, or control characters. */
static void test_fits(void **state) {
        static const char *const names[] = { "db", "\033[2J\n\r",
                                             "a-very-long-name-that-nobody-types-twice-in-a-row-but-scripts",
                                             "" };
        struct top_pool pools[12] = {};
        struct top_vm vms[40];
        struct top_job job = { .id = 7, .text = "grow 50%" };
        struct top_sample s = { .version = (char *) "\033]0;x",
                                .pools = pools,
                                .n_pools = 12,
                                .vms = vms,
                                .n_vms = 40,
                                .jobs = &job,
                                .n_jobs = 1,
                                .n_all_jobs = 1 };
        size_t longest;

        for (unsigned i = 0; i < 12; i++)
                pools[i] = (struct top_pool){ .node = i,
                                              .page_size = 2 * MIB,
                                              .total = UINT64_MAX,
                                              .free = i,
                                              .leased = UINT64_MAX,
                                              .warm = 1 };
        for (unsigned i = 0; i < 40; i++)
                vms[i] = vm(names[i % 4], UINT64_MAX, i, i, 1e9 * i);
        for (unsigned columns = 1; columns < 300; columns += columns < 120 ? 1 : 37)
                for (unsigned rows = 1; rows < 70; rows += rows < 30 ? 1 : 13)
                        for (size_t first = 0; first < 100; first += 33) {
                                struct top_view v = {
                                        .columns = columns, .rows = rows, .first = first, .message = "old"
                                };

                                assert_true(measure(draw(&s, &v), &longest) <= rows);
                                assert_true(longest <= columns);
                                assert_true(v.first < 40);
                                for (const char *p = frame; *p; p++)
                                        assert_true(*p == '\n' || (*p >= ' ' && *p <= '~'));
                        }
        /* Color adds what is not seen, and only that. */
        draw(&s, &(struct top_view){ .columns = 100, .rows = 30, .color = true });
        assert_true(count(frame, '\033') > 20);
        assert_int_equal(count(frame, '\n'), 30);
        assert_null(strstr(frame, "\033[2J"));
}

static void test_scroll(void **state) {
        struct top_vm vms[20];
        char names[20][8];
        struct top_sample s = { .version = (char *) "1", .vms = vms, .n_vms = 20 };
        struct top_view v = { .columns = 80, .rows = 10, .first = SIZE_MAX };

        for (unsigned i = 0; i < 20; i++) {
                snprintf(names[i], sizeof(names[i]), "vm%02u", i);
                vms[i] = vm(names[i], GIB, GIB, 0, TOP_RATE_UNKNOWN);
        }
        /* Title, pools, legend, six VMs, and the line that tells which. */
        assert_non_null(strstr(draw(&s, &v), "(15 to 20 of 20 VMs)\n"));
        assert_int_equal(v.first, 14);
        assert_non_null(strstr(frame, "\nvm19 "));
        assert_null(strstr(frame, "\nvm13 "));
        v.rows = 4;
        assert_non_null(strstr(draw(&s, &v), "(20 VMs, and no room)\n"));
        v.rows = 40;
        assert_null(strstr(draw(&s, &v), "of 20 VMs)"));
        assert_int_equal(v.first, 0);
}

static void test_numbers(void **state) {
        struct top_vm vms[] = { vm("a", 1000, 999, 1, 0.25), vm("b", 1000, 1000, 0, 123456),
                                vm("c", 0, 0, 0, TOP_RATE_UNKNOWN) };
        struct top_sample s = { .version = (char *) "1", .vms = vms, .n_vms = 3 };
        struct top_view v = {};

        snprintf(vms[0].job, sizeof(vms[0].job), "heal 5%%");
        draw(&s, &v);
        assert_non_null(strstr(frame,
                               "a        built        1000B     99%   1000B      1B       0.2  heal 5%\n"));
        assert_non_null(strstr(frame, "b        built        1000B    100%   1000B       0    123.5k\n"));
        assert_non_null(strstr(frame, "c        built            0       -       0       0         -\n"));
        assert_non_null(strstr(frame, "VMs: 3, 3 built, 2.0K of memory, 2.0K pinned"));
}

static void assert_order(struct top_sample *s, enum top_sort sort, bool reverse, const char *expected) {
        char got[16] = "";

        top_sort(s, sort, reverse);
        for (size_t i = 0; i < s->n_vms; i++)
                strcat(got, s->vms[i].name);
        assert_string_equal(got, expected);
}

static void test_sort(void **state) {
        struct top_vm vms[] = { vm("b", 3, 3, 0, 1), vm("a", 3, 1, 2, TOP_RATE_UNKNOWN), vm("d", 9, 9, 0, 7),
                                vm("c", 1, 0, 1, 0) };
        struct top_sample s = { .vms = vms, .n_vms = 4 }, none = {};

        snprintf(vms[0].job, sizeof(vms[0].job), "build");
        assert_order(&s, TOP_SORT_NAME, false, "abcd");
        assert_order(&s, TOP_SORT_NAME, true, "dcba");
        assert_order(&s, TOP_SORT_MEMORY, false, "dabc");
        assert_order(&s, TOP_SORT_PINNED, false, "dabc");
        assert_order(&s, TOP_SORT_MAPPED, false, "cabd");
        assert_order(&s, TOP_SORT_HOLES, false, "acbd");
        assert_order(&s, TOP_SORT_FAULTS, false, "dbca");
        assert_order(&s, TOP_SORT_FAULTS, true, "acbd");
        assert_order(&s, TOP_SORT_JOB, false, "bacd");
        top_sort(&none, TOP_SORT_NAME, true);
}

static void test_rates(void **state) {
        struct top_vm old[] = { vm("z", 1, 1, 0, 0), vm("gone", 1, 1, 0, 0), vm("a", 1, 1, 0, 0) };
        struct top_vm now[] = { vm("z", 1, 1, 0, -1), vm("new", 1, 1, 0, -1), vm("a", 1, 1, 0, -1) };
        struct top_sample before = { .usec = 1000000, .vms = old, .n_vms = 3 },
                          after = { .usec = 3000000, .vms = now, .n_vms = 3 };

        old[0].faults = 10, now[0].faults = 17;
        old[2].faults = 10, now[2].faults = 3; /* built anew */
        top_rates(&before, &after);
        assert_string_equal(now[0].name, "a");
        assert_true(now[0].fault_rate < 0);
        assert_true(now[1].fault_rate < 0);
        assert_true(now[2].fault_rate > 3.49 && now[2].fault_rate < 3.51);
        /* No time has passed: nothing is known, and nothing is divided by 0. */
        top_rates(&after, &after);
        assert_true(now[0].fault_rate < 0);
}

static void assert_key(const char *typed, size_t n, size_t used, unsigned expected) {
        unsigned k = 99;

        assert_int_equal(top_key_parse(typed, n, &k), used);
        if (used > 0)
                assert_int_equal(k, expected);
}

static void test_keys(void **state) {
        assert_key("", 0, 0, 0);
        assert_key("q", 1, 1, TOP_KEY_QUIT);
        assert_key("qx", 2, 1, TOP_KEY_QUIT);
        assert_key("x", 1, 1, TOP_KEY_NONE);
        assert_key("\0", 1, 1, TOP_KEY_NONE);
        assert_key("\033[A", 3, 3, TOP_KEY_UP);
        assert_key("\033OB", 3, 3, TOP_KEY_DOWN);
        assert_key("\033[5~q", 5, 4, TOP_KEY_PAGE_UP);
        /* In parts, as over a slow line. */
        for (size_t n = 1; n < 4; n++)
                assert_key("\033[6~", n, 0, 0);
        assert_key("\033[1;5A", 6, 6, TOP_KEY_NONE);
        assert_key("\033q", 2, 1, TOP_KEY_NONE);
        assert_key("\033[111111111111111111", 20, 20, TOP_KEY_NONE);
        for (unsigned i = 0; i < _TOP_SORT_MAX; i++)
                assert_key((char[]){ top_sort_key(i) }, 1, 1, TOP_KEY_SORT + i);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_bar),     cmocka_unit_test(test_fits), cmocka_unit_test(test_scroll),
                cmocka_unit_test(test_numbers), cmocka_unit_test(test_sort), cmocka_unit_test(test_rates),
                cmocka_unit_test(test_keys),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
