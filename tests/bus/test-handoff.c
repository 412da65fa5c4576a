/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A VM changes its owner: from one tdpd to another, or within one. */
#include "carry.h"
#include "standin.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Bytes message, reply;

static void test_whole_path(void **state) {
        uint64_t before = pool_grow(2 * CARRY_BYTES / HUGE_2M);
        Side source, destination;
        char *vm;
        Fixture *f;
        pid_t pid;

        require_root();
        f = standin_start("good");
        pid = carry_run_vm(f);
        carry_offer(&source, f, VM_PATH, CARRY_USEC, false, &message);
        carry_assert(&source, "State", "offered");
        carry_prepare(&destination, f, &message, "db2", &message);
        assert_int_equal(carry_number(&destination, "Bytes"), CARRY_BYTES);
        carry_deliver(f, &message, &reply);
        assert_int_equal(reply.size, 0);
        carry_assert(&source, "State", "granted");
        carry_assert(&source, "PeerMode", "on-demand");
        carry_start(&source, "none", &message);
        carry_deliver(f, &message, &reply);
        carry_assert(&destination, "State", "receiving");
        vm = carry_property(&destination, "VMObject");
        close(get_memory(f, vm, CARRY_BYTES)); /* as a VMM that waits for its guest would */
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

/* A tool that goes on with whatever is to be done next, and tdpd dies behind one of its steps. */
typedef struct Tool {
        Fixture *f;
        Side source, destination;
        unsigned n, dies_at;
        bool loses; /* and what the step has said is lost with it */
        bool cancels;
} Tool;

static void step_done(Tool *t) {
        if (++t->n != t->dies_at)
                return;
        fixture_kill_tdpd(t->f, SIGKILL);
        fixture_restart(t->f);
        if (t->loses)
                message.size = reply.size = 0;
}

static void carry_to(Tool *t, const Side *from) {
        if (message.size == 0)
                return;
        carry_deliver(t->f, &message, &reply);
        step_done(t);
        if (reply.size == 0)
                return;
        message = reply;
        carry_deliver(t->f, &message, &reply);
        (void) from;
        step_done(t);
}

static void fetch(Tool *t, const Side *from) {
        carry_next(from, &message);
        if (message.size == 0)
                return;
        step_done(t);
        carry_to(t, from);
}

static bool is_over(Tool *t) {
        return (carry_is(&t->source, "released") && carry_is(&t->destination, "done")) ||
               (carry_is(&t->source, "kept") && carry_is(&t->destination, "gone"));
}

/* With the VM's memory taken, as if a VMM waited there. */
static void go_on(Tool *t) {
        char *vm;

        if (carry_is(&t->source, "granted")) {
                vm = carry_property(&t->destination, "VMObject");
                close(get_memory(t->f, vm, CARRY_BYTES));
                free(vm);
                carry_start(&t->source, "bitmap", &message);
                step_done(t);
                carry_to(t, &t->source);
        } else if (carry_is(&t->source, "started") && carry_is(&t->destination, "receiving")) {
                if (t->cancels) {
                        carry_cancel(&t->source, "enough of it");
                        message.size = 0;
                } else
                        carry_commit(&t->source, 0, &message);
                step_done(t);
                carry_to(t, &t->source);
        }
        fetch(t, &t->source);
        fetch(t, &t->destination);
}

static void finish(Tool *t) {
        uint64_t until = now_usec() + 60000000;

        while (!is_over(t)) {
                assert_true(now_usec() < until);
                go_on(t);
                usleep(1000);
        }
}

/* false: there are no more steps. */
static bool die_at(Tool *t) {
        uint64_t before = pool_read("free_hugepages");
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Fixture *f = t->f = standin_start_kept(NULL);
        pid_t pid = carry_run_vm(f);
        char *vm;

        t->n = 0;
        carry_offer(&t->source, f, VM_PATH, CARRY_USEC, false, &message);
        step_done(t);
        if (message.size == 0)
                carry_wait_next(&t->source, &message);
        if (!carry_try_prepare(&t->destination, f, &message, "db2", 0, &message, &error))
                fail_msg("PrepareIncoming: %s", error.message);
        step_done(t);
        finish(t);
        assert_int_equal(carry_is(&t->source, "kept"), t->cancels);
        vm = carry_property(t->cancels ? &t->source : &t->destination, "VMObject");
        assert_string_not_equal(vm, "/");
        assert_int_equal(count_vms(f), 1);
        /* The VMM that was left has the memory that was its own still. */
        if (!t->cancels)
                reap(pid, SIGKILL);
        assert_pool_free(before - CARRY_BYTES / HUGE_2M);
        release(f, vm);
        free(vm);
        if (t->cancels)
                reap(pid, SIGKILL);
        assert_pool_free(before);
        fixture_stop(f);
        (void) standin_teardown(NULL);
        return t->n >= t->dies_at;
}

static void dies_everywhere(bool loses, bool cancels) {
        unsigned n = 0;

        require_root();
        for (bool more = true; more; n++) {
                Tool t = { .dies_at = n + 1, .loses = loses, .cancels = cancels };

                (void) pool_grow(2 * CARRY_BYTES / HUGE_2M);
                more = die_at(&t);
        }
        assert_true(n > 6);
}

static void case_59_dies_everywhere(void **state) {
        dies_everywhere(false, false);
}

static void case_59_dies_and_loses(void **state) {
        dies_everywhere(true, false);
}

static void case_59_canceled_and_dies(void **state) {
        dies_everywhere(false, true);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_whole_path, fixture_teardown),
                cmocka_unit_test_teardown(case_59_dies_everywhere, standin_teardown),
                cmocka_unit_test_teardown(case_59_dies_and_loses, standin_teardown),
                cmocka_unit_test_teardown(case_59_canceled_and_dies, standin_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
