/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How handoffs end otherwise: canceled, too late, without a VMM, after post-copy, and what records say then.
 */
#include "carry.h"
#include "standin.h"
#include "store.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static Bytes message, reply;

typedef enum Stage {
        OFFERED,
        READY,
        GRANTED,
        STARTED,
        RECEIVING,
        _STAGE_MAX,
} Stage;

typedef struct Pair {
        Fixture *f;
        pid_t pid;
        Side source, destination;
        uint64_t free_before;
} Pair;

static void go_to(Pair *p, Stage stage, bool post_copy, uint64_t deadline_usec) {
        p->free_before = pool_grow(2 * CARRY_BYTES / HUGE_2M);
        p->pid = carry_run_vm(p->f);
        carry_offer(&p->source, p->f, VM_PATH, deadline_usec, post_copy, &message);
        if (stage < READY)
                return;
        carry_prepare(&p->destination, p->f, &message, "db2", &message);
        if (stage < GRANTED)
                return;
        carry_deliver(p->f, &message, &reply);
        if (stage < STARTED)
                return;
        carry_start(&p->source, "bitmap", &message);
        if (stage < RECEIVING)
                return;
        carry_deliver(p->f, &message, &reply);
}

/* The VM is where it was, and nothing else is left. */
static void ends_at_source(Pair *p) {
        carry_wait_state(&p->source, "kept");
        assert_int_equal(carry_outcomes(&p->source, "source", "committed"), 0);
        assert_int_equal(count_vms(p->f), 1);
        assert_pool_free(p->free_before - CARRY_BYTES / HUGE_2M);
        reap(p->pid, SIGKILL);
        wait_no_vm(p->f);
        assert_pool_free(p->free_before);
}

static void test_canceled(void **state) {
        require_root();
        for (Stage stage = 0; stage < _STAGE_MAX; stage++)
                for (unsigned of_source = 0; of_source < 2; of_source++) {
                        Pair p = { .f = standin_start("good") };
                        Side *by = of_source ? &p.source : &p.destination;
                        Side *other = of_source ? &p.destination : &p.source;

                        go_to(&p, stage, false, CARRY_USEC);
                        if (stage == OFFERED) {
                                carry_cancel(&p.source, "");
                        } else {
                                carry_cancel(by, "because");
                                carry_wait_next(by, &message);
                                assert_string_equal(craft_reason(&message), "canceled");
                                carry_deliver(p.f, &message, &reply);
                                carry_wait_state(&p.destination, "gone");
                                carry_assert(other, "Text", "because");
                                assert_int_equal(carry_outcomes(other, "destination", "canceled"), 1);
                                carry_assert(other, "Error", ERR("Canceled"));
                        }
                        ends_at_source(&p);
                        carry_plain(&p.source, "Forget");
                        fixture_stop(p.f);
                        assert_int_equal(fixture_teardown(NULL), 0);
                }
}

/* Each side by itself, however far it has come until then. */
static void test_deadline(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Pair p = {};

        require_root();
        p.f = standin_start("good");
        go_to(&p, OFFERED, false, 1000000);
        craft_change(&message, CRAFT_TIME_LEFT, 1000000, &reply);
        if (!carry_try_prepare(&p.destination, p.f, &reply, "db2", 0, &message, &error))
                fail_msg("PrepareIncoming: %s", error.message);
        carry_wait_state(&p.destination, "gone");
        carry_assert(&p.destination, "Reason", "deadline");
        ends_at_source(&p);
        carry_assert(&p.source, "Error", ERR("Expired"));
        assert_false(carry_try_call(&p.source, "Start", NULL, &error, "a{sv}", 0));
        assert_error_is(&error, ERR("Expired"), "no more time");
        fixture_stop(p.f);
}

static void test_vmm_gone(void **state) {
        Pair p = {};

        require_root();
        p.f = standin_start("good");
        go_to(&p, RECEIVING, false, CARRY_USEC);
        reap(p.pid, SIGKILL);
        carry_wait_next(&p.source, &message);
        assert_string_equal(craft_reason(&message), "vmm-gone");
        carry_deliver(p.f, &message, &reply);
        carry_wait_state(&p.source, "kept");
        carry_wait_state(&p.destination, "gone");
        wait_no_vm(p.f);
        assert_pool_free(p.free_before);
        fixture_stop(p.f);
}

static void take_memory(Pair *p) {
        char *vm = carry_property(&p->destination, "VMObject");

        close(get_memory(p->f, vm, CARRY_BYTES));
        free(vm);
}

/* Nobody has taken the memory, so the VM cannot be there. */
static void test_verify_fails(void **state) {
        Pair p = {};

        require_root();
        p.f = standin_start("good");
        go_to(&p, RECEIVING, false, CARRY_USEC);
        carry_commit(&p.source, 0, &message);
        carry_deliver(p.f, &message, &reply);
        assert_string_equal(craft_reason(&reply), "verify");
        carry_deliver(p.f, &reply, &message);
        carry_wait_state(&p.destination, "gone");
        ends_at_source(&p);
        fixture_stop(p.f);
}

/* The VM is the destination's at once, and the source keeps its memory until all is over there. */
static void test_post_copy(void **state) {
        Pair p = {};

        require_root();
        p.f = standin_start("good");
        go_to(&p, RECEIVING, true, CARRY_USEC);
        take_memory(&p);
        carry_commit(&p.source, 2 * MIB, &message);
        carry_deliver(p.f, &message, &reply);
        carry_assert(&p.destination, "State", "taken");
        assert_int_equal(carry_number(&p.destination, "BytesLeft"), 2 * MIB);
        carry_deliver(p.f, &reply, &message);
        carry_assert(&p.source, "State", "serving");
        assert_int_equal(count_vms(p.f), 2);
        carry_plain(&p.destination, "Arrived");
        carry_assert(&p.destination, "State", "owner");
        carry_wait_next(&p.destination, &message);
        carry_deliver(p.f, &message, &reply);
        carry_wait_state(&p.source, "released");
        carry_wait_next(&p.source, &message);
        carry_deliver(p.f, &message, &reply);
        carry_assert(&p.destination, "State", "done");
        assert_int_equal(carry_number(&p.source, "ReleasedBytes"), CARRY_BYTES);
        assert_int_equal(carry_outcomes(&p.source, "source", "committed"), 1);
        assert_int_equal(carry_outcomes(&p.source, "destination", "committed"), 1);
        release(p.f, "/org/tdpd1/vm/db2");
        reap(p.pid, SIGKILL);
        assert_pool_free(p.free_before);
        fixture_stop(p.f);
}

/* What is lost is said again. */
static void test_lost(void **state) {
        Pair p = {};

        require_root();
        p.f = standin_start("good");
        go_to(&p, RECEIVING, false, CARRY_USEC);
        take_memory(&p);
        carry_commit(&p.source, 0, &message);
        carry_wait_next(&p.source, &message);
        assert_string_equal(craft_type(&message), "commit");
        carry_deliver(p.f, &message, &reply);
        carry_wait_next(&p.destination, &message);
        assert_string_equal(craft_type(&message), "complete");
        carry_deliver(p.f, &message, &reply);
        carry_wait_state(&p.source, "released");
        /* Nor does it hurt to hear it twice. */
        carry_deliver(p.f, &message, &reply);
        carry_deliver(p.f, &reply, &message);
        carry_assert(&p.destination, "State", "done");
        release(p.f, "/org/tdpd1/vm/db2");
        reap(p.pid, SIGKILL);
        fixture_stop(p.f);
}

static void wait_for_call(const char *op) {
        for (uint64_t until = now_usec() + 10000000; !strstr(standin_calls(), op);) {
                assert_true(now_usec() < until);
                usleep(5000);
        }
}

/* Leaves are split before memory is logged, and large again once it is no more. */
static void test_split_and_back(void **state) {
        Pair p = {};

        require_root();
        p.f = standin_start_dir(NULL);
        go_to(&p, GRANTED, false, CARRY_USEC);
        (void) standin_calls();
        carry_start(&p.source, "bitmap", &message);
        wait_for_call("split 0x0+");
        standin_set("logging", true);
        carry_deliver(p.f, &message, &reply);
        carry_cancel(&p.destination, "");
        carry_wait_next(&p.destination, &message);
        carry_deliver(p.f, &message, &reply);
        carry_assert(&p.source, "State", "undoing");
        usleep(300000); /* the VMM logs still */
        assert_null(strstr(standin_calls(), "collapse"));
        standin_set("logging", false);
        wait_for_call("collapse 0x0+");
        carry_wait_state(&p.destination, "gone");
        ends_at_source(&p);
        fixture_stop(p.f);
}

static pid_t attach_there(Pair *p) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        pid_t pid = spawn_vmm(1, 0);
        const char *vm, *job;
        sd_bus_message *m;

        m = manager_call(p->f, &error, "AttachPid", "sua{sv}", "db2", (uint32_t) pid, 1, "decision", "s",
                         "always");
        if (!m)
                fail_msg("AttachPid: %s", error.message);
        assert_true(sd_bus_message_read(m, "oo", &vm, &job) > 0);
        assert_string_equal(wait_job(p->f, job)->result, "done");
        sd_bus_message_unref(m);
        return pid;
}

/* A VMM that waits for its guest and ends takes all with it; one whose guest has come is a VMM as others. */
static void test_destination_vmm(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        static const char there[] = "/org/tdpd1/vm/db2";
        Pair p = {};
        uint64_t generation;
        pid_t pid;
        char *s;

        require_root();
        p.f = standin_start_kept(NULL);
        go_to(&p, READY, false, CARRY_USEC);
        pid = attach_there(&p);
        carry_assert(&p.destination, "State", "ready");
        reap(pid, SIGKILL);
        carry_wait_next(&p.destination, &message);
        assert_string_equal(craft_reason(&message), "vmm-gone");
        carry_deliver(p.f, &message, &reply);
        carry_wait_state(&p.destination, "gone");
        carry_wait_state(&p.source, "kept");

        carry_offer(&p.source, p.f, VM_PATH, CARRY_USEC, false, &message);
        carry_prepare(&p.destination, p.f, &message, "db2", &message);
        carry_deliver(p.f, &message, &reply);
        pid = attach_there(&p);
        carry_start(&p.source, "none", &message);
        carry_deliver(p.f, &message, &reply);
        carry_commit(&p.source, 0, &message);
        carry_deliver(p.f, &message, &reply);
        carry_assert(&p.destination, "State", "owner");
        /* What has been said is true for the next daemon as well. */
        fixture_kill_tdpd(p.f, SIGKILL);
        fixture_restart(p.f);
        carry_deliver(p.f, &reply, &message);
        carry_wait_state(&p.source, "released");
        s = vm_state(p.f, there);
        assert_string_equal(s, "built");
        free(s);
        assert_true(sd_bus_get_property_trivial(p.f->bus, "org.tdpd1", there, "org.tdpd1.VM", "Generation",
                                                &error, 't', &generation) >= 0);
        assert_int_equal(generation, 2);
        reap(p.pid, SIGKILL);
        reap(pid, SIGKILL);
        wait_no_vm(p.f);
        assert_pool_free(p.free_before);
        fixture_stop(p.f);
}

static void record_path(const Pair *p, bool of_source, char *ret, size_t size) {
        const Side *s = of_source ? &p->source : &p->destination;

        snprintf(ret, size, "%s/%s/handoff/%.32s.handoff", p->f->dir, of_source ? "state" : "data",
                 strrchr(s->path, '/') + 1);
}

static void restart(Pair *p) {
        fixture_kill_tdpd(p->f, SIGKILL);
        fixture_restart(p->f);
}

/* The destination's host was booted: what it had prepared is gone, and what it has taken is its own. */
static void test_reboot(void **state) {
        require_root();
        for (unsigned owns = 0; owns < 2; owns++) {
                Pair p = { .f = standin_start_kept(NULL) };
                char path[192];

                go_to(&p, RECEIVING, false, CARRY_USEC);
                if (owns) {
                        take_memory(&p);
                        carry_commit(&p.source, 0, &message);
                        carry_deliver(p.f, &message, &reply);
                        carry_assert(&p.destination, "State", "owner");
                }
                record_path(&p, false, path, sizeof(path));
                record_edit(path, "boot-id", "00000000-0000-0000-0000-000000000000");
                fixture_kill_tdpd(p.f, SIGKILL);
                snprintf(path, sizeof(path), "%s/state/db2.vm", p.f->dir);
                record_edit(path, "boot-id", "00000000-0000-0000-0000-000000000000");
                fixture_restart(p.f);
                if (owns) {
                        /* Asked again, it says the same. */
                        carry_deliver(p.f, &message, &reply);
                        assert_string_equal(craft_type(&reply), "complete");
                        carry_deliver(p.f, &reply, &message);
                        carry_wait_state(&p.source, "released");
                } else {
                        carry_wait_state(&p.destination, "gone");
                        carry_commit(&p.source, 0, &message);
                        carry_deliver(p.f, &message, &reply);
                        assert_string_equal(craft_type(&reply), "abort");
                        carry_deliver(p.f, &reply, &message);
                        carry_wait_state(&p.source, "kept");
                }
                reap(p.pid, SIGKILL);
                wait_no_vm(p.f);
                fixture_stop(p.f);
                assert_int_equal(standin_teardown(NULL), 0);
        }
}

/* A record that cannot be read is no reason to say that there is no such handoff. */
static void test_left_alone(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Pair p = {};
        char path[192];
        FILE *f;

        require_root();
        p.f = standin_start_kept(NULL);
        go_to(&p, RECEIVING, false, CARRY_USEC);
        carry_commit(&p.source, 0, &message);
        fixture_kill_tdpd(p.f, SIGKILL);
        record_path(&p, false, path, sizeof(path));
        f = fopen(path, "we");
        assert_non_null(f);
        fputs("tdpd-handoff 2\nrole of the future\n", f);
        assert_int_equal(fclose(f), 0);
        fixture_restart(p.f);
        assert_false(carry_try_deliver(p.f, &message, &reply, NULL, &error));
        assert_error_is(&error, ERR("Failed"), "left alone");
        carry_assert(&p.source, "State", "committing");
        assert_int_equal(access(path, F_OK), 0);
        reap(p.pid, SIGKILL);
        fixture_stop(p.f);
}

/* What has ended is known of over a restart, until it is forgotten. */
static void test_forgotten(void **state) {
        Pair p = {};
        char path[192];

        require_root();
        p.f = standin_start_kept(NULL);
        go_to(&p, READY, false, CARRY_USEC);
        carry_cancel(&p.destination, "");
        carry_wait_state(&p.destination, "gone");
        restart(&p);
        carry_assert(&p.destination, "State", "gone");
        record_path(&p, false, path, sizeof(path));
        record_edit(path, "finished-usec", "1"); /* 1970 */
        restart(&p);
        assert_int_equal(access(path, F_OK), -1);
        carry_assert(&p.source, "State", "offered");
        carry_cancel(&p.source, "");
        ends_at_source(&p);
        fixture_stop(p.f);
}

/* Nothing is done before it is written down, and what happens by itself is written down once it can be. */
static void test_not_written(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Pair p = {};
        char path[96];

        require_root();
        p.f = standin_start("good");
        snprintf(path, sizeof(path), "%s/data", p.f->dir);
        assert_int_equal(mkdir(path, 0755), 0);
        strcat(path, "/handoff");
        assert_int_equal(mkdir(path, 0700), 0);
        if (mount("tmpfs", path, "tmpfs", 0, "size=64k,mode=0700") < 0) {
                print_message("needs to mount\n");
                skip();
        }
        go_to(&p, STARTED, false, CARRY_USEC);
        take_memory(&p);
        make_read_only(path);
        assert_false(carry_try_deliver(p.f, &message, &reply, NULL, &error));
        assert_error_is(&error, ERR("Failed"), "its record cannot be written");
        carry_assert(&p.destination, "State", "ready");
        sd_bus_error_free(&error);
        assert_false(carry_try_call(&p.destination, "Cancel", NULL, &error, "s", ""));
        assert_error_is(&error, ERR("Failed"), "make room there");

        carry_commit(&p.source, 0, &message);
        carry_deliver(p.f, &message, &reply);
        assert_int_equal(reply.size, 0); /* it would own the VM, and cannot say so */
        carry_assert(&p.destination, "State", "verifying");
        assert_int_equal(mount(NULL, path, NULL, MS_REMOUNT, NULL), 0);
        carry_wait_next(&p.destination, &message);
        assert_string_equal(craft_type(&message), "complete");
        carry_deliver(p.f, &message, &reply);
        carry_wait_state(&p.source, "released");
        release(p.f, "/org/tdpd1/vm/db2");
        reap(p.pid, SIGKILL);
        fixture_stop(p.f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_canceled, fixture_teardown),
                cmocka_unit_test_teardown(test_deadline, fixture_teardown),
                cmocka_unit_test_teardown(test_vmm_gone, fixture_teardown),
                cmocka_unit_test_teardown(test_verify_fails, fixture_teardown),
                cmocka_unit_test_teardown(test_post_copy, fixture_teardown),
                cmocka_unit_test_teardown(test_lost, fixture_teardown),
                cmocka_unit_test_teardown(test_not_written, fixture_teardown),
                cmocka_unit_test_teardown(test_split_and_back, standin_teardown),
                cmocka_unit_test_teardown(test_destination_vmm, standin_teardown),
                cmocka_unit_test_teardown(test_reboot, standin_teardown),
                cmocka_unit_test_teardown(test_left_alone, standin_teardown),
                cmocka_unit_test_teardown(test_forgotten, standin_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
