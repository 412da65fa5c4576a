/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Records and descriptors that are not as tdpd has left them: nothing is released because of them. */
#include "standin.h"
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static Fixture *start(void) {
        require_root();
        store_begin();
        return fixture_start(NULL, NULL);
}

static const char *record_path(Fixture *f, const char *file) {
        static char path[160];

        snprintf(path, sizeof(path), "%s/state/%s", f->dir, file);
        return path;
}

static size_t read_record(Fixture *f, const char *file, char text[static 8192]) {
        FILE *in = fopen(record_path(f, file), "re");
        size_t n;

        assert_non_null(in);
        n = fread(text, 1, 8192, in);
        fclose(in);
        return n;
}

static void write_record(Fixture *f, const char *file, const char *text, size_t n) {
        FILE *out = fopen(record_path(f, file), "we");

        assert_non_null(out);
        assert_int_equal(fwrite(text, 1, n, out), n);
        fclose(out);
}

/* "what (word)" of all entries, one after the other. */
static const char *quarantine(Fixture *f) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *what, *word, *text;
        static char all[4096];
        sd_bus_message *m;
        size_t n = 0;

        all[0] = '\0';
        if (sd_bus_get_property(f->bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "Quarantine", &error, &m,
                                "a(sss)") < 0)
                fail_msg("Quarantine: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(sss)") > 0);
        while (sd_bus_message_read(m, "(sss)", &what, &word, &text) > 0)
                n += (size_t) snprintf(all + n, sizeof(all) - n, "%s (%s)\n", what, word);
        sd_bus_message_unref(m);
        return all;
}

static void assert_quarantine_has(Fixture *f, const char *part) {
        if (!strstr(quarantine(f), part))
                fail_msg("\"%s\" is not in \"%s\"", part, quarantine(f));
}

static Reservation populate(Fixture *f, const char *name) {
        Reservation r = reserve(f, name, 8 * MIB, 4096);

        assert_string_equal(wait_job(f, r.job)->result, "done");
        return r;
}

/* A daemon that finds this record serves, has not got this VM and keeps its descriptor; then it is put
 * right. */
static void check_bad(Fixture *f, const char *word, const char *text, size_t n) {
        char good[8192];
        size_t n_good = read_record(f, "db.vm", good);

        write_record(f, "db.vm", text, n);
        fixture_restart(f);
        assert_int_equal(count_vms(f), 0);
        assert_int_equal(store_count(), 1);
        assert_quarantine_has(f, word);
        assert_quarantine_has(f, "descriptor tdp1-m0-");
        assert_call_fails(f, ERR("NameTaken"), "is left alone", "Reserve", "sta{sv}", "db", 4 * MIB, 0);
        fixture_kill_tdpd(f, SIGKILL);
        write_record(f, "db.vm", good, n_good);
}

static void test_bad_records(void **state) {
        static const char garbage[] = "\x7f"
                                      "ELF\0\1\2\3 and so on\n";
        Fixture *f = start();
        Reservation r = populate(f, "db");
        char text[8192], other[8192];
        size_t n;

        fixture_kill_tdpd(f, SIGKILL);
        n = read_record(f, "db.vm", text);
        for (size_t cut = 0; cut < n; cut += 1 + n / 8)
                check_bad(f, "(truncated)", text, cut);
        memcpy(other, text, n);
        other[n / 2] ^= 1;
        check_bad(f, "(damaged)", other, n);
        memcpy(other, text, n);
        memcpy(other, "tdpd-record 2\n", 14);
        check_bad(f, "(newer)", other, n);
        check_bad(f, "(no-record)", garbage, sizeof(garbage));

        /* Files that are no files. */
        assert_int_equal(unlink(record_path(f, "db.vm")), 0);
        assert_int_equal(mkdir(record_path(f, "db.vm"), 0700), 0);
        fixture_restart(f);
        assert_quarantine_has(f, "(unreadable)");
        assert_int_equal(store_count(), 1);
        fixture_kill_tdpd(f, SIGKILL);
        assert_int_equal(rmdir(record_path(f, "db.vm")), 0);
        assert_int_equal(symlink("/dev/zero", record_path(f, "db.vm")), 0);
        fixture_restart(f);
        assert_quarantine_has(f, "(unreadable)");
        fixture_kill_tdpd(f, SIGKILL);
        assert_int_equal(unlink(record_path(f, "db.vm")), 0);
        write_record(f, "what is this", "x", 1);
        write_record(f, "db.vm", text, n);

        /* And after all that nothing is missing. */
        fixture_restart(f);
        assert_int_equal(count_vms(f), 1);
        assert_string_equal(strrchr(quarantine(f), '/'), "/what is this (unknown)\n");
        release(f, r.vm);
        assert_int_equal(store_count(), 0);
        fixture_stop(f);
}

/* What nobody knows is not closed, and given to the next one too. */
static void test_unknown_descriptors(void **state) {
        int fds[3] = { memfd_create("a", MFD_CLOEXEC), memfd_create("b", MFD_CLOEXEC), -1 };
        Fixture *f;

        require_root();
        store_begin();
        fds[2] = memfd_create("c", MFD_CLOEXEC);
        store_put("tdp1-m0-00000000000000aa", fds[0]);
        store_put("tdp9-new-kind", fds[1]);
        store_put("stored", fds[2]);
        f = fixture_start(NULL, NULL);
        for (unsigned i = 0; i < 2; i++) {
                assert_quarantine_has(f, "descriptor tdp1-m0-00000000000000aa (leaked)");
                assert_quarantine_has(f, "descriptor tdp9-new-kind (unknown)");
                assert_quarantine_has(f, "descriptor stored (unknown)");
                assert_int_equal(store_count(), 3);
                fixture_kill_tdpd(f, SIGKILL);
                fixture_restart(f);
        }
        fixture_stop(f);
}

static void case_31_records_of_another_boot(void **state) {
        Fixture *f = start();
        Reservation r = populate(f, "db");

        fixture_kill_tdpd(f, SIGKILL);
        record_edit(record_path(f, "db.vm"), "boot-id", "00000000-0000-0000-0000-000000000000");
        /* As a reboot does. */
        store_lose("");
        fixture_restart(f);
        assert_int_equal(count_vms(f), 0);
        assert_string_equal(quarantine(f), "");
        assert_int_equal(access(record_path(f, "db.vm"), F_OK), -1);
        r = populate(f, "db");
        release(f, r.vm);
        fixture_stop(f);
}

/* The pool is another one than it was: a fact to be read anew, and no reason to lose anything. */
static void case_31_drift_is_no_obstacle(void **state) {
        uint64_t available = pool_grow(8);
        Fixture *f = start();
        Reservation r = reserve(f, "db", available * HUGE_2M, HUGE_2M);

        assert_string_equal(wait_job(f, r.job)->result, "done");
        fixture_kill_tdpd(f, SIGKILL);
        pool_shrink(4);
        fixture_restart(f);
        assert_int_equal(count_vms(f), 1);
        assert_string_equal(quarantine(f), "");
        release(f, r.vm);
        fixture_stop(f);
}

static void case_37_missing_descriptors(void **state) {
        Fixture *f = standin_start_kept(NULL);
        pid_t pid = spawn_vmm(1, 0);

        (void) populate(f, "a");
        assert_string_equal(wait_job(f, standin_attach(f, pid, "always"))->result, "done");
        assert_int_equal(store_count(), 2);
        fixture_kill_tdpd(f, SIGKILL);
        store_lose("-m0-");
        fixture_restart(f);
        /* The one without its memory is lost, and its record with it; the other one is not. */
        assert_int_equal(count_vms(f), 1);
        assert_state(f, "built");
        assert_int_equal(access(record_path(f, "a.vm"), F_OK), -1);

        fixture_kill_tdpd(f, SIGKILL);
        store_lose("-h0-");
        fixture_restart(f);
        assert_int_equal(count_vms(f), 0);
        assert_int_equal(store_count(), 0);
        assert_int_equal(kill(pid, 0), 0);
        /* It can be had again. */
        assert_string_equal(wait_job(f, standin_attach(f, pid, "always"))->result, "done");
        assert_state(f, "built");
        fixture_stop(f);
}

/* Of a VM with both, either one is of use without the other. */
static void case_37_one_of_two_is_missing(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;

        for (unsigned i = 0; i < 2; i++) {
                Fixture *f = standin_start_kept(NULL);
                pid_t pid = spawn_vmm(1, 0);

                (void) populate(f, "db");
                assert_string_equal(wait_job(f, standin_attach(f, pid, "always"))->result, "done");
                fixture_kill_tdpd(f, SIGKILL);
                store_lose(i == 0 ? "-h0-" : "-m0-");
                fixture_restart(f);
                assert_state(f, i == 0 ? "attached" : "built");
                if (i == 1) {
                        assert_null(call(f->bus, &error, VM_PATH, "org.tdpd1.VM", "GetMemory", NULL));
                        assert_error_is(&error, ERR("Unsupported"), "brought its own memory");
                }
                assert_int_equal(store_count(), 1);
                fixture_kill_tdpd(f, SIGKILL);
                fixture_restart(f);
                assert_state(f, i == 0 ? "attached" : "built");
                reap(pid, SIGKILL);
                wait_no_vm(f);
                assert_int_equal(store_count(), 0);
                fixture_stop(f);
                store_end();
        }
}

/* systemd drops what it has when a service is stopped. */
static void case_38_stop_and_start(void **state) {
        char log[128], text[8192] = "";
        Fixture *f;
        int saved, fd;

        require_root();
        store_begin();
        snprintf(log, sizeof(log), "/tmp/tdpd-test-log-%i", (int) getpid());
        fd = open(log, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
        saved = dup(STDERR_FILENO);
        assert_true(fd >= 0 && saved >= 0);
        assert_true(dup2(fd, STDERR_FILENO) >= 0);
        f = fixture_start(NULL, NULL);
        (void) populate(f, "one");
        (void) populate(f, "two");
        fixture_kill_tdpd(f, SIGTERM);
        assert_int_equal(store_count(), 2);
        store_lose("");
        fixture_restart(f);
        assert_true(dup2(saved, STDERR_FILENO) >= 0);
        close(saved);
        assert_int_equal(count_vms(f), 0);
        assert_true(pread(fd, text, sizeof(text) - 1, 0) > 0);
        close(fd);
        unlink(log);
        if (!strstr(text,
                    "Ending with 2 VMs. A restart takes them over; if this is a stop, their pins go, and memory "
                    "that no VMM has mapped: one, two") ||
            !strstr(text, "VM one of user 0 is lost") || !strstr(text, "VM two of user 0 is lost"))
                fail_msg("the log does not say it: %s", text);
        fixture_stop(f);
}

/* A folder without room, or that cannot be written to. */
static void test_no_room(void **state) {
        Fixture *f = standin_start_kept(NULL);
        pid_t pid = spawn_vmm(1, 0);
        char dir[96], filler[4096] = {};
        Reservation r;
        int fd;

        fixture_kill_tdpd(f, SIGKILL);
        snprintf(dir, sizeof(dir), "%s/state", f->dir);
        if (mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0700") < 0) {
                print_message("no tmpfs can be mounted here: %s\n", strerror(errno));
                skip();
        }
        fixture_restart(f);
        r = populate(f, "a");
        fd = open(record_path(f, "filler"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        while (write(fd, filler, sizeof(filler)) > 0)
                ;
        close(fd);

        assert_call_fails(f, ERR("Failed"), "make room there", "Reserve", "sta{sv}", "b", 8 * MIB, 1,
                          "page-size", "t", UINT64_C(4096));
        assert_call_fails(f, ERR("Failed"), "No space left on device", "AttachPid", "sua{sv}", "db",
                          (uint32_t) pid, 1, "decision", "s", "always");
        /* A VM that joins stays what it was. */
        assert_call_fails(f, ERR("Failed"), "No space left on device", "AttachPid", "sua{sv}", "a",
                          (uint32_t) pid, 1, "decision", "s", "always");
        assert_int_equal(count_vms(f), 1);
        assert_int_equal(store_count(), 1);
        fixture_kill_tdpd(f, SIGKILL);
        fixture_restart(f);
        assert_int_equal(count_vms(f), 1);

        assert_int_equal(unlink(record_path(f, "filler")), 0);
        assert_string_equal(wait_job(f, standin_attach(f, pid, "always"))->result, "done");
        make_read_only(dir);
        assert_call_fails(f, ERR("Failed"), "Read-only file system", "Reserve", "sta{sv}", "b", 8 * MIB, 1,
                          "page-size", "t", UINT64_C(4096));
        /* What is there goes on, is taken over, and can be let go. */
        assert_string_equal(wait_job(f, standin_build(f))->result, "done");
        fixture_kill_tdpd(f, SIGKILL);
        fixture_restart(f);
        assert_state(f, "built");
        release(f, VM_PATH);
        release(f, r.vm);
        assert_int_equal(store_count(), 0);
        assert_int_equal(mount(NULL, dir, NULL, MS_REMOUNT, NULL), 0);
        fixture_kill_tdpd(f, SIGKILL);
        fixture_restart(f);
        assert_int_equal(count_vms(f), 0);
        fixture_stop(f);
}

static void test_two_of_them(void **state) {
        Fixture *f = start();
        char bus[128], dir[128];
        int status;
        pid_t pid;

        (void) populate(f, "db");
        snprintf(bus, sizeof(bus), "--bus=%s", f->address);
        snprintf(dir, sizeof(dir), "--state-dir=%s/state", f->dir);
        store_before_fork();
        pid = fork();
        store_after_fork();
        if (pid == 0) {
                store_in_child();
                execl(getenv("TDPD"), "tdpd", bus, dir, NULL);
                _exit(127);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE);
        assert_int_equal(count_vms(f), 1);
        assert_int_equal(store_count(), 1);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_bad_records, standin_teardown),
                cmocka_unit_test_teardown(test_unknown_descriptors, standin_teardown),
                cmocka_unit_test_teardown(case_31_records_of_another_boot, standin_teardown),
                cmocka_unit_test_teardown(case_31_drift_is_no_obstacle, standin_teardown),
                cmocka_unit_test_teardown(case_37_missing_descriptors, standin_teardown),
                cmocka_unit_test_teardown(case_37_one_of_two_is_missing, standin_teardown),
                cmocka_unit_test_teardown(case_38_stop_and_start, standin_teardown),
                cmocka_unit_test_teardown(test_no_room, standin_teardown),
                cmocka_unit_test_teardown(test_two_of_them, standin_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
