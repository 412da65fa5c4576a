/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "span.h"

/* "gpa+size ..." of a set. */
static const char *text(const SpanSet *set) {
        static char buf[256];
        size_t n = 0;

        buf[0] = '\0';
        for (size_t i = 0; i < set->n; i++)
                n += (size_t) snprintf(buf + n, sizeof(buf) - n, "%s%u+%u", i > 0 ? " " : "",
                                       (unsigned) set->spans[i].gpa, (unsigned) set->spans[i].size);
        return buf;
}

static void add(SpanSet *set, uint64_t gpa, uint64_t size) {
        assert_int_equal(spanset_add(set, (Span){ gpa, size }), 0);
}

static void cut(SpanSet *set, uint64_t gpa, uint64_t size) {
        assert_int_equal(spanset_remove(set, (Span){ gpa, size }), 0);
}

static void test_add(void **state) {
        _cleanup_(spanset_done) SpanSet set = {};

        add(&set, 10, 5);
        add(&set, 30, 5);
        add(&set, 0, 5);
        assert_string_equal(text(&set), "0+5 10+5 30+5");
        add(&set, 50, 0);
        assert_string_equal(text(&set), "0+5 10+5 30+5");
        add(&set, 15, 2); /* touches */
        assert_string_equal(text(&set), "0+5 10+7 30+5");
        add(&set, 4, 7); /* bridges */
        assert_string_equal(text(&set), "0+17 30+5");
        add(&set, 2, 3); /* inside */
        assert_string_equal(text(&set), "0+17 30+5");
        add(&set, 0, 100);
        assert_string_equal(text(&set), "0+100");
        assert_int_equal(spanset_bytes(&set), 100);
}

static void test_remove(void **state) {
        _cleanup_(spanset_done) SpanSet set = {};

        add(&set, 0, 100);
        cut(&set, 40, 10);
        assert_string_equal(text(&set), "0+40 50+50");
        cut(&set, 100, 10); /* touches only */
        assert_string_equal(text(&set), "0+40 50+50");
        cut(&set, 30, 30);
        assert_string_equal(text(&set), "0+30 60+40");
        cut(&set, 0, 1);
        cut(&set, 99, UINT64_MAX);
        assert_string_equal(text(&set), "1+29 60+39");
        cut(&set, 0, UINT64_MAX);
        assert_int_equal(set.n, 0);
}

static void test_intersect(void **state) {
        _cleanup_(spanset_done) SpanSet set = {}, with = {};

        add(&set, 10, 10);
        add(&set, 30, 10);
        add(&with, 0, 12);
        add(&with, 15, 20);
        assert_int_equal(spanset_intersect(&set, &with), 0);
        assert_string_equal(text(&set), "10+2 15+5 30+5");
        assert_int_equal(spanset_intersect(&set, &(SpanSet){}), 0);
        assert_int_equal(set.n, 0);
}

/* The end of the address space is no way round to its beginning. */
static void test_top(void **state) {
        Span top = { .gpa = UINT64_MAX - 4095, .size = 8192 }, low = { .gpa = 0, .size = 4096 };

        assert_false(span_overlaps(top, low));
        assert_true(span_end(top) == UINT64_MAX);
        assert_int_equal(span_intersect(top, low).size, 0);
        assert_true(span_merge(top, low).size == UINT64_MAX);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_add),
                cmocka_unit_test(test_remove),
                cmocka_unit_test(test_intersect),
                cmocka_unit_test(test_top),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
