/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a restart of tdpd costs a VM: nothing, in each of its states. */
#include "standin.h"
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void assert_state_of(Fixture *f, const char *vm, const char *expected) {
        char *s = vm_state(f, vm);

        assert_string_equal(s, expected);
        free(s);
}

static void test_populated(void **state) {
        static const int signals[] = { SIGKILL, SIGTERM, SIGABRT };
        Fixture *f = fixture_start_kept(NULL);
        Reservation r = reserve(f, "db", 16 * MIB, 4096);
        char word[8] = "";
        int fd;

        assert_string_equal(wait_job(f, r.job)->result, "done");
        fd = get_memory(f, r.vm, 0);
        assert_int_equal(pwrite(fd, "hello", 5, 12345), 5);
        close(fd);
        for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
                fixture_end_and_restart(f, signals[i]);
                assert_state_of(f, r.vm, "populated");
                assert_int_equal(store_count(), 1);
        }
        /* The very same memory. */
        fd = get_memory(f, r.vm, 0);
        assert_int_equal(pread(fd, word, 5, 12345), 5);
        assert_string_equal(word, "hello");
        close(fd);
        /* The number of its job does not come again. */
        r = reserve(f, "other", 4 * MIB, 4096);
        assert_string_equal(r.job, "/org/tdpd1/job/2");
        assert_string_equal(wait_job(f, r.job)->result, "done");
        release(f, r.vm);
        release(f, VM_PATH);
        assert_int_equal(count_vms(f), 0);
        assert_int_equal(store_count(), 0);
        fixture_stop(f);
}

/* The job goes on, under its number, and no page is lost or had twice. */
static void test_populating(void **state) {
        uint64_t available = pool_grow(128), free_before = pool_read("free_hugepages");
        Fixture *f = fixture_start_kept("[Workers]\nThreads=1\n");
        Reservation r = reserve(f, "db", available * HUGE_2M, HUGE_2M);

        fixture_end_and_restart(f, SIGKILL);
        assert_string_equal(wait_job(f, r.job)->result, "done");
        assert_state_of(f, r.vm, "populated");
        assert_int_equal(pool_read("free_hugepages"), free_before - available);
        assert_call_fails(f, ERR("NoPages"), "short of 1;", "Reserve", "sta{sv}", "more", HUGE_2M, 2,
                          "page-size", "t", HUGE_2M, "nodes", "s", "0");
        release(f, r.vm);
        assert_int_equal(pool_read("free_hugepages"), free_before);
        fixture_stop(f);
}

static void test_building_and_built(void **state) {
        Fixture *f = standin_start_kept(NULL);
        pid_t pid = spawn_vmm(1, 0);
        const char *job;

        standin_set("slow", true);
        job = standin_attach(f, pid, "always");
        assert_state(f, "building");
        fixture_end_and_restart(f, SIGKILL);
        assert_state(f, "building");
        assert_int_equal(store_count(), 1);
        standin_set("slow", false);
        /* The stand-in looks when a call is interrupted. */
        fixture_end_and_restart(f, SIGKILL);
        assert_string_equal(wait_job(f, job)->result, "done");
        assert_state(f, "built");

        for (unsigned i = 0; i < 3; i++) {
                fixture_end_and_restart(f, i == 1 ? SIGTERM : SIGKILL);
                assert_state(f, "built");
                assert_property(f, "BuiltBytes", SLOTS_BYTES);
                assert_property(f, "Bytes", SLOTS_BYTES);
        }
        /* It is still of use. */
        assert_string_equal(wait_job(f, standin_build(f))->result, "done");
        /* And its end is noticed. */
        reap(pid, SIGKILL);
        wait_no_vm(f);
        assert_int_equal(store_count(), 0);
        fixture_stop(f);
}

static void test_attached(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Fixture *f = standin_start_kept(NULL);
        pid_t pid = spawn_vmm(1, 0);
        char *decision;

        assert_string_equal(wait_job(f, standin_attach(f, pid, "never"))->result, "done");
        fixture_end_and_restart(f, SIGKILL);
        assert_state(f, "attached");
        assert_true(sd_bus_get_property_string(f->bus, "org.tdpd1", VM_PATH, "org.tdpd1.VM", "Decision",
                                               &error, &decision) >= 0);
        assert_string_equal(decision, "skip");
        free(decision);
        release(f, VM_PATH);
        assert_int_equal(store_count(), 0);
        fixture_stop(f);
}

/* A reservation that a VMM has joined: memory and handle. */
static void test_joined(void **state) {
        Fixture *f = standin_start_kept(NULL);
        Reservation r = reserve(f, "db", 8 * MIB, 4096);

        assert_string_equal(wait_job(f, r.job)->result, "done");
        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        assert_int_equal(store_count(), 2);
        fixture_end_and_restart(f, SIGKILL);
        assert_state(f, "built");
        assert_property(f, "Bytes", 8 * MIB);
        close(get_memory(f, VM_PATH, 0));
        release(f, VM_PATH);
        assert_int_equal(store_count(), 0);
        fixture_stop(f);
}

static void test_vmm_dies_meanwhile(void **state) {
        Fixture *f = standin_start_kept(NULL);
        pid_t pid = spawn_vmm(1, 0);

        assert_string_equal(wait_job(f, standin_attach(f, pid, "always"))->result, "done");
        fixture_kill_tdpd(f, SIGKILL);
        reap(pid, SIGKILL);
        fixture_restart(f);
        wait_no_vm(f);
        assert_int_equal(store_count(), 0);
        fixture_stop(f);
}

/* The pid is there again, and it is another process. */
static void test_pid_comes_again(void **state) {
        char path[128];
        Fixture *f = standin_start_kept(NULL);
        pid_t pid = spawn_vmm(1, 0);

        assert_string_equal(wait_job(f, standin_attach(f, pid, "never"))->result, "done");
        fixture_kill_tdpd(f, SIGKILL);
        snprintf(path, sizeof(path), "%s/state/db.vm", f->dir);
        /* A record that does not say it tells nothing against the VMM. */
        record_edit(path, "start-time", "0");
        fixture_restart(f);
        assert_state(f, "attached");
        fixture_kill_tdpd(f, SIGKILL);
        /* As if the VMM had been started at another time. */
        record_edit(path, "start-time", "1");
        fixture_restart(f);
        wait_no_vm(f);
        assert_int_equal(kill(pid, 0), 0);
        fixture_stop(f);
}

static bool may_reserve(Fixture *f, uint64_t bytes) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m;

        m = manager_call(f, &error, "Reserve", "sta{sv}", "other", bytes, 1, "page-size", "t",
                         UINT64_C(4096));
        if (!m) {
                assert_error_is(&error, ERR("LimitExceeded"), "MaxBytes");
                return false;
        }
        sd_bus_message_unref(m);
        release(f, "/org/tdpd1/vm/other");
        return true;
}

/* A slot that came while there was no tdpd is held to the limits, as it would have been. */
static void test_memory_is_added_meanwhile(void **state) {
        static const struct kvm_gtdp_event event = { .type = KVM_GTDP_EVENT_SLOT_ADDED,
                                                     .gpa = 8192 * MIB,
                                                     .size = 128 * MIB };
        static const char *const configs[] = { "[Limits]\nMaxBytes=800M\n", "[Limits]\nMaxBytes=900M\n" };

        for (unsigned i = 0; i < 2; i++) {
                Fixture *f = standin_start_kept(configs[i]);
                const char *calls = "";
                char path[160];
                int fd;

                assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result,
                                    "done");
                snprintf(path, sizeof(path), "%s/handle-%i-0", standin_dir(), (int) f->tdpd_pid);
                fixture_kill_tdpd(f, SIGKILL);
                (void) standin_calls();
                /* Open for as long as the VM is there: its end would be the VM's. */
                fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
                assert_true(fd >= 0);
                assert_int_equal(write(fd, &event, sizeof(event)), sizeof(event));
                standin_set("more", true);
                fixture_restart(f);
                assert_property(f, "Bytes", SLOTS_BYTES + 128 * MIB);
                /* Too much is let go, and not charged; else it is. */
                for (uint64_t until = now_usec() + 10000000; i == 0 && !*calls; calls = standin_calls()) {
                        assert_true(now_usec() < until);
                        usleep(10000);
                }
                if (i == 0 && !strstr(calls, "release 0x200000000+0x8000000 0\n"))
                        fail_msg("%s", calls);
                assert_true(may_reserve(f, i == 0 ? 16 * MIB : 2 * MIB));
                assert_false(may_reserve(f, i == 0 ? 64 * MIB : 16 * MIB));
                release(f, VM_PATH);
                close(fd);
                fixture_stop(f);
                store_end();
                remove_dir(standin_dir());
        }
}

/* A release that was under way is finished, whatever the daemon had done of it. */
static void test_releasing(void **state) {
        Fixture *f = fixture_start_kept(NULL);

        for (unsigned i = 0; i < 10; i++) {
                Reservation r = reserve(f, "db", 8 * MIB, 4096);
                sd_bus_message *m = NULL;

                assert_string_equal(wait_job(f, r.job)->result, "done");
                f->n_ends = 0;
                assert_true(sd_bus_message_new_method_call(f->bus, &m, "org.tdpd1", r.vm, "org.tdpd1.VM",
                                                           "Release") >= 0);
                assert_true(sd_bus_send(f->bus, m, NULL) >= 0);
                sd_bus_message_unref(m);
                assert_true(sd_bus_flush(f->bus) >= 0);
                usleep(i * 150);
                fixture_end_and_restart(f, SIGKILL);
                if (count_vms(f) > 0)
                        release(f, VM_PATH);
                assert_int_equal(count_vms(f), 0);
                assert_int_equal(store_count(), 0);
        }
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_populated, standin_teardown),
                cmocka_unit_test_teardown(test_populating, standin_teardown),
                cmocka_unit_test_teardown(test_building_and_built, standin_teardown),
                cmocka_unit_test_teardown(test_attached, standin_teardown),
                cmocka_unit_test_teardown(test_joined, standin_teardown),
                cmocka_unit_test_teardown(test_vmm_dies_meanwhile, standin_teardown),
                cmocka_unit_test_teardown(test_pid_comes_again, standin_teardown),
                cmocka_unit_test_teardown(test_memory_is_added_meanwhile, standin_teardown),
                cmocka_unit_test_teardown(test_releasing, standin_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
