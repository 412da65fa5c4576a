/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Discovery and attach as far as they go without /dev/kvm-gtdp: the VMs are real, the kernel is stock. */
#include "fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NO_DEVICE "--device=/dev/null/kvm-gtdp"

static void test_bad_processes(void **state) {
        Fixture *f = fixture_start(NULL, NO_DEVICE);
        pid_t none, one, two, gone;

        require_root();
        none = spawn_vmm(0, 0);
        one = spawn_vmm(1, 0);
        two = spawn_vmm(2, 0);
        gone = spawn_vmm(0, 0);
        reap(gone, SIGKILL);

        assert_call_fails(f, ERR("InvalidArgument"), "pid 0 is none", "AttachPid", "sua{sv}", "a", 0, 0);
        assert_call_fails(f, ERR("InvalidArgument"), "pid 4294967295 is none", "AttachPid", "sua{sv}", "a",
                          UINT32_MAX, 0);
        assert_call_fails(f, ERR("NoSuchProcess"), "is not there", "AttachPid", "sua{sv}", "a",
                          (uint32_t) gone, 0);
        assert_call_fails(f, ERR("NoSuchProcess"), "is not there", "AttachPid", "sua{sv}", "a", INT32_MAX,
                          0);
        assert_call_fails(f, ERR("NotVMM"), "has no KVM VM", "AttachPid", "sua{sv}", "a", (uint32_t) none,
                          0);
        assert_call_fails(f, ERR("SeveralVMs"), "has several VMs", "AttachPid", "sua{sv}", "a",
                          (uint32_t) two, 0);
        assert_call_fails(f, ERR("Unsupported"), "install tdpd-kvm-modules", "AttachPid", "sua{sv}", "a",
                          (uint32_t) one, 0);
        assert_call_fails(f, ERR("Unsupported"), "install tdpd-kvm-modules", "AttachPid", "sua{sv}", "a",
                          (uint32_t) one, 1, "decision", "s", "always");
        assert_call_fails(f, ERR("InvalidArgument"), "is not plain", "AttachPid", "sua{sv}", "",
                          (uint32_t) one, 0);
        assert_call_fails(f, ERR("InvalidArgument"), "\"page-size\" is unknown here", "AttachPid", "sua{sv}",
                          "a", (uint32_t) one, 1, "page-size", "t", HUGE_2M);
        assert_int_equal(count_vms(f), 0);

        reap(none, SIGKILL);
        reap(one, SIGKILL);
        reap(two, SIGKILL);
        fixture_stop(f);
}

static void test_bad_descriptors(void **state) {
        Fixture *f = fixture_start(NULL, NO_DEVICE);
        int null = open("/dev/null", O_RDWR | O_CLOEXEC), vm;

        assert_call_fails(f, ERR("NotVMM"), "no KVM VM", "Attach", "shua{sv}", "a", null, 0, 0);
        vm = require_kvm_vm();
        assert_call_fails(f, ERR("Unsupported"), "install tdpd-kvm-modules", "Attach", "shua{sv}", "a", vm,
                          0, 0);
        assert_call_fails(f, ERR("NoSuchProcess"), "is not there", "Attach", "shua{sv}", "a", vm, INT32_MAX,
                          0);
        assert_int_equal(count_vms(f), 0);
        close(null);
        fixture_stop(f);
}

static const char *attach_never(Fixture *f, const char *name, pid_t pid) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *vm, *job;
        static char path[128];
        sd_bus_message *m;

        m = manager_call(f, &error, "AttachPid", "sua{sv}", name, (uint32_t) pid, 1, "decision", "s",
                         "never");
        if (!m)
                fail_msg("AttachPid: %s", error.message);
        assert_true(sd_bus_message_read(m, "oo", &vm, &job) > 0);
        snprintf(path, sizeof(path), "%s", vm);
        assert_string_equal(wait_job(f, job)->result, "done");
        sd_bus_message_unref(m);
        return path;
}

static void wait_no_vm(Fixture *f) {
        for (uint64_t until = now_usec() + 2000000; count_vms(f) > 0 && now_usec() < until;)
                usleep(10000);
        assert_int_equal(count_vms(f), 0);
}

static void test_memory_goes_with_the_vmm(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        uint64_t free_before;
        const char *found;
        sd_bus_message *m;
        Reservation r;
        Fixture *f;
        pid_t pid;
        char *s;

        (void) pool_grow(8);
        free_before = pool_read("free_hugepages");
        f = fixture_start(NULL, NO_DEVICE);
        pid = spawn_vmm(1, 0);
        r = reserve(f, "db", 8 * HUGE_2M, HUGE_2M);
        assert_string_equal(wait_job(f, r.job)->result, "done");

        assert_string_equal(attach_never(f, "db", pid), r.vm);
        s = vm_state(f, r.vm);
        assert_string_equal(s, "attached");
        free(s);
        m = manager_call(f, &error, "GetVMByPid", "u", (uint32_t) pid);
        assert_non_null(m);
        assert_true(sd_bus_message_read(m, "o", &found) > 0);
        assert_string_equal(found, r.vm);
        sd_bus_message_unref(m);
        assert_call_fails(f, ERR("NameTaken"), "there is a VM", "AttachPid", "sua{sv}", "db", (uint32_t) pid,
                          0);
        assert_null(call(f->bus, &error, r.vm, "org.tdpd1.VM", "Build", "a{sv}", 0));
        assert_error_is(&error, ERR("Unsupported"), "was attached without");

        assert_int_equal(pool_read("free_hugepages"), free_before - 8);
        reap(pid, SIGKILL);
        wait_no_vm(f);
        assert_pool_free(free_before);
        fixture_stop(f);
}

static void test_vmm_outlives_the_release(void **state) {
        Fixture *f = fixture_start(NULL, NO_DEVICE);
        pid_t pid = spawn_vmm(1, 0);

        release(f, attach_never(f, "db", pid));
        assert_int_equal(count_vms(f), 0);
        assert_int_equal(kill(pid, 0), 0);
        /* And it can be attached again. */
        (void) attach_never(f, "db", pid);
        reap(pid, SIGKILL);
        wait_no_vm(f);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_bad_processes, fixture_teardown),
                cmocka_unit_test_teardown(test_bad_descriptors, fixture_teardown),
                cmocka_unit_test_teardown(test_memory_goes_with_the_vmm, fixture_teardown),
                cmocka_unit_test_teardown(test_vmm_outlives_the_release, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
