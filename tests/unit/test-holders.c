/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lines of numa_maps, and a scan that has no time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>

#include "holders.h"

static void assert_line(const char *line, int result, NumaLine *ret) {
        assert_int_equal(holders_parse_line(line, ret), result);
}

static void test_case_27_size_of_the_mapping(void **state) {
        NumaLine n;

        assert_line("7f0000000000 default file=/memfd:tdpd:a\\040b:node0\\040(deleted) huge dirty=5 mapmax=2 N0=2 "
                    "N3=3 kernelpagesize_kB=2048\n",
                    1, &n);
        assert_true(n.address == UINT64_C(0x7f0000000000));
        assert_int_equal(n.page_size, MIB(2));
        assert_int_equal(n.pages[0], 2);
        assert_int_equal(n.pages[3], 3);
        assert_string_equal(n.file, "/memfd:tdpd:a b:node0 (deleted)");

        /* Whatever the default size is. */
        assert_line("7f0040000000 bind:1 file=/dev/hugepages/x huge N1=10 kernelpagesize_kB=1048576", 1, &n);
        assert_int_equal(n.page_size, GIB(1));
        assert_int_equal(n.pages[1], 10);

        assert_line("7f0040000000 default anon=512 dirty=512 N0=512 kernelpagesize_kB=4", 0, &n);
        assert_line("7f0040000000 default file=/usr/bin/huge mapped=1 N0=1 kernelpagesize_kB=4", 0, &n);
        assert_line("7f0040000000 default", 0, &n);
}

static void test_nonsense(void **state) {
        NumaLine n;

        assert_line("7f0040000000 default huge N0=1 kernelpagesize_kB=18446744073709551615", -ERANGE, &n);
        assert_line("", -EBADMSG, &n);
        assert_line("no address", -EBADMSG, &n);
        assert_line("1 default huge N9999=1 N0=x N=4 kernelpagesize_kB=2048", 1, &n);
        for (size_t i = 0; i < ELEMENTSOF(n.pages); i++)
                assert_int_equal(n.pages[i], 0);
        assert_line("1 default file=\\033[31m\xff\\0 huge kernelpagesize_kB=2048", 1, &n);
        assert_string_equal(n.file, "?[31m?\\0");
}

static bool stop_at_once(void *userdata) {
        return false;
}

static void test_no_time(void **state) {
        Holders h = {};

        assert_int_equal(holders_scan("/proc", stop_at_once, NULL, &h), 0);
        assert_int_equal(h.n, 0);
        assert_false(h.complete);
        holders_done(&h);
        assert_int_equal(holders_scan("/nowhere", NULL, NULL, &h), -ENOENT);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_case_27_size_of_the_mapping),
                cmocka_unit_test(test_nonsense),
                cmocka_unit_test(test_no_time),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
