/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A VM changes its owner: from one tdpd to another, or within one. */
#include "carry.h"
#include "standin.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES     (8 * MIB)
#define LONG_USEC UINT64_C(600000000)

static Bytes message, reply;

/* A VM that runs, "db", on memory of ours. */
static pid_t run_vm(Fixture *f) {
        Reservation r = reserve(f, "db", BYTES, HUGE_2M);
        pid_t pid;

        assert_string_equal(wait_job(f, r.job)->result, "done");
        pid = spawn_vmm(1, 0);
        assert_string_equal(wait_job(f, standin_attach(f, pid, "always"))->result, "done");
        return pid;
}

static void test_whole_path(void **state) {
        uint64_t before = pool_grow(2 * BYTES / HUGE_2M);
        Side source, destination;
        char *vm;
        Fixture *f;
        pid_t pid;

        require_root();
        f = standin_start("good");
        pid = run_vm(f);
        carry_offer(&source, f, VM_PATH, LONG_USEC, false, &message);
        carry_assert(&source, "State", "offered");
        carry_prepare(&destination, f, &message, "db2", &message);
        assert_int_equal(carry_number(&destination, "Bytes"), BYTES);
        carry_deliver(f, &message, &reply);
        assert_int_equal(reply.size, 0);
        carry_assert(&source, "State", "granted");
        carry_assert(&source, "PeerMode", "on-demand");
        carry_start(&source, "none", &message);
        carry_deliver(f, &message, &reply);
        carry_assert(&destination, "State", "receiving");
        vm = carry_property(&destination, "VMObject");
        close(get_memory(f, vm, BYTES)); /* as a VMM that waits for its guest would */
        carry_commit(&source, 0, &message);
        carry_assert(&source, "State", "committing");
        carry_deliver(f, &message, &reply);
        carry_wait_state(&destination, "owner");
        carry_wait_next(&destination, &message);
        carry_deliver(f, &message, &reply);
        carry_wait_state(&source, "released");
        carry_wait_next(&source, &message);
        carry_deliver(f, &message, &reply);
        carry_assert(&destination, "State", "done");
        assert_int_equal(count_vms(f), 1);
        release(f, vm);
        reap(pid, SIGKILL);
        assert_pool_free(before);
        free(vm);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_whole_path, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
