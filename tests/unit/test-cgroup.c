/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Limits on huge pages in trees of cgroups that are made here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "cgroup.h"
#include "tree.h"

static char root[64];

static void put(const char *text, const char *relative) {
        char file[256];

        snprintf(file, sizeof(file), "fs/cgroup/%s", relative);
        tree_put(root, file, text);
}

static int setup(void **state) {
        snprintf(root, sizeof(root), "/tmp/tdpd-cgroup-XXXXXX");
        return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state) {
        return tree_remove(root);
}

static void assert_room(const char *cgroup, uint64_t page_size, uint64_t extra, const char *level,
                        const char *file, uint64_t bytes) {
        _cleanup_(cgroup_room_done) CgroupRoom room = {};

        assert_int_equal(cgroup_get_room(root, cgroup, page_size, extra, &room), 0);
        if (!level) {
                assert_null(room.cgroup);
                assert_true(room.room == UINT64_MAX);
                return;
        }
        assert_string_equal(room.cgroup, level);
        assert_string_equal(room.file, file);
        assert_int_equal(room.room, bytes);
}

static void test_case_16_up_the_tree(void **state) {
        put("max\n", "a/b/hugetlb.2MB.max");
        put("max\n", "a/b/hugetlb.2MB.rsvd.max");
        put("4194304\n", "a/hugetlb.2MB.max");
        put("2097152\n", "a/hugetlb.2MB.current");
        put("max\n", "a/hugetlb.2MB.rsvd.max");
        assert_room("/a/b", MIB(2), 0, "/a", "hugetlb.2MB.max", MIB(2));
        assert_room("/a/b/gone", MIB(2), 0, "/a", "hugetlb.2MB.max", MIB(2));
        assert_room("/a", MIB(2), MIB(2), "/a", "hugetlb.2MB.max", 0);
        assert_room("/ab", MIB(2), 0, NULL, NULL, 0);
        assert_room("/", MIB(2), 0, NULL, NULL, 0);
        /* Each size has limits of its own. */
        assert_room("/a/b", GIB(1), 0, NULL, NULL, 0);
        put("0\n", "a/b/hugetlb.1GB.rsvd.max");
        put("0\n", "a/b/hugetlb.1GB.rsvd.current");
        assert_room("/a/b", GIB(1), 0, "/a/b", "hugetlb.1GB.rsvd.max", 0);
        put("65536\n", "hugetlb.64KB.max");
        put("0\n", "hugetlb.64KB.current");
        assert_room("/a/b", KIB(64), 0, "/", "hugetlb.64KB.max", KIB(64));
        /* More in use than allowed, as after the limit was lowered. */
        put("0\n", "a/hugetlb.2MB.max");
        assert_room("/a/b", MIB(2), 0, "/a", "hugetlb.2MB.max", 0);
}

static void test_old_trees(void **state) {
        put("9223372036854771712\n", "hugetlb/vm/hugetlb.2MB.limit_in_bytes");
        put("0\n", "hugetlb/vm/hugetlb.2MB.usage_in_bytes");
        assert_room("/vm", MIB(2), 0, NULL, NULL, 0);
        put("2097152\n", "hugetlb/vm/hugetlb.2MB.rsvd.limit_in_bytes");
        put("0\n", "hugetlb/vm/hugetlb.2MB.rsvd.usage_in_bytes");
        assert_room("/vm", MIB(2), MIB(64), "/vm", "hugetlb.2MB.rsvd.limit_in_bytes", MIB(2));
        put("0\n", "unified/vm/hugetlb.2MB.max");
        put("0\n", "unified/vm/hugetlb.2MB.current");
        assert_room("/vm", MIB(2), 0, "/vm", "hugetlb.2MB.max", 0);
}

static void test_nonsense(void **state) {
        CgroupRoom room = {};

        put("lots\n", "a/hugetlb.2MB.max");
        assert_true(cgroup_get_room(root, "/a", MIB(2), 0, &room) < 0);
        assert_null(room.cgroup);
}

static void test_paths(void **state) {
        static const char *const good[] = { "/", "/a", "/a.b/c..d", "/.../x" };
        static const char *const bad[] = { "", "a", "/a/", "//a", "/a//b", "/..", "/a/../b", "/.", "/a/." };

        for (size_t i = 0; i < ELEMENTSOF(good); i++)
                assert_true(cgroup_path_is_valid(good[i]));
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                assert_false(cgroup_path_is_valid(bad[i]));
        assert_true(cgroup_is_below("/a/b", "/a"));
        assert_true(cgroup_is_below("/a", "/a"));
        assert_true(cgroup_is_below("/a", "/"));
        assert_false(cgroup_is_below("/ab", "/a"));
        assert_false(cgroup_is_below("/a", "/a/b"));
}

static void test_own(void **state) {
        _cleanup_free_ char *own = NULL;

        assert_int_equal(cgroup_of_process(getpid(), &own), 0);
        assert_true(cgroup_path_is_valid(own));
        assert_int_equal(cgroup_of_process(0x7fffffff, &own), -ESRCH);
}

static void test_owner(void **state) {
        uid_t uid = 0;
        char path[128];

        if (geteuid() != 0)
                skip();
        put("0\n", "a/b/hugetlb.2MB.max");
        put("0\n", "unified/c/hugetlb.2MB.max");
        snprintf(path, sizeof(path), "%s/fs/cgroup/a/b", root);
        assert_int_equal(chown(path, 1, 1), 0);
        assert_int_equal(cgroup_get_owner(root, "/a/b", &uid), 0);
        assert_int_equal(uid, 1);
        /* What is not there yet is whose it will be in. */
        assert_int_equal(cgroup_get_owner(root, "/a/b/later/on", &uid), 0);
        assert_int_equal(uid, 1);
        assert_int_equal(cgroup_get_owner(root, "/a/bc", &uid), 0);
        assert_int_equal(uid, 0);
        assert_int_equal(cgroup_get_owner(root, "/c", &uid), 0);
        assert_int_equal(uid, 0);
        assert_int_equal(cgroup_get_owner(root, "/", &uid), 0);
        assert_int_equal(uid, 0);
        assert_int_equal(cgroup_get_owner("/nowhere", "/a", &uid), -ENOENT);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_case_16_up_the_tree, setup, teardown),
                cmocka_unit_test_setup_teardown(test_owner, setup, teardown),
                cmocka_unit_test_setup_teardown(test_old_trees, setup, teardown),
                cmocka_unit_test_setup_teardown(test_nonsense, setup, teardown),
                cmocka_unit_test(test_paths),
                cmocka_unit_test(test_own),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
