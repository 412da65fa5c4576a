/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "format.h"
#include "idset.h"
#include "name.h"

static void check(const char *in, const char *out, unsigned count) {
        _cleanup_free_ char *s = NULL;
        IdSet set;

        assert_int_equal(idset_parse(in, &set), 0);
        assert_int_equal(idset_count(&set), count);
        assert_int_equal(idset_format(&set, &s), 0);
        assert_string_equal(s, out);
}

static void test_round_trip(void **state) {
        check("", "", 0);
        check("\n", "", 0);
        check("0", "0", 1);
        check("0-1,3", "0-1,3", 3);
        check("3,0,1", "0-1,3", 3);
        check("0,2,8\n", "0,2,8", 3);
        check("1,1,1-2", "1-2", 2);
        check("8191", "8191", 1);
        check("0-8191", "0-8191", 8192);
        check("62-65", "62-65", 4);
}

static void test_bad(void **state) {
        static const char *const bad[] = { " ",
                                           "-",
                                           ",",
                                           "0,",
                                           ",0",
                                           "0-",
                                           "-1",
                                           "3-1",
                                           "a",
                                           "0x1",
                                           "0-1-2",
                                           "0 1",
                                           "0\n1",
                                           "8192",
                                           "0-8192",
                                           "4294967296",
                                           "18446744073709551616",
                                           "+1",
                                           "1.5",
                                           "0;1" };
        IdSet set = {};

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                if (idset_parse(bad[i], &set) >= 0)
                        fail_msg("\"%s\" was taken", bad[i]);
                assert_int_equal(idset_count(&set), 0); /* untouched */
        }
}

static void test_names(void **state) {
        char name[VM_NAME_MAX + 2];

        assert_true(vm_name_is_valid("a"));
        assert_true(vm_name_is_valid("0"));
        assert_true(vm_name_is_valid("db-1.example_x"));
        assert_false(vm_name_is_valid(""));
        assert_false(vm_name_is_valid("."));
        assert_false(vm_name_is_valid(".."));
        assert_false(vm_name_is_valid("-a"));
        assert_false(vm_name_is_valid("a/b"));
        assert_false(vm_name_is_valid("a b"));
        assert_false(vm_name_is_valid("\xc3\xa9"));
        memset(name, 'x', sizeof(name));
        name[VM_NAME_MAX + 1] = '\0';
        assert_false(vm_name_is_valid(name));
        name[VM_NAME_MAX] = '\0';
        assert_true(vm_name_is_valid(name));
}

static void test_format(void **state) {
        assert_string_equal(format_bytes(0), "0 bytes");
        assert_string_equal(format_bytes(4096), "4 KiB");
        assert_string_equal(format_bytes(4097), "4097 bytes");
        assert_string_equal(format_bytes(MIB(2)), "2 MiB");
        assert_string_equal(format_bytes(GIB(1536)), "1536 GiB");
        assert_string_equal(format_bytes(UINT64_C(1) << 63), "8 EiB");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_round_trip),
                cmocka_unit_test(test_bad),
                cmocka_unit_test(test_names),
                cmocka_unit_test(test_format),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
