/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which files are read, and in which order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "config.h"
#include "tree.h"

static char root[] = "/tmp/tdpd-config-XXXXXX";

/* "text" NULL: a link to "target". */
static void put(const char *path, const char *text, const char *target) {
        char full[320];

        snprintf(full, sizeof(full), "%s%s", root, path);
        /* Not to write into what a link there leads to. */
        (void) unlink(full);
        /* Also for a link, as the folders above it come with it. */
        tree_put(root, path + 1, text ?: "");
        if (!target)
                return;
        assert_int_equal(unlink(full), 0);
        assert_int_equal(symlink(target, full), 0);
}

static int setup(void **state) {
        strcpy(root, "/tmp/tdpd-config-XXXXXX");
        return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state) {
        return tree_remove(root);
}

static void load(Config *c) {
        ConfigError e;

        if (config_load(&(ConfigSource){ .root = root }, c, &e) < 0)
                fail_msg("refused: %s", e.text);
}

/* And the target stays as it was. */
static void refused(const ConfigSource *source, int r, const char *want) {
        Config c = { .threads = 4711 };
        ConfigError e;

        assert_int_equal(config_load(source, &c, &e), r);
        assert_int_equal(c.threads, 4711);
        if (!strstr(e.text, want))
                fail_msg("said \"%s\", not \"%s\"", e.text, want);
}

static void root_refused(int r, const char *want) {
        refused(&(ConfigSource){ .root = root }, r, want);
}

static void test_nothing(void **state) {
        Config c;

        load(&c);
        assert_int_equal(c.threads, 16);
        config_done(&c);
        refused(&(ConfigSource){ .file = "/nonexistent/tdpd.conf" }, -ENOENT,
                "/nonexistent/tdpd.conf: cannot be read: No such file or directory");
}

static void test_main_file(void **state) {
        static const char *const dirs[] = { "/usr/lib", "/usr/local/lib", "/run", "/etc" };

        for (unsigned i = 0; i < 4; i++) {
                char path[64], text[64];
                Config c;

                snprintf(path, sizeof(path), "%s/tdpd/tdpd.conf", dirs[i]);
                snprintf(text, sizeof(text), "[Workers]\nThreads=%u\n", i + 1);
                put(path, text, NULL);
                /* Not merged. */
                if (i == 2)
                        put("/usr/lib/tdpd/tdpd.conf", "[Limits]\nMaxVMs=1\n", NULL);
                load(&c);
                assert_int_equal(c.threads, i + 1);
                assert_int_equal(c.limits.vms, 256);
                config_done(&c);
        }
}

static void test_dropins(void **state) {
        Config c;

        put("/etc/tdpd/tdpd.conf", "[Workers]\nThreads=1\n[Limits]\nMaxVMs=1\nMaxJobs=1\n", NULL);
        /* By name, whichever folder they are in. */
        put("/usr/lib/tdpd/tdpd.conf.d/20-b.conf", "[Workers]\nThreads=2\n[Limits]\nMaxJobs=2\n", NULL);
        put("/etc/tdpd/tdpd.conf.d/10-a.conf", "[Workers]\nThreads=3\n[Limits]\nMaxVMs=3", NULL);
        put("/run/tdpd/tdpd.conf.d/30-c.conf", "[Limits]\nMaxJobs=4\n", NULL);
        /* No drop-ins. */
        put("/etc/tdpd/tdpd.conf.d/99.conf.dpkg-old", "nonsense\n", NULL);
        put("/etc/tdpd/tdpd.conf.d/.99.conf", "nonsense\n", NULL);
        put("/etc/tdpd/tdpd.conf.d/README", "nonsense\n", NULL);
        load(&c);
        assert_int_equal(c.threads, 2);
        assert_int_equal(c.limits.vms, 3);
        assert_int_equal(c.limits.jobs, 4);
        config_done(&c);
}

static void test_masking(void **state) {
        static const char *const names[] = { "10-a", "20-b", "30-c" };
        Config c;

        for (unsigned i = 0; i < 3; i++) {
                char path[64];

                snprintf(path, sizeof(path), "/usr/lib/tdpd/tdpd.conf.d/%s.conf", names[i]);
                put(path,
                    i == 0   ? "[Workers]\nThreads=2\n"
                    : i == 1 ? "[Limits]\nMaxVMs=2\n"
                             : "nonsense\n",
                    NULL);
        }
        put("/etc/tdpd/tdpd.conf.d/10-a.conf", "[Limits]\nMaxJobs=2\n", NULL);
        put("/usr/local/lib/tdpd/tdpd.conf.d/20-b.conf", "", NULL);
        put("/run/tdpd/tdpd.conf.d/30-c.conf", NULL, "/dev/null");
        load(&c);
        assert_int_equal(c.threads, 16);
        assert_int_equal(c.limits.vms, 256);
        assert_int_equal(c.limits.jobs, 2);
        config_done(&c);

        /* The place that is told is the one that is wrong. */
        put("/etc/tdpd/tdpd.conf.d/30-c.conf", "[Limits]\nMaxVMs=1\nMaxJobs=x\n", NULL);
        root_refused(-EINVAL, "/etc/tdpd/tdpd.conf.d/30-c.conf:3: [Limits] MaxJobs=x makes no sense");
}

static void test_one_file_only(void **state) {
        char path[256];
        Config c;
        ConfigError e;

        put("/etc/tdpd/tdpd.conf.d/10-a.conf", "[Workers]\nThreads=3\n", NULL);
        put("/one.conf", "[Limits]\nMaxVMs=7\n", NULL);
        snprintf(path, sizeof(path), "%s/one.conf", root);
        assert_int_equal(config_load(&(ConfigSource){ .file = path }, &c, &e), 0);
        assert_int_equal(c.limits.vms, 7);
        assert_int_equal(c.threads, 16);
        config_done(&c);
}

static void test_what_is_no_file(void **state) {
        char path[256];

        put("/etc/tdpd/tdpd.conf/x", "", NULL);
        root_refused(-EINVAL, "/etc/tdpd/tdpd.conf: is no regular file");
        teardown(NULL);
        assert_int_equal(mkdir(root, 0700), 0);

        put("/etc/tdpd/tdpd.conf.d/10-a.conf/x", "", NULL);
        root_refused(-EINVAL, "10-a.conf: is no regular file");
        teardown(NULL);
        assert_int_equal(mkdir(root, 0700), 0);

        put("/etc/tdpd/tdpd.conf.d/10-a.conf", NULL, "10-a.conf");
        root_refused(-ELOOP, "10-a.conf: cannot be read: Too many levels of symbolic links");
        put("/etc/tdpd/tdpd.conf.d/10-a.conf", NULL, "nowhere");
        root_refused(-ENOENT, "10-a.conf: cannot be read: No such file");
        put("/etc/tdpd/tdpd.conf.d/10-a.conf", NULL, "/dev/zero");
        root_refused(-EINVAL, "10-a.conf: is no regular file");
        snprintf(path, sizeof(path), "%s/etc/tdpd/tdpd.conf.d/10-a.conf", root);
        assert_int_equal(unlink(path), 0);
        /* Nobody writes into it: that must not be waited for. */
        assert_int_equal(mkfifo(path, 0600), 0);
        root_refused(-EINVAL, "10-a.conf: is no regular file");
        assert_int_equal(unlink(path), 0);

        put("/etc/tdpd/x", "", NULL);
        put("/run/tdpd/tdpd.conf.d", "no folder\n", NULL);
        root_refused(-ENOTDIR, "/run/tdpd/tdpd.conf.d: cannot be read: Not a directory");
}

static void test_unreadable(void **state) {
        if (geteuid() == 0) {
                print_message("root can read everything\n");
                skip();
        }
        put("/etc/tdpd/tdpd.conf", "[Workers]\n", NULL);
        chmod(root, 0);
        root_refused(-EACCES, "cannot be read: Permission denied");
        chmod(root, 0700);
}

static void test_too_much(void **state) {
        char path[256], *text;
        Config c;
        int fd;

        /* As large as may be, and one byte more. */
        text = calloc(1, MIB(1) + 2);
        assert_non_null(text);
        memset(text, '\n', MIB(1) + 1);
        memcpy(text + MIB(1) - 20, "[Workers]\nThreads=5\n", 20);
        text[MIB(1)] = '\0';
        put("/etc/tdpd/tdpd.conf", text, NULL);
        load(&c);
        assert_int_equal(c.threads, 5);
        config_done(&c);
        text[MIB(1)] = '\n';
        put("/etc/tdpd/tdpd.conf", text, NULL);
        free(text);
        root_refused(-EINVAL, "/etc/tdpd/tdpd.conf: is larger than 1048576 bytes");

        /* Nothing of it is read into memory. */
        snprintf(path, sizeof(path), "%s/etc/tdpd/tdpd.conf", root);
        fd = open(path, O_WRONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t) GIB(64)), 0);
        close(fd);
        root_refused(-EINVAL, "is larger than");

        put("/etc/tdpd/tdpd.conf", "", NULL);
        for (unsigned i = 0; i < 1001; i++) {
                snprintf(path, sizeof(path), "/etc/tdpd/tdpd.conf.d/%u.conf", i);
                put(path, "", NULL);
        }
        root_refused(-EINVAL, "more than 1000 drop-ins");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                TEST(test_nothing),    TEST(test_main_file),     TEST(test_dropins),
                TEST(test_masking),    TEST(test_one_file_only), TEST(test_what_is_no_file),
                TEST(test_unreadable), TEST(test_too_much),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
