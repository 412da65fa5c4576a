/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Each system call that tdpd makes for a VM fails once, in each place: a named error or a success, and
 * nothing left. */
#include "failing.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin.h"
#include "store.h"

#define N_MAX 200U

typedef struct Failure {
        const char *call;
        int errors[4];
        bool libraries;
} Failure;

static const Failure reserve_failures[] = {
        { "open", { EMFILE, ENFILE, EACCES, ENOENT } },
        { "open", { EIO, ENOSPC, EROFS } },
        { "read", { EIO, EINTR } },
        { "memfd_create", { EMFILE, ENFILE, ENOMEM, EINVAL } },
        { "ftruncate", { EINVAL, ENOSPC } },
        { "fcntl", { EBUSY, EPERM } },
        { "mmap", { ENOMEM, ENODEV, EAGAIN } },
        { "mbind", { EPERM, EINVAL } },
        { "madvise", { EFAULT, ENOMEM, EHWPOISON, EINTR } },
        { "eventfd", { EMFILE, ENOMEM } },
        { "pthread_create", { EAGAIN } },
        { "sendmsg", { ENOBUFS } },
        { "write", { ENOSPC, EROFS, EIO } },
        { "rename", { ENOSPC, EROFS, EIO } },
        { "notify", { ENOBUFS, ECONNREFUSED }, true },
};

static const Failure attach_failures[] = {
        { "open", { EMFILE, EACCES } },
        { "read", { EIO } },
        { "pidfd_open", { EMFILE, ESRCH, EINVAL } },
        { "pidfd_getfd", { EPERM, EBADF, EMFILE } },
        { "readlinkat", { ENOENT, EACCES } },
        { "fcntl", { EMFILE } },
        { "eventfd", { EMFILE } },
        { "pthread_create", { EAGAIN } },
        { "prlimit", { EPERM } },
        { "write", { ENOSPC, EIO } },
        { "rename", { EROFS } },
        { "notify", { ENOBUFS }, true },
};

static const char *record_path(Fixture *f, const char *file) {
        static char path[160];

        snprintf(path, sizeof(path), "%s/state/%s", f->dir, file);
        return path;
}

static bool record_says(Fixture *f, const char *line) {
        char text[8192] = "";
        FILE *in = fopen(record_path(f, "db.vm"), "re");

        assert_non_null(in);
        (void) fread(text, 1, sizeof(text) - 1, in);
        fclose(in);
        return strstr(text, line) != NULL;
}

/* Makes the VM "db" and waits until its job has ended; false: "error" says why there is none. */
typedef bool (*make_t)(Fixture *f, void *userdata, sd_bus_error *error);

static bool job_is_done(Fixture *f, sd_bus_message *m, sd_bus_error *error) {
        const char *vm, *job;
        const JobEnd *end;

        if (!m)
                return false;
        assert_true(sd_bus_message_read(m, "oo", &vm, &job) > 0);
        end = wait_job(f, job);
        if (strcmp(end->result, "done") != 0)
                sd_bus_error_setf(error, end->error, "%s", end->message);
        sd_bus_message_unref(m);
        return !sd_bus_error_is_set(error);
}

static bool make_reserved(Fixture *f, void *userdata, sd_bus_error *error) {
        return job_is_done(f,
                           manager_call(f, error, "Reserve", "sta{sv}", "db", 2 * HUGE_2M, 2, "page-size",
                                        "t", HUGE_2M, "nodes", "s", "0"),
                           error);
}

static bool make_attached(Fixture *f, void *userdata, sd_bus_error *error) {
        if (!job_is_done(f,
                         manager_call(f, error, "AttachPid", "sua{sv}", "db",
                                      (uint32_t) * (pid_t *) userdata, 1, "decision", "s", "always"),
                         error))
                return false;
        /* The next tdpd has to know its VMM. */
        assert_false(record_says(f, "\nstart-time 0\n"));
        return true;
}

static void assert_named(const sd_bus_error *e, const char *what) {
        if (strncmp(e->name, ERR(""), strlen(ERR(""))) != 0 || strlen(e->message) < 20 ||
            strstr(e->message, "(null)"))
                fail_msg("%s: this is no error to go by: %s: %s", what, e->name, e->message);
}

static void assert_gone(Fixture *f, const char *what) {
        uint64_t until = now_usec() + 3000000;

        while (count_vms(f) != 0)
                if (now_usec() > until)
                        fail_msg("%s: the VM is still there", what);
}

static void assert_nothing_kept(Fixture *f, const char *what) {
        uint64_t until = now_usec() + 3000000;

        /* The service manager is told again a second later. */
        while (store_count() != 0) {
                if (now_usec() > until)
                        fail_msg("%s: the service manager still has descriptors", what);
                usleep(10000);
        }
        if (access(record_path(f, "db.vm"), F_OK) == 0 || access(record_path(f, "db.new"), F_OK) == 0)
                fail_msg("%s: a record is left", what);
}

/* Returns how often it has failed. */
static unsigned fail_each(Fixture *f, make_t make, void *userdata, const Failure *failure, int error_number,
                          unsigned fds) {
        unsigned n;

        for (n = 1; n < N_MAX; n++) {
                sd_bus_error error = SD_BUS_ERROR_NULL;
                bool fired, made;
                char what[96];

                f->n_ends = 0;
                snprintf(what, sizeof(what), "%s number %u: %s", failure->call, n, strerror(error_number));
                failing_arm(failure->call, error_number, n, failure->libraries);
                made = make(f, userdata, &error);
                fired = failing_disarm();

                if (!made) {
                        if (!fired)
                                fail_msg("%s without a failure: %s: %s", failure->call, error.name,
                                         error.message);
                        assert_named(&error, what);
                } else
                        release(f, VM_PATH);
                sd_bus_error_free(&error);
                assert_gone(f, what);
                failing_assert_fds(f, fds, what);
                assert_nothing_kept(f, what);
                if (!fired)
                        return n - 1;
        }
        fail_msg("%s: more than %u calls", failure->call, N_MAX);
        return 0;
}

static void fail_all(Fixture *f, make_t make, void *userdata, const Failure *failures, size_t n_failures) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        unsigned n = 0, fds;

        /* Some descriptors are opened once, like those of timers. */
        if (!make(f, userdata, &error))
                fail_msg("%s: %s", error.name, error.message);
        release(f, VM_PATH);
        assert_gone(f, "at first");
        fds = failing_count_fds(f);

        for (size_t i = 0; i < n_failures; i++)
                for (size_t k = 0; k < 4 && failures[i].errors[k] != 0; k++)
                        n += fail_each(f, make, userdata, &failures[i], failures[i].errors[k], fds);
        print_message("%u calls failed\n", n);
        assert_true(n > 0);
}

#define fail_table(f, make, userdata, table)                                                                \
        fail_all(f, make, userdata, table, sizeof(table) / sizeof(table[0]))

static void test_reserve(void **state) {
        uint64_t free = pool_grow(8);
        Fixture *f;

        store_begin();
        f = failing_start(NULL, NULL);

        fail_table(f, make_reserved, NULL, reserve_failures);
        /* All pages are there, and all of them can be had. */
        assert_pool_free(free);
        for (unsigned i = 0; i < 2; i++) {
                Reservation r = reserve(f, "all", free * HUGE_2M, HUGE_2M);

                assert_string_equal(wait_job(f, r.job)->result, "done");
                release(f, r.vm);
        }
        fixture_stop(f);
}

static void test_attach(void **state) {
        pid_t pid = spawn_vmm(1, 0);
        Fixture *f;

        store_begin();
        assert_int_equal(setenv("TDPD", getenv("TDPD_STANDIN"), 1), 0);
        f = failing_start(NULL, "--device=standin:good");
        fail_table(f, make_attached, &pid, attach_failures);
        reap(pid, SIGKILL);
        fixture_stop(f);
}

/* A VM that cannot be recorded is none. */
static void test_record_fails_at_first(void **state) {
        static const struct {
                const char *call;
                int error;
                bool libraries;
        } failures[] = {
                { "write", ENOSPC },         { "write", EIO },        { "rename", EROFS }, { "rename", EIO },
                { "notify", ENOBUFS, true }, { "notify", EIO, true },
        };
        uint64_t free = pool_grow(8);
        Fixture *f;

        store_begin();
        f = failing_start(NULL, NULL);
        for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
                failing_arm(failures[i].call, failures[i].error, 1, failures[i].libraries);
                assert_call_fails(f, ERR("Failed"), "could not be kept over a restart", "Reserve", "sta{sv}",
                                  "db", free * HUGE_2M, 2, "page-size", "t", HUGE_2M, "nodes", "s", "0");
                assert_true(failing_disarm());
                assert_int_equal(count_vms(f), 0);
                assert_nothing_kept(f, failures[i].call);
                assert_pool_free(free);
        }
        fixture_stop(f);
}

/* The record that is written when it has its memory fails. */
static void reserve_with_old_record(Fixture *f, const char *call_name, int error_number) {
        Reservation r;

        failing_arm(call_name, error_number, 2, false);
        r = reserve(f, "db", 4 * MIB, 4096);
        assert_string_equal(wait_job(f, r.job)->result, "done");
        assert_int_equal(count_vms(f), 1); /* and so it has been tried */
        assert_true(failing_disarm());
}

/* One that cannot be brought up to date costs the VM nothing, and is written a second later. */
static void test_record_fails_later(void **state) {
        static const struct {
                const char *call;
                int error;
        } failures[] = { { "write", ENOSPC }, { "write", EIO }, { "rename", EROFS }, { "rename", EIO } };
        Fixture *f;
        char *s;

        store_begin();
        f = failing_start(NULL, NULL);
        for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
                uint64_t until = now_usec() + 3000000;

                f->n_ends = 0;
                reserve_with_old_record(f, failures[i].call, failures[i].error);
                assert_true(record_says(f, "\nstate reserved\n"));
                while (!record_says(f, "\nstate populated\n")) {
                        assert_true(now_usec() < until);
                        usleep(10000);
                }
                assert_int_equal(store_count(), 1);
                release(f, VM_PATH);
                assert_nothing_kept(f, failures[i].call);
        }

        /* Nor if tdpd dies before. */
        reserve_with_old_record(f, "rename", ENOSPC);
        fixture_kill_tdpd(f, SIGKILL);
        assert_true(record_says(f, "\nstate reserved\n"));
        f->n_ends = 0;
        fixture_restart(f);
        for (uint64_t until = now_usec() + 3000000;; free(s)) {
                s = vm_state(f, VM_PATH);
                if (strcmp(s, "populated") == 0)
                        break;
                assert_true(now_usec() < until);
        }
        free(s);
        assert_int_equal(store_count(), 1);
        release(f, VM_PATH);
        fixture_stop(f);
}

/* A clean end does not leave it to the next attempt, which would come too late. */
static void test_record_at_the_end(void **state) {
        Fixture *f;

        store_begin();
        f = failing_start(NULL, NULL);
        reserve_with_old_record(f, "write", ENOSPC);
        assert_true(record_says(f, "\nstate reserved\n"));
        fixture_kill_tdpd(f, SIGTERM);
        assert_true(record_says(f, "\nstate populated\n"));
        fixture_restart(f);
        assert_state(f, "populated");
        assert_int_equal(store_count(), 1);
        release(f, VM_PATH);
        fixture_stop(f);
}

/* Why the host cannot be measured is said as it is for VMs. */
static void test_calibrate(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m;
        const JobEnd *end;
        const char *job;
        Fixture *f = failing_start(NULL, NULL);

        failing_arm("memfd_create", ENOMEM, 1, false);
        assert_call_fails(f, ERR("NoPages"), "the kernel refused to set them aside", "Calibrate", "a{sv}",
                          0);
        assert_true(failing_disarm());

        failing_arm("madvise", EHWPOISON, 1, false);
        m = manager_call(f, &error, "Calibrate", "a{sv}", 0);
        if (!m)
                fail_msg("Calibrate: %s", error.message);
        assert_true(sd_bus_message_read(m, "o", &job) > 0);
        end = wait_job(f, job);
        assert_string_equal(end->error, ERR("Failed"));
        assert_non_null(strstr(end->message, "memory of node 0 is broken"));
        assert_true(failing_disarm());
        sd_bus_message_unref(m);
        fixture_stop(f);
}

/* Pages that the service manager keeps would be nobody's. */
static void test_taking_back_fails(void **state) {
        uint64_t free = pool_grow(8);
        Fixture *f;
        bool fired;

        store_begin();
        f = failing_start(NULL, NULL);
        for (unsigned n = 1;; n++) {
                Reservation r = reserve(f, "db", free * HUGE_2M, HUGE_2M);

                assert_string_equal(wait_job(f, r.job)->result, "done");
                f->n_ends = 0;
                assert_int_equal(count_vms(f), 1);
                failing_arm("notify", ENOBUFS, n, true);
                release(f, r.vm);
                fired = failing_disarm();
                assert_nothing_kept(f, "notify");
                assert_pool_free(free);
                if (!fired) {
                        assert_true(n > 2); /* the descriptor, and the barrier behind it */
                        break;
                }
        }
        fixture_stop(f);
}

/* Nor is it forgotten if the next tdpd cannot say it either. */
static void test_undoing_fails(void **state) {
        Reservation r;
        Fixture *f;
        int status;

        store_begin();
        f = failing_start(NULL, NULL);
        r = reserve(f, "db", 4 * MIB, 4096);
        assert_string_equal(wait_job(f, r.job)->result, "done");
        assert_int_equal(store_count(), 1);
        fixture_kill_tdpd(f, SIGKILL);
        /* As if it had been killed while it released the VM. */
        record_edit(record_path(f, "db.vm"), "state", "released");
        failing_arm("notify", ENOBUFS, 1, true);
        assert_true(failing_restart(f, &status));
        assert_true(failing_disarm());
        assert_int_equal(count_vms(f), 0);
        assert_nothing_kept(f, "at the takeover");
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_reserve, fixture_teardown),
                cmocka_unit_test_teardown(test_attach, fixture_teardown),
                cmocka_unit_test_teardown(test_record_fails_at_first, fixture_teardown),
                cmocka_unit_test_teardown(test_record_fails_later, fixture_teardown),
                cmocka_unit_test_teardown(test_record_at_the_end, fixture_teardown),
                cmocka_unit_test_teardown(test_calibrate, fixture_teardown),
                cmocka_unit_test_teardown(test_taking_back_fails, fixture_teardown),
                cmocka_unit_test_teardown(test_undoing_fails, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
