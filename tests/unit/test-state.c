/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state.h"

static char dir[64];

static int setup(void **state) {
        strcpy(dir, "/tmp/tdpd-state-XXXXXX");
        return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
        char command[96];

        snprintf(command, sizeof(command), "rm -rf %s", dir);
        return system(command);
}

static const char *in_dir(const char *name) {
        static char paths[2][128];
        static unsigned k;
        char *path = paths[k++ % 2];

        snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
        return path;
}

static void write_file(const char *name, const char *text, size_t size) {
        int fd = open(in_dir(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, size), size);
        close(fd);
}

/* The only entry, or fails. */
static StateEntry *one(State *s, size_t *n) {
        StateEntry *entries = NULL;

        *n = 0;
        assert_int_equal(state_list(s, 100, &entries, n), 0);
        assert_int_equal(*n, 1);
        return entries;
}

static void test_write(void **state) {
        StateEntry *e;
        State *s = NULL;
        size_t n;

        assert_int_equal(state_open(dir, &s), 0);
        assert_int_equal(state_list(s, 100, &e, &n), 0);
        assert_int_equal(n, 0);
        assert_int_equal(state_write(s, "a.new", "first", 5), 0);
        assert_int_equal(state_write(s, "a.new", "2nd", 3), 0);
        e = one(s, &n);
        assert_string_equal(e->name, "a.new");
        assert_false(e->prepared);
        assert_int_equal(e->size, 3);
        assert_memory_equal(e->text, "2nd", 3);
        state_entries_free(e, n);

        assert_int_equal(state_remove(s, "a.new"), 0);
        assert_int_equal(state_remove(s, "a.new"), 0);
        assert_int_equal(state_prepare(s, "a", "x", 1), 0);
        e = one(s, &n);
        assert_string_equal(e->name, "a");
        assert_true(e->prepared);
        state_entries_free(e, n);
        assert_int_equal(state_prepare(s, "a", "y", 1), 0);
        assert_int_equal(state_commit(s, "a"), 0);
        assert_int_equal(state_commit(s, "a"), -ENOENT);
        e = one(s, &n);
        assert_memory_equal(e->text, "y", 1);
        state_entries_free(e, n);
        assert_int_equal(state_unlink(s, "a.vm"), 0);
        state_free(s);
}

static void test_one_at_a_time(void **state) {
        State *s = NULL, *other = NULL;

        assert_int_equal(state_open(dir, &s), 0);
        assert_int_equal(state_open(dir, &other), -EBUSY);
        state_free(s);
        assert_int_equal(state_open(dir, &other), 0);
        state_free(other);
        assert_int_equal(state_open(in_dir("not/there"), &s), -ENOENT);
        write_file("file", "", 0);
        assert_int_equal(state_open(in_dir("file"), &s), -ENOTDIR);
}

static void check_entry(const char *file, int error, bool has_name) {
        State *s = NULL;
        StateEntry *e;
        size_t n;

        assert_int_equal(state_open(dir, &s), 0);
        e = one(s, &n);
        assert_string_equal(e->file, file);
        assert_int_equal(e->error, error);
        assert_true((e->name != NULL) == has_name);
        assert_true((e->text != NULL) == (error == 0));
        state_entries_free(e, n);
        state_free(s);
}

static void test_strange_files(void **state) {
        char big[101] = {};

        assert_int_equal(mkdir(in_dir("a.vm"), 0700), 0);
        check_entry("a.vm", -EISDIR, true);
        assert_int_equal(rmdir(in_dir("a.vm")), 0);
        assert_int_equal(symlink("/etc/passwd", in_dir("a.vm")), 0);
        check_entry("a.vm", -ELOOP, true);
        assert_int_equal(unlink(in_dir("a.vm")), 0);
        assert_int_equal(mkfifo(in_dir("a.vm"), 0600), 0);
        check_entry("a.vm", -EINVAL, true);
        assert_int_equal(unlink(in_dir("a.vm")), 0);
        write_file("a.vm", big, 101);
        check_entry("a.vm", -EFBIG, true);
        assert_int_equal(unlink(in_dir("a.vm")), 0);
        write_file("a.vm", big, 100);
        check_entry("a.vm", 0, true);
        assert_int_equal(unlink(in_dir("a.vm")), 0);
        write_file("-a b.vm", "", 0);
        check_entry("-a b.vm", 0, false);
        assert_int_equal(unlink(in_dir("-a b.vm")), 0);
        write_file(".vm", "", 0);
        check_entry(".vm", 0, false);
}

/* A record is never written through a link that somebody has put there. */
/* /run/tdpd is one of the places of the configuration. */
static void test_configuration_is_no_record(void **state) {
        StateEntry *e = NULL;
        size_t n;
        State *s;

        assert_int_equal(state_open(dir, &s), 0);
        write_file("tdpd.conf", "[Policy]\n", 9);
        assert_int_equal(mkdir(in_dir("tdpd.conf.d"), 0700), 0);
        assert_int_equal(state_list(s, 100, &e, &n), 0);
        assert_int_equal(n, 0);
        state_entries_free(e, n);
        state_free(s);
}

static void test_no_link_is_followed(void **state) {
        State *s = NULL;
        struct stat st;

        write_file("victim", "abc", 3);
        assert_int_equal(symlink(in_dir("victim"), in_dir("a.new")), 0);
        assert_int_equal(state_open(dir, &s), 0);
        assert_int_equal(state_write(s, "a", "longer text", 11), 0);
        assert_int_equal(stat(in_dir("victim"), &st), 0);
        assert_int_equal(st.st_size, 3);
        assert_int_equal(lstat(in_dir("a.vm"), &st), 0);
        assert_true(S_ISREG(st.st_mode));
        assert_int_equal(st.st_mode & 0777, 0600);
        state_free(s);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_write, setup, teardown),
                cmocka_unit_test_setup_teardown(test_one_at_a_time, setup, teardown),
                cmocka_unit_test_setup_teardown(test_strange_files, setup, teardown),
                cmocka_unit_test_setup_teardown(test_configuration_is_no_record, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_link_is_followed, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
