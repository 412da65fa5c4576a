/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of released VMs that somebody else holds: it drains, also over a restart of tdpd. */
#include "standin.h"
#include "store.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define HELD_BYTES (8 * MIB)
/* Not enough for two of these. */
#define LIMITS "[Limits]\nMaxBytes=15M\n"

/* Bytes that drain of the one VM that may. */
static uint64_t draining_of_vm(Fixture *f) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m;
        const char *name;
        uint64_t bytes = 0;

        if (sd_bus_get_property(f->bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "Draining", &error, &m,
                                "a(stau)") < 0)
                fail_msg("Draining: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(stau)") > 0);
        if (sd_bus_message_enter_container(m, 'r', "stau") > 0) {
                assert_true(sd_bus_message_read(m, "st", &name, &bytes) > 0);
                assert_string_equal(name, "db");
        }
        sd_bus_message_unref(m);
        return bytes;
}

/* The same by pool, which there is one of. */
static uint64_t draining_of_pool(Fixture *f) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        uint64_t bytes = 0, size;
        sd_bus_message *m;
        uint32_t node;

        if (sd_bus_get_property(f->bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "DrainingBytes", &error,
                                &m, "a(utt)") < 0)
                fail_msg("DrainingBytes: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(utt)") > 0);
        if (sd_bus_message_read(m, "(utt)", &node, &size, &bytes) > 0) {
                assert_int_equal(node, 0);
                assert_true(size == 4096 || size == HUGE_2M);
                assert_int_equal(sd_bus_message_read(m, "(utt)", &node, &size, &bytes), 0);
        }
        sd_bus_message_unref(m);
        return bytes;
}

static uint64_t draining(Fixture *f) {
        uint64_t before, by_pool, bytes = draining_of_vm(f);

        /* It may end at any time. */
        do {
                before = bytes;
                by_pool = draining_of_pool(f);
                bytes = draining_of_vm(f);
        } while (bytes != before);
        assert_int_equal(by_pool, bytes);
        return bytes;
}

static void wait_none_drains(Fixture *f) {
        for (uint64_t until = now_usec() + 60000000; draining(f) > 0; usleep(1000))
                assert_true(now_usec() < until);
}

/* Waits until those who have it are known, up to a new look for them. */
static void wait_holder(Fixture *f, uint32_t expected) {
        uint64_t until = now_usec() + 10000000;
        sd_bus_error error = SD_BUS_ERROR_NULL;

        for (;;) {
                const void *pids = NULL;
                const char *name;
                sd_bus_message *m;
                uint64_t bytes;
                size_t n = 0;
                bool same;

                if (sd_bus_get_property(f->bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "Draining",
                                        &error, &m, "a(stau)") < 0)
                        fail_msg("Draining: %s", error.message);
                assert_true(sd_bus_message_enter_container(m, 'a', "(stau)") > 0);
                assert_true(sd_bus_message_enter_container(m, 'r', "stau") > 0);
                assert_true(sd_bus_message_read(m, "st", &name, &bytes) > 0);
                assert_true(sd_bus_message_read_array(m, 'u', &pids, &n) >= 0);
                same = n == sizeof(uint32_t) && memcmp(pids, &expected, n) == 0;
                sd_bus_message_unref(m);
                if (same)
                        return;
                if (now_usec() > until)
                        fail_msg("%zu holders are known, and not %u", n / sizeof(uint32_t), expected);
                usleep(10000);
        }
}

/* Maps the VM's memory, as a backend does that its VMM has given it to. */
static void *hold(Fixture *f, const char *vm, uint64_t bytes) {
        int fd = get_memory(f, vm, 0);
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        assert_ptr_not_equal(p, MAP_FAILED);
        close(fd);
        return p;
}

static void case_34_another_process_holds_it(void **state) {
        uint64_t available = pool_grow(8), free_before = pool_read("free_hugepages");
        Fixture *f = fixture_start_kept(NULL);
        Reservation r = reserve(f, "db", available * HUGE_2M, HUGE_2M);
        void *p;

        assert_string_equal(wait_job(f, r.job)->result, "done");
        p = hold(f, r.vm, available * HUGE_2M);
        release(f, r.vm);
        /* Nothing is tdpd's any more, and nothing is promised again. */
        assert_int_equal(count_vms(f), 0);
        assert_int_equal(store_count(), 0);
        assert_int_equal(draining(f), available * HUGE_2M);
        wait_holder(f, (uint32_t) getpid());
        assert_call_fails(f, ERR("NoPages"), "", "Reserve", "sta{sv}", "db", HUGE_2M, 2, "page-size", "t",
                          HUGE_2M, "nodes", "s", "0");
        munmap(p, available * HUGE_2M);
        assert_pool_free(free_before);
        wait_none_drains(f);
        r = reserve(f, "db", available * HUGE_2M, HUGE_2M);
        assert_string_equal(wait_job(f, r.job)->result, "done");
        release(f, r.vm);
        fixture_stop(f);
}

/* An open descriptor is as good as a mapping. */
static void case_34_another_process_has_it_open(void **state) {
        Fixture *f = fixture_start_kept(NULL);
        Reservation r = reserve(f, "db", 4 * MIB, 4096);
        int fd;

        assert_string_equal(wait_job(f, r.job)->result, "done");
        fd = get_memory(f, r.vm, 0);
        release(f, r.vm);
        assert_int_equal(draining(f), 4 * MIB);
        wait_holder(f, (uint32_t) getpid());
        close(fd);
        wait_none_drains(f);
        fixture_stop(f);
}

/* A release has ended when the pages are free, also if somebody else lets go last. */
static void case_36_pages_come_back_later(void **state) {
        uint64_t available = pool_grow(8), free_before = pool_read("free_hugepages");
        Fixture *f = fixture_start_kept(NULL);
        Reservation r = reserve(f, "db", available * HUGE_2M, HUGE_2M);
        int ready[2];
        pid_t pid;
        char c;

        assert_string_equal(wait_job(f, r.job)->result, "done");
        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        {
                void *p = hold(f, r.vm, available * HUGE_2M);

                store_before_fork();
                pid = fork();
                store_after_fork();
                if (pid == 0) {
                        for (int fd = 3; fd < 256; fd++)
                                if (fd != ready[1])
                                        close(fd);
                        if (write(ready[1], "x", 1) != 1)
                                _exit(1);
                        usleep(100000);
                        _exit(0);
                }
                munmap(p, available * HUGE_2M);
        }
        assert_int_equal(read(ready[0], &c, 1), 1);
        close(ready[0]);
        close(ready[1]);
        release(f, r.vm);
        assert_int_equal(draining(f), 0);
        r = reserve(f, "db", available * HUGE_2M, HUGE_2M);
        assert_string_equal(wait_job(f, r.job)->result, "done");
        release(f, r.vm);
        assert_pool_free(free_before);
        reap(pid, SIGKILL);
        fixture_stop(f);
}

/* A process that has the VM's memory mapped, and nothing else, until it is reaped. */
static pid_t spawn_holder(Fixture *f, const char *vm, uint64_t bytes) {
        void *p = hold(f, vm, bytes);
        int ready[2];
        pid_t pid;
        char c;

        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        store_before_fork();
        pid = fork();
        store_after_fork();
        if (pid == 0) {
                for (int fd = 3; fd < 256; fd++)
                        if (fd != ready[1])
                                close(fd);
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                /* What the next one must not see. */
                memset(p, 0x5a, bytes);
                if (write(ready[1], "x", 1) == 1)
                        pause();
                _exit(1);
        }
        munmap(p, bytes);
        assert_int_equal(read(ready[0], &c, 1), 1);
        close(ready[0]);
        close(ready[1]);
        return pid;
}

/* Jobs' numbers come again, as no VM has kept the last one. */
static Reservation reserve_held(Fixture *f, uint64_t page_size) {
        Reservation r;

        f->n_ends = 0;
        r = reserve(f, "db", HELD_BYTES, page_size);
        assert_string_equal(wait_job(f, r.job)->result, "done");
        return r;
}

static pid_t release_held(Fixture *f, uint64_t page_size) {
        Reservation r = reserve_held(f, page_size);
        pid_t pid;

        pid = spawn_holder(f, r.vm, HELD_BYTES);
        release(f, r.vm);
        assert_int_equal(draining(f), HELD_BYTES);
        return pid;
}

/* The only one that there is, or an empty string. */
static const char *drain_record(Fixture *f) {
        static char path[400];
        struct dirent *de;
        char folder[96];
        DIR *d;

        snprintf(folder, sizeof(folder), "%s/state/draining", f->dir);
        path[0] = '\0';
        d = opendir(folder);
        while (d && (de = readdir(d)))
                if (de->d_name[0] != '.') {
                        assert_string_equal(path, "");
                        snprintf(path, sizeof(path), "%s/%s", folder, de->d_name);
                }
        if (d)
                closedir(d);
        return path;
}

/* It has its holder, is charged as before, and keeps no VM's descriptor. */
static void assert_drains(Fixture *f, pid_t holder) {
        assert_int_equal(draining(f), HELD_BYTES);
        wait_holder(f, (uint32_t) holder);
        assert_call_fails(f, ERR("LimitExceeded"), "MaxBytes", "Reserve", "sta{sv}", "db", HELD_BYTES, 1,
                          "page-size", "t", UINT64_C(4096));
        assert_int_equal(store_count(), 0);
}

/* And whoever has it next has zeros. */
static void assert_ends(Fixture *f, pid_t holder, uint64_t page_size) {
        static char text[HELD_BYTES];
        Reservation r;
        int fd;

        if (holder > 0)
                reap(holder, SIGKILL);
        wait_none_drains(f);
        assert_string_equal(drain_record(f), "");
        r = reserve_held(f, page_size);
        fd = get_memory(f, r.vm, HELD_BYTES);
        memset(text, 1, sizeof(text));
        assert_int_equal(pread(fd, text, sizeof(text), 0), sizeof(text));
        for (size_t i = 0; i < sizeof(text); i++)
                assert_int_equal(text[i], 0);
        close(fd);
        release(f, r.vm);
}

static void case_34_drains_over_restarts(void **state) {
        static const int signals[] = { SIGKILL, SIGTERM, SIGABRT };
        static const uint64_t sizes[] = { 4096, HUGE_2M };
        uint64_t free_before;
        Fixture *f;

        (void) pool_grow(HELD_BYTES / HUGE_2M);
        free_before = pool_read("free_hugepages");
        f = fixture_start_kept(LIMITS);
        for (size_t k = 0; k < 2; k++) {
                pid_t holder = release_held(f, sizes[k]);

                for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
                        fixture_end_and_restart(f, signals[i]);
                        assert_drains(f, holder);
                }
                assert_ends(f, holder, sizes[k]);
        }
        assert_pool_free(free_before);
        fixture_stop(f);
}

/* The service manager drops all it has: then whoever has the memory is found again, and so is the end. */
static void case_34_drains_over_a_stop(void **state) {
        Fixture *f = fixture_start_kept(LIMITS);
        pid_t holder = release_held(f, 4096);

        fixture_kill_tdpd(f, SIGTERM);
        store_lose("");
        fixture_restart(f);
        assert_drains(f, holder);
        /* With what watches it now, which has never watched this. */
        fixture_end_and_restart(f, SIGKILL);
        assert_drains(f, holder);
        assert_ends(f, holder, 4096);
        fixture_stop(f);
}

/* Its holder is gone when tdpd comes. */
static void test_ends_meanwhile(void **state) {
        Fixture *f = fixture_start_kept(LIMITS);

        for (unsigned i = 0; i < 2; i++) {
                pid_t holder = release_held(f, 4096);

                fixture_kill_tdpd(f, SIGKILL);
                reap(holder, SIGKILL);
                if (i == 1)
                        store_lose("");
                fixture_restart(f);
                assert_ends(f, 0, 4096);
        }
        fixture_stop(f);
}

/* Whatever tdpd had done of the release: either the VM is there, or its memory drains. */
static void test_killed_while_releasing(void **state) {
        Fixture *f = fixture_start_kept(LIMITS);

        for (unsigned i = 0; i < 20; i++) {
                Reservation r = reserve_held(f, 4096);
                sd_bus_message *m = NULL;
                pid_t holder;

                holder = spawn_holder(f, r.vm, HELD_BYTES);
                assert_true(sd_bus_message_new_method_call(f->bus, &m, "org.tdpd1", r.vm, "org.tdpd1.VM",
                                                           "Release") >= 0);
                assert_true(sd_bus_send(f->bus, m, NULL) >= 0);
                sd_bus_message_unref(m);
                assert_true(sd_bus_flush(f->bus) >= 0);
                usleep(i * 100);
                fixture_end_and_restart(f, SIGKILL);
                if (count_vms(f) > 0)
                        release(f, r.vm);
                assert_drains(f, holder);
                reap(holder, SIGKILL);
                wait_none_drains(f);
        }
        fixture_stop(f);
}

/* What the records say is taken with care: what is damaged or newer is left alone, and so is a descriptor
 * that is none of these. */
static void test_bad_records(void **state) {
        static const struct {
                const char *key, *value;
                bool left; /* alone; else it is gone */
        } edits[] = {
                { "tdpd-drain", "2", true },
                { "uid", "x", true },
                { "lease", "0000000000000000", true },
                { "lease", "0123456789abcdef", true },
                { "page-size", "4097", true },
                { "file", "0 4096", true },
                { "file", "0 4096 1 18446744073709551616", true },
                { "boot-id", "00000000-0000-0000-0000-000000000000", false },
        };
        Fixture *f = fixture_start_kept(LIMITS);

        for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
                sd_bus_error error = SD_BUS_ERROR_NULL;
                pid_t holder = release_held(f, 4096);
                const char *path, *text, *what, *word;
                sd_bus_message *m;

                fixture_kill_tdpd(f, SIGKILL);
                path = drain_record(f);
                record_edit(path, edits[i].key, edits[i].value);
                if (i == 0) {
                        store_lose("-d0-");
                        store_put("tdp1-d0-0000000000000001", open("/dev/null", O_RDONLY | O_CLOEXEC));
                }
                fixture_restart(f);
                assert_int_equal(draining(f), 0);
                assert_int_equal(access(path, F_OK), edits[i].left ? 0 : -1);
                assert_true(sd_bus_get_property(f->bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager",
                                                "Quarantine", &error, &m, "a(sss)") >= 0);
                assert_true(sd_bus_message_enter_container(m, 'a', "(sss)") > 0);
                if (edits[i].left) {
                        assert_true(sd_bus_message_read(m, "(sss)", &what, &word, &text) > 0);
                        assert_non_null(strstr(what, "/draining/"));
                        assert_int_equal(unlink(path), 0);
                }
                if (i == 0) {
                        assert_true(sd_bus_message_read(m, "(sss)", &what, &word, &text) > 0);
                        assert_non_null(strstr(what, "tdp1-d0-"));
                        store_lose("-d0-");
                }
                assert_true(sd_bus_message_at_end(m, false) > 0);
                sd_bus_message_unref(m);
                reap(holder, SIGKILL);
        }
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(case_34_another_process_holds_it, standin_teardown),
                cmocka_unit_test_teardown(case_34_another_process_has_it_open, standin_teardown),
                cmocka_unit_test_teardown(case_36_pages_come_back_later, standin_teardown),
                cmocka_unit_test_teardown(case_34_drains_over_restarts, standin_teardown),
                cmocka_unit_test_teardown(case_34_drains_over_a_stop, standin_teardown),
                cmocka_unit_test_teardown(test_ends_meanwhile, standin_teardown),
                cmocka_unit_test_teardown(test_killed_while_releasing, standin_teardown),
                cmocka_unit_test_teardown(test_bad_records, standin_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
