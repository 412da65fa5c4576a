/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* When memory is free that others have as well. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "drain.h"

static sd_event *event;
static DrainWatch *watch;
static unsigned n_told;

static int setup(void **state) {
        n_told = 0;
        assert_true(sd_event_new(&event) >= 0);
        assert_true(drain_watch_new(event, -1, &watch) >= 0);
        return 0;
}

static int teardown(void **state) {
        watch = drain_watch_free(watch);
        event = sd_event_unref(event);
        return 0;
}

static void on_over(Drain *d, void *userdata) {
        n_told++;
}

static void run(void) {
        while (sd_event_run(event, 0) > 0)
                ;
}

static Memory *make_memory(size_t n_parts) {
        Memory *m = calloc(1, sizeof(*m) + n_parts * sizeof(MemoryPart));

        assert_non_null(m);
        m->page_size = KIB(4);
        for (; m->n_parts < n_parts; m->n_parts++) {
                MemoryPart *part = &m->parts[m->n_parts];

                part->bytes = KIB(4) << m->n_parts;
                part->node = (unsigned) m->n_parts;
                part->fd = memfd_create("tdpd:test", MFD_CLOEXEC);
                assert_true(part->fd >= 0);
        }
        return m;
}

static void test_parts(void **state) {
        Memory *m = make_memory(2);
        Drain *d;

        assert_int_equal(drain_new(watch, m, &d), 0);
        drain_notify(d, on_over, NULL);
        run();
        assert_int_equal(drain_bytes(d), KIB(4) + KIB(8));
        m->parts[0].fd = safe_close(m->parts[0].fd);
        run();
        assert_int_equal(drain_bytes(d), KIB(8));
        assert_int_equal(n_told, 0);
        memory_free(m);
        run();
        assert_int_equal(n_told, 1);
        assert_true(drain_is_over(d));
        run();
        assert_int_equal(n_told, 1);
        drain_free(d);
}

/* Who looks at one reads what the other is to be told of. */
static void test_told_all_the_same(void **state) {
        Memory *a = make_memory(1), *b = make_memory(1);
        Drain *d, *e;

        assert_int_equal(drain_new(watch, a, &d), 0);
        assert_int_equal(drain_new(watch, b, &e), 0);
        drain_notify(e, on_over, NULL);
        run();
        memory_free(b);
        assert_false(drain_is_over(d));
        run();
        assert_int_equal(n_told, 1);
        drain_free(d);
        drain_free(e);
        memory_free(a);
}

/* The instance outlives the daemon, with what it has been told meanwhile. */
static void test_another_daemon(void **state) {
        Memory *m = make_memory(3);
        DrainFile files[3];
        Drain *d;
        size_t n;
        int fd;

        assert_int_equal(drain_new(watch, m, &d), 0);
        memcpy(files, drain_files(d, &n), sizeof(files));
        assert_int_equal(n, 3);
        fd = fcntl(drain_watch_fd(watch), F_DUPFD_CLOEXEC, 0);
        assert_true(drain_watch_is_one(fd));
        assert_false(drain_watch_is_one(m->parts[0].fd));
        drain_free(d);
        drain_watch_free(watch);
        m->parts[0].fd = safe_close(m->parts[0].fd);

        assert_true(drain_watch_new(event, fd, &watch) >= 0);
        files[1].inode += 100000; /* never watched */
        assert_int_equal(drain_new_from(watch, KIB(4), files, 3, &d), 0);
        drain_notify(d, on_over, NULL);
        assert_int_equal(drain_files(d, &n)[0].watch, -1);
        assert_int_equal(drain_files(d, &n)[1].watch, -1);
        assert_true(drain_files(d, &n)[2].watch >= 0);
        /* Nobody has these two, as far as can be seen, and then it is sure. */
        drain_note_looked_for(d, 0, false);
        drain_note_looked_for(d, 1, false);
        drain_note_looked_for(d, 1, true);
        drain_note_looked_for(d, 0, false);
        drain_note_looked_for(d, 1, false);
        run();
        assert_int_equal(drain_bytes(d), KIB(8) + KIB(16));
        drain_note_looked_for(d, 1, false);
        memory_free(m);
        run();
        assert_int_equal(drain_bytes(d), 0);
        assert_int_equal(n_told, 1);
        drain_free(d);
}

static unsigned read_max_events(void) {
        FILE *f = fopen("/proc/sys/fs/inotify/max_queued_events", "re");
        unsigned n = 0;

        assert_non_null(f);
        assert_int_equal(fscanf(f, "%u", &n), 1);
        fclose(f);
        return n;
}

/* The kernel drops events of which there are too many. */
static void test_lost_events(void **state) {
        unsigned max = read_max_events();
        Memory *a = make_memory(1), *b = make_memory(1);
        Drain *d, *e;

        if (max > 100000) {
                print_message("a queue of %u events is too long for a test\n", max);
                skip();
        }
        assert_int_equal(drain_new(watch, a, &d), 0);
        assert_int_equal(drain_new(watch, b, &e), 0);
        drain_notify(d, on_over, NULL);
        run();
        for (unsigned i = 0; i < max / 2 + 100; i++) {
                Memory *m = make_memory(1);
                Drain *other;

                assert_int_equal(drain_new(watch, m, &other), 0);
                drain_free(other);
                memory_free(m);
        }
        memory_free(a);
        run();
        assert_int_equal(n_told, 1);
        assert_true(drain_is_over(d));
        assert_false(drain_is_over(e));
        drain_free(d);
        drain_free(e);
        memory_free(b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_parts, setup, teardown),
                cmocka_unit_test_setup_teardown(test_told_all_the_same, setup, teardown),
                cmocka_unit_test_setup_teardown(test_another_daemon, setup, teardown),
                cmocka_unit_test_setup_teardown(test_lost_events, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
