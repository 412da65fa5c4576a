/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attach and build as the daemon does them, with a stand-in for the kernel's side (standin-handle.c). */
#include "standin.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_build(void **state) {
        Fixture *f = standin_start("good");
        pid_t pid = spawn_vmm(1, 0);
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = NULL;
        const char *word;
        uint64_t n;
        uint32_t node;

        assert_string_equal(wait_job(f, standin_attach(f, pid, "always"))->result, "done");
        assert_state(f, "built");
        /* All but the read-only slot, each byte once. */
        assert_property(f, "Bytes", SLOTS_BYTES);
        assert_property(f, "BuiltBytes", SLOTS_BYTES);
        assert_property(f, "MappedBytes", SLOTS_BYTES);
        assert_property(f, "PinnedBytes", SLOTS_BYTES);
        assert_property(f, "Holes", 0);
        assert_property(f, "PageSize", HUGE_2M);
        assert_property(f, "Leaves4K", 1);
        assert_property(f, "Leaves2M", 2);
        assert_property(f, "Leaves1G", 3);
        assert_property(f, "FaultsSinceBuild", 3);
        assert_property(f, "FaultsOther", 7);
        assert_property(f, "BuildUSec", 5);

        assert_true(sd_bus_get_property(f->bus, "org.tdpd1", VM_PATH, "org.tdpd1.VM", "HoleReasons", &error,
                                        &m, "a{st}") >= 0);
        assert_true(sd_bus_message_read(m, "a{st}", 1, &word, &n) > 0);
        assert_string_equal(word, "slot");
        assert_int_equal(n, 8192);
        m = sd_bus_message_unref(m);
        assert_true(sd_bus_get_property(f->bus, "org.tdpd1", VM_PATH, "org.tdpd1.VM", "TablePages", &error,
                                        &m, "a{ut}") >= 0);
        assert_true(sd_bus_message_read(m, "a{ut}", 1, &node, &n) > 0);
        assert_int_equal(node, 1);
        assert_int_equal(n, 11);
        sd_bus_message_unref(m);

        /* Once more, for the asking. */
        assert_string_equal(wait_job(f, standin_build(f))->result, "done");
        assert_state(f, "built");

        reap(pid, SIGKILL);
        wait_no_vm(f);
        fixture_stop(f);
}

static void test_errors_and_signals_on_the_way(void **state) {
        Fixture *f = standin_start("again");

        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        assert_state(f, "built");
        assert_property(f, "BuiltBytes", SLOTS_BYTES);
        fixture_stop(f);
}

static void test_slot_vanishes(void **state) {
        Fixture *f = standin_start("slot-vanishes");

        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        assert_property(f, "BuiltBytes", 512 * MIB);
        fixture_stop(f);
}

static void build_fails(const char *scenario, const char *error, const char *part) {
        Fixture *f = standin_start(scenario);
        const JobEnd *end = wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"));

        assert_string_equal(end->result, "failed");
        assert_string_equal(end->error, error);
        if (!strstr(end->message, part))
                fail_msg("\"%s\" is not in \"%s\"", part, end->message);
        /* The VM is still attached, and can be tried again. */
        assert_state(f, "attached");
        assert_string_equal(wait_job(f, standin_build(f))->result, "failed");
        release(f, VM_PATH);
        assert_int_equal(count_vms(f), 0);
        fixture_stop(f);
}

static void test_failing_builds(void **state) {
        build_fails("fault", ERR("Failed"), "asked to build 805306368 bytes");
        build_fails("fault", ERR("Failed"), "no accessible memory there");
        build_fails("no-memory", ERR("Failed"), "no memory for page tables");
        build_fails("few-levels", ERR("Busy"), "build again when the VM runs");
        build_fails("always-again", ERR("Busy"), "keeps changing its memory slots");
}

/* How long a cancel takes when all threads are in a system call. */
static uint64_t cancel_once(Fixture *f, const char *job) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m;
        uint64_t start_usec;

        assert_state(f, "building");
        assert_null(call(f->bus, &error, VM_PATH, "org.tdpd1.VM", "Build", "a{sv}", 0));
        assert_error_is(&error, ERR("Busy"), "is building");

        usleep(50000);
        start_usec = now_usec();
        m = call(f->bus, &error, job, "org.tdpd1.Job", "Cancel", NULL);
        assert_non_null(m);
        sd_bus_message_unref(m);
        assert_string_equal(wait_job(f, job)->error, ERR("Canceled"));
        start_usec = now_usec() - start_usec;
        assert_state(f, "attached");
        return start_usec;
}

static void test_cancel(void **state) {
        Fixture *f = standin_start("never-ends");
        uint64_t usec = cancel_once(f, standin_attach(f, spawn_vmm(1, 0), "always"));

        /* On a busy machine a thread may just not get to run. */
        for (unsigned i = 0; i < 4 && usec >= 100000; i++)
                usec = cancel_once(f, standin_build(f));
        if (usec >= 100000)
                fail_msg("a cancel takes %llu us", (unsigned long long) usec);
        fixture_stop(f);
}

static void test_release_while_building(void **state) {
        Fixture *f = standin_start("never-ends");
        pid_t pid = spawn_vmm(1, 0);
        const char *job = standin_attach(f, pid, "always");

        release(f, VM_PATH);
        assert_string_equal(wait_job(f, job)->result, "canceled");
        assert_int_equal(count_vms(f), 0);

        /* The VMM dies in the middle. */
        job = standin_attach(f, pid, "always");
        reap(pid, SIGKILL);
        assert_string_equal(wait_job(f, job)->result, "canceled");
        wait_no_vm(f);
        fixture_stop(f);
}

/* SIGTERM ends the daemon in mid-build: fixture_stop() looks at its status. */
static void test_stop_while_building(void **state) {
        Fixture *f = standin_start("never-ends");

        (void) standin_attach(f, spawn_vmm(1, 0), "always");
        fixture_stop(f);
}

static bool maps_library(pid_t pid, const char *name) {
        char path[32], line[512];
        bool found = false;
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%i/maps", pid);
        f = fopen(path, "re");
        assert_non_null(f);
        while (fgets(line, sizeof(line), f))
                found = found || strstr(line, name);
        fclose(f);
        return found;
}

/* libvirt waits for its hooks, so none of what they may call waits for a build, or for libvirt. */
static void case_71_hook_waits_for_nothing(void **state) {
        Fixture *f = standin_start("never-ends");
        const char *job = standin_attach(f, spawn_vmm(1, 0), "always");

        assert_state(f, "building");
        assert_int_equal(count_vms(f), 1);
        assert_true(maps_library(f->tdpd_pid, "/libsystemd.so"));
        assert_false(maps_library(f->tdpd_pid, "libvirt"));
        release(f, VM_PATH);
        assert_string_equal(wait_job(f, job)->result, "canceled");
        fixture_stop(f);
}

static void test_vm_goes(void **state) {
        Fixture *f = standin_start("vm-goes");
        pid_t pid = spawn_vmm(1, 0);

        /* Its VMM lives on. */
        assert_string_equal(wait_job(f, standin_attach(f, pid, "always"))->result, "done");
        wait_no_vm(f);
        assert_int_equal(kill(pid, 0), 0);
        fixture_stop(f);
}

static void test_holes(void **state) {
        char path[] = "/tmp/tdpd-hole-XXXXXX", scenario[64];
        Fixture *f;
        int fd;

        require_root();
        fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
        snprintf(scenario, sizeof(scenario), "hole:%s", path);
        f = standin_start(scenario);

        /* A build that leaves holes is done, and not "built". */
        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        assert_state(f, "healing");
        assert_property(f, "Holes", 4096);
        assert_int_equal(unlink(path), 0);
        wait_state(f, "built");
        fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
        wait_state(f, "healing");
        assert_string_equal(wait_job(f, standin_build(f))->result, "done");
        assert_state(f, "healing");
        unlink(path);
        fixture_stop(f);
}

/* Nothing is lost of what is not there, and it is not "built" for that. */
static void test_nothing_built(void **state) {
        Fixture *f = standin_start("nothing-built");

        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        for (unsigned i = 0; i < 3; i++) {
                assert_state(f, "healing");
                usleep(50000);
        }
        assert_property(f, "BuiltBytes", 0);
        fixture_stop(f);
}

/* The mapping of an earlier build is there after one that was canceled. */
static void test_cancel_of_another_build(void **state) {
        Fixture *f = standin_start("second-never-ends");
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *job;

        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        assert_state(f, "built");
        job = standin_build(f);
        assert_state(f, "building");
        sd_bus_message_unref(call(f->bus, &error, job, "org.tdpd1.Job", "Cancel", NULL));
        assert_false(sd_bus_error_is_set(&error));
        assert_string_equal(wait_job(f, job)->result, "canceled");
        wait_state(f, "built");
        assert_property(f, "BuiltBytes", SLOTS_BYTES);
        fixture_stop(f);
}

static void test_limit_of_what_a_vmm_brings(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Fixture *f;

        require_root();
        f = standin_start_with("grows", "[Limits]\nMaxBytes=800M\n");
        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        assert_null(call(f->bus, &error, VM_PATH, "org.tdpd1.VM", "Build", "a{sv}", 0));
        assert_error_is(&error, ERR("LimitExceeded"), "asks for 268435456 more");
        assert_state(f, "built");
        fixture_stop(f);
}

/* "always" holds for the VM, whichever call has said it. */
static void test_always_by_the_reservation(void **state) {
        Fixture *f = standin_start("shadow");
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *vm, *job;
        sd_bus_message *m;

        m = manager_call(f, &error, "Reserve", "sta{sv}", "db", 2 * MIB, 2, "page-size", "t", UINT64_C(4096),
                         "decision", "s", "always");
        if (!m)
                fail_msg("Reserve: %s", error.message);
        assert_true(sd_bus_message_read(m, "oo", &vm, &job) > 0);
        assert_string_equal(wait_job(f, job)->result, "done");
        sd_bus_message_unref(m);

        assert_call_fails(f, ERR("Unsupported"), "without EPT or NPT", "AttachPid", "sua{sv}", "db",
                          (uint32_t) spawn_vmm(1, 0), 0);
        assert_state(f, "populated");
        release(f, VM_PATH);
        fixture_stop(f);
}

static void attach_fails(const char *scenario, const char *decision, const char *error, const char *part) {
        Fixture *f = standin_start(scenario);

        assert_call_fails(f, error, part, "AttachPid", "sua{sv}", "db", (uint32_t) spawn_vmm(1, 0), 1,
                          "decision", "s", decision);
        assert_int_equal(count_vms(f), 0);
        fixture_stop(f);
}

static void test_refused_attaches(void **state) {
        attach_fails("taken", "auto", ERR("Busy"), "has a handle already");
        attach_fails("confidential", "auto", ERR("Unsupported"), "confidential");
        attach_fails("other-version", "auto", ERR("Unsupported"), "another version");
        attach_fails("shadow", "always", ERR("Unsupported"), "without EPT or NPT");
}

static void test_skipped_builds(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Fixture *f = standin_start("shadow");
        char *decision;

        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "auto"))->result, "done");
        assert_state(f, "attached");
        assert_property(f, "BuiltBytes", 0);
        assert_true(sd_bus_get_property_string(f->bus, "org.tdpd1", VM_PATH, "org.tdpd1.VM", "Decision",
                                               &error, &decision) >= 0);
        assert_string_equal(decision, "skip");
        free(decision);
        fixture_stop(f);

        f = standin_start("good");
        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "never"))->result, "done");
        assert_state(f, "attached");
        assert_property(f, "BuiltBytes", 0);
        /* Asked for later, it is built all the same. */
        assert_string_equal(wait_job(f, standin_build(f))->result, "done");
        assert_state(f, "built");
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_build, fixture_teardown),
                cmocka_unit_test_teardown(test_errors_and_signals_on_the_way, fixture_teardown),
                cmocka_unit_test_teardown(test_slot_vanishes, fixture_teardown),
                cmocka_unit_test_teardown(test_failing_builds, fixture_teardown),
                cmocka_unit_test_teardown(test_cancel, fixture_teardown),
                cmocka_unit_test_teardown(test_release_while_building, fixture_teardown),
                cmocka_unit_test_teardown(test_stop_while_building, fixture_teardown),
                cmocka_unit_test_teardown(case_71_hook_waits_for_nothing, fixture_teardown),
                cmocka_unit_test_teardown(test_vm_goes, fixture_teardown),
                cmocka_unit_test_teardown(test_holes, fixture_teardown),
                cmocka_unit_test_teardown(test_nothing_built, fixture_teardown),
                cmocka_unit_test_teardown(test_cancel_of_another_build, fixture_teardown),
                cmocka_unit_test_teardown(test_limit_of_what_a_vmm_brings, fixture_teardown),
                cmocka_unit_test_teardown(test_always_by_the_reservation, fixture_teardown),
                cmocka_unit_test_teardown(test_refused_attaches, fixture_teardown),
                cmocka_unit_test_teardown(test_skipped_builds, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
