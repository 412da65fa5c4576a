/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the daemon does with the kernel's events: tells, heals, charges. */
#include "standin.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GIB     (1024 * MIB)
#define HEALING "[Healing]\nHealDelayMSec=100\n"

/* What HolesChanged and SlotsChanged have said so far. */
static struct {
        unsigned n_holes, n_slots;
        uint64_t lost, healed, holes, bytes;
        char reason[16];
} seen;

static int on_holes(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        uint64_t lost, healed;
        const char *reason;

        assert_true(sd_bus_message_enter_container(m, 'a', "{st}") > 0);
        while (sd_bus_message_read(m, "{st}", &reason, &lost) > 0) {
                snprintf(seen.reason, sizeof(seen.reason), "%s", reason);
                seen.lost += lost;
        }
        assert_true(sd_bus_message_exit_container(m) >= 0);
        assert_true(sd_bus_message_read(m, "tt", &healed, &seen.holes) > 0);
        seen.healed += healed;
        seen.n_holes++;
        return 0;
}

static int on_slots(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        assert_true(sd_bus_message_read(m, "t", &seen.bytes) > 0);
        seen.n_slots++;
        return 0;
}

/* A built VM. */
static Fixture *start(const char *config) {
        Fixture *f;

        require_root();
        f = standin_start_dir(config);
        memset(&seen, 0, sizeof(seen));
        assert_true(sd_bus_match_signal(f->bus, NULL, NULL, VM_PATH, "org.tdpd1.VM", "HolesChanged",
                                        on_holes, f) >= 0);
        assert_true(sd_bus_match_signal(f->bus, NULL, NULL, VM_PATH, "org.tdpd1.VM", "SlotsChanged",
                                        on_slots, f) >= 0);
        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        assert_state(f, "built");
        (void) standin_calls();
        return f;
}

static void send_event(uint32_t type, uint32_t reason, uint64_t gpa, uint64_t size) {
        standin_event(&(struct kvm_gtdp_event){
                        .type = type,
                        .reason = reason,
                        .gpa = gpa,
                        .size = size,
                        .bytes = type == KVM_GTDP_EVENT_HOLE ? size : 0,
        });
}

static void hole(uint32_t reason, uint64_t gpa, uint64_t size) {
        send_event(KVM_GTDP_EVENT_HOLE, reason, gpa, size);
}

static void process(Fixture *f, uint64_t usec) {
        for (uint64_t until = now_usec() + usec; now_usec() < until;)
                if (sd_bus_process(f->bus, NULL) == 0)
                        assert_true(sd_bus_wait(f->bus, 10000) >= 0);
}

static void wait_property(Fixture *f, const char *name, uint64_t value) {
        for (uint64_t until = now_usec() + 10000000; now_usec() < until && get_property(f, name) != value;)
                process(f, 20000);
        assert_property(f, name, value);
}

static void wait_seen(Fixture *f, const uint64_t *field, uint64_t value) {
        for (uint64_t until = now_usec() + 10000000; now_usec() < until && *field != value;)
                process(f, 20000);
        assert_int_equal(*field, value);
}

static void wait_calls(Fixture *f, const char *expected) {
        const char *calls = standin_calls();

        for (uint64_t until = now_usec() + 10000000; now_usec() < until && !*calls; calls = standin_calls())
                process(f, 20000);
        assert_string_equal(calls, expected);
}

static void test_hole_is_healed(void **state) {
        Fixture *f = start(HEALING);

        hole(KVM_GTDP_HOLE_NOTIFIER, 2 * MIB, 2 * MIB);
        hole(KVM_GTDP_HOLE_NOTIFIER, 4 * MIB, 4096);
        wait_state(f, "healing");
        assert_property(f, "Holes", 2 * MIB + 4096);
        wait_property(f, "Heals", 1);
        wait_state(f, "built");
        assert_string_equal(standin_calls(), "heal 0x200000+0x201000 0\n");
        assert_property(f, "HealedBytes", 2 * MIB + 4096);
        assert_property(f, "HealsPutOff", 0);

        wait_seen(f, &seen.healed, 2 * MIB + 4096);
        assert_int_equal(seen.lost, 2 * MIB + 4096);
        assert_string_equal(seen.reason, "notifier");
        assert_int_equal(seen.holes, 0);
        assert_int_equal(seen.n_slots, 0);
        fixture_stop(f);
}

/* It stays a hole while its memory is gone; it is asked for again, and not often. */
static void test_memory_is_gone(void **state) {
        Fixture *f = start(HEALING);
        uint64_t begin = now_usec(), n;

        standin_set("gone", true);
        hole(KVM_GTDP_HOLE_NOTIFIER, 0, 4096);
        wait_property(f, "Heals", 3);
        /* After 0.1, 0.3, 0.7 seconds, ... */
        n = get_property(f, "Heals");
        assert_true(now_usec() - begin >= ((UINT64_C(1) << n) - 1) * 100000);
        assert_property(f, "HealedBytes", 0);
        assert_state(f, "healing");
        standin_set("gone", false);
        wait_property(f, "HealedBytes", 4096);
        wait_state(f, "built");
        n = get_property(f, "Heals");
        assert_true(n >= 4);
        /* That was the last time. */
        process(f, 2000000);
        assert_property(f, "Heals", n);
        fixture_stop(f);
}

static void test_bound(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Fixture *f = start(HEALING "HealIntervalSec=3600\nHealBurst=2\n");

        for (unsigned i = 0; i < 2; i++) {
                hole(KVM_GTDP_HOLE_NOTIFIER, i * 8 * MIB, 4096);
                wait_property(f, "Heals", i + 1);
        }
        for (unsigned i = 2; i < 4; i++)
                hole(KVM_GTDP_HOLE_NOTIFIER, i * 8 * MIB, 4096);
        wait_property(f, "HealsPutOff", 1);
        process(f, 500000);
        assert_property(f, "Heals", 2);
        assert_property(f, "HealsPutOff", 1);
        assert_state(f, "healing");
        assert_property(f, "Holes", 8192);
        /* Whoever asks is not bound. */
        sd_bus_message_unref(call(f->bus, &error, VM_PATH, "org.tdpd1.VM", "Heal", "a{sv}", 0));
        assert_false(sd_bus_error_is_set(&error));
        wait_state(f, "built");
        fixture_stop(f);
}

static void test_off(void **state) {
        Fixture *f = start(HEALING "HealBurst=0\n");

        hole(KVM_GTDP_HOLE_NOTIFIER, 0, 4096);
        process(f, 300000);
        assert_state(f, "healing");
        assert_property(f, "Heals", 0);
        assert_int_equal(seen.lost, 4096);
        assert_string_equal(standin_calls(), "");
        fixture_stop(f);
}

static void test_not_for_slots(void **state) {
        Fixture *f = start(HEALING);

        hole(KVM_GTDP_HOLE_SLOT, 0, 512 * MIB);
        process(f, 300000);
        assert_state(f, "built");
        assert_property(f, "Heals", 0);
        assert_string_equal(seen.reason, "slot");
        /* Nothing is built that was not: this is in no slot. */
        hole(KVM_GTDP_HOLE_NOTIFIER, 600 * MIB, 4096);
        process(f, 300000);
        assert_string_equal(standin_calls(), "");
        /* Not even if there is something else to heal, and not for ever. */
        hole(KVM_GTDP_HOLE_NOTIFIER, 0, 4096);
        hole(KVM_GTDP_HOLE_NOTIFIER, 600 * MIB, 4096);
        process(f, 700000);
        assert_string_equal(standin_calls(), "heal 0x0+0x1000 0\n");
        assert_property(f, "Heals", 1);
        fixture_stop(f);
}

static void case_57_logging_is_waited_for(void **state) {
        Fixture *f = start(HEALING);

        standin_set("logging", true);
        send_event(KVM_GTDP_EVENT_SLOT_FLAGS, KVM_GTDP_SLOT_DIRTY_LOG, 4 * GIB, 256 * MIB);
        hole(KVM_GTDP_HOLE_DIRTY_LOG, 4 * GIB, 2 * MIB);
        process(f, 300000);
        assert_property(f, "Heals", 0);
        assert_state(f, "healing");
        assert_true(seen.n_slots > 0);

        standin_set("logging", false);
        send_event(KVM_GTDP_EVENT_SLOT_FLAGS, 0, 4 * GIB, 256 * MIB);
        wait_property(f, "Heals", 1);
        assert_string_equal(standin_calls(), "heal 0x100000000+0x200000 0\n");
        wait_state(f, "built");
        fixture_stop(f);
}

static void test_dropped(void **state) {
        Fixture *f = start(HEALING);

        send_event(KVM_GTDP_EVENT_DROPPED, 0, 0, 0);
        wait_property(f, "Heals", 1);
        assert_string_equal(standin_calls(), "heal 0x0+0x20000000 0\nheal 0x100000000+0x10000000 0\n");
        assert_true(seen.n_holes > 0);
        fixture_stop(f);
}

/* A storm of events is told once a second. */
static void test_few_signals(void **state) {
        uint64_t begin = now_usec(), seconds;
        Fixture *f = start(HEALING "HealBurst=0\n");

        for (unsigned i = 0; i < 100; i++) {
                hole(KVM_GTDP_HOLE_NOTIFIER, i * 8192, 4096);
                process(f, 20000);
        }
        process(f, 1100000);
        seconds = (now_usec() - begin) / 1000000;
        assert_int_equal(seen.lost, 100 * 4096);
        assert_in_range(seen.n_holes, 2, seconds + 1);
        fixture_stop(f);
}

static bool may_reserve(Fixture *f, uint64_t bytes) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m;
        const char *vm, *job;

        m = manager_call(f, &error, "Reserve", "sta{sv}", "more", bytes, 1, "page-size", "t",
                         UINT64_C(4096));
        if (!m) {
                assert_error_is(&error, ERR("LimitExceeded"), "MaxBytes");
                return false;
        }
        assert_true(sd_bus_message_read(m, "oo", &vm, &job) > 0);
        wait_job(f, job);
        release(f, vm);
        sd_bus_message_unref(m);
        return true;
}

/* 768M, and 128M more by and by, of 900M. */
static void test_memory_is_added(void **state) {
        Fixture *f = start(HEALING "[Limits]\nMaxBytes=900M\n");

        assert_true(may_reserve(f, 16 * MIB));
        standin_set("more", true);
        send_event(KVM_GTDP_EVENT_SLOT_ADDED, 0, 8 * GIB, 128 * MIB);
        wait_seen(f, &seen.bytes, SLOTS_BYTES + 128 * MIB);
        assert_property(f, "Bytes", SLOTS_BYTES + 128 * MIB);
        /* It is charged now, and healed like all else. */
        assert_false(may_reserve(f, 16 * MIB));
        hole(KVM_GTDP_HOLE_NOTIFIER, 8 * GIB, 4096);
        wait_property(f, "Heals", 1);
        assert_string_equal(standin_calls(), "heal 0x200000000+0x1000 0\n");

        standin_set("more", false);
        send_event(KVM_GTDP_EVENT_SLOT_REMOVED, 0, 8 * GIB, 128 * MIB);
        wait_seen(f, &seen.bytes, SLOTS_BYTES);
        assert_true(may_reserve(f, 16 * MIB));
        fixture_stop(f);
}

/* More than its user may have: what the kernel has built already is let go. */
static void test_too_much_is_added(void **state) {
        Fixture *f = start(HEALING "[Limits]\nMaxBytes=800M\n");

        for (unsigned i = 0; i < 2; i++) {
                standin_set("more", true);
                send_event(KVM_GTDP_EVENT_SLOT_ADDED, 0, 8 * GIB, 128 * MIB);
                wait_calls(f, "release 0x200000000+0x8000000 0\n");
                assert_property(f, "Bytes", SLOTS_BYTES + 128 * MIB);
                assert_true(may_reserve(f, 16 * MIB));
                assert_false(may_reserve(f, 64 * MIB));
                standin_set("more", false);
                send_event(KVM_GTDP_EVENT_SLOT_REMOVED, 0, 8 * GIB, 128 * MIB);
                wait_property(f, "Bytes", SLOTS_BYTES);
                process(f, 100000);
        }
        assert_property(f, "Heals", 0);
        fixture_stop(f);
}

/* The same if the events that would have told of it were lost: what is there counts. */
static void test_added_unheard(void **state) {
        Fixture *f = start(HEALING "HealBurst=0\n[Limits]\nMaxBytes=900M\n");

        standin_set("more", true);
        send_event(KVM_GTDP_EVENT_DROPPED, 0, 0, 0);
        wait_property(f, "Bytes", SLOTS_BYTES + 128 * MIB);
        assert_true(may_reserve(f, 2 * MIB));
        assert_false(may_reserve(f, 16 * MIB));
        assert_string_equal(standin_calls(), "");
        fixture_stop(f);
}

static void test_too_much_is_added_unheard(void **state) {
        Fixture *f = start(HEALING "HealBurst=0\n[Limits]\nMaxBytes=800M\n");

        standin_set("more", true);
        send_event(KVM_GTDP_EVENT_DROPPED, 0, 0, 0);
        wait_calls(f, "release 0x200000000+0x8000000 0\n");
        assert_true(may_reserve(f, 16 * MIB));
        assert_false(may_reserve(f, 64 * MIB));
        fixture_stop(f);
}

/* A thread of ours is in the kernel: release, VMM's end and daemon's end wait for it, and not for long. */
static void test_ends_while_healing(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Fixture *f = start(HEALING);
        uint64_t begin;
        pid_t pid;

        standin_set("block", true);
        hole(KVM_GTDP_HOLE_NOTIFIER, 0, 4096);
        wait_calls(f, "heal 0x0+0x1000 0\n");
        begin = now_usec();
        sd_bus_message_unref(call(f->bus, &error, VM_PATH, "org.tdpd1.VM", "Release", NULL));
        assert_false(sd_bus_error_is_set(&error));
        assert_true(now_usec() - begin < 2000000);
        assert_int_equal(count_vms(f), 0);

        pid = spawn_vmm(1, 0);
        assert_string_equal(wait_job(f, standin_attach(f, pid, "always"))->result, "done");
        (void) standin_calls();
        hole(KVM_GTDP_HOLE_NOTIFIER, 0, 4096);
        wait_calls(f, "heal 0x0+0x1000 0\n");
        reap(pid, SIGKILL);
        wait_no_vm(f);
        fixture_stop(f);
}

static void test_stop_while_healing(void **state) {
        Fixture *f = start(HEALING);

        standin_set("block", true);
        hole(KVM_GTDP_HOLE_NOTIFIER, 0, 4096);
        wait_calls(f, "heal 0x0+0x1000 0\n");
        fixture_stop(f);
}

/* A build takes precedence, and what was interrupted is healed later if it is still needed. */
static void test_build_while_healing(void **state) {
        Fixture *f = start(HEALING);

        standin_set("block", true);
        hole(KVM_GTDP_HOLE_NOTIFIER, 0, 4096);
        wait_calls(f, "heal 0x0+0x1000 0\n");
        assert_string_equal(wait_job(f, standin_build(f))->result, "done");
        standin_set("block", false);
        wait_property(f, "HealedBytes", 4096);
        wait_state(f, "built");
        fixture_stop(f);
}

/* It could not be built when it was added. */
static void test_added_memory_is_short(void **state) {
        Fixture *f = start(HEALING);

        standin_set("more", true);
        standin_set("auto-error", true);
        send_event(KVM_GTDP_EVENT_SLOT_ADDED, 0, 8 * GIB, 128 * MIB);
        wait_calls(f, "heal 0x200000000+0x8000000 0\n");
        assert_property(f, "AutoErrors", 1);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_hole_is_healed, standin_teardown),
                cmocka_unit_test_teardown(test_memory_is_gone, standin_teardown),
                cmocka_unit_test_teardown(test_bound, standin_teardown),
                cmocka_unit_test_teardown(test_off, standin_teardown),
                cmocka_unit_test_teardown(test_not_for_slots, standin_teardown),
                cmocka_unit_test_teardown(case_57_logging_is_waited_for, standin_teardown),
                cmocka_unit_test_teardown(test_dropped, standin_teardown),
                cmocka_unit_test_teardown(test_few_signals, standin_teardown),
                cmocka_unit_test_teardown(test_memory_is_added, standin_teardown),
                cmocka_unit_test_teardown(test_too_much_is_added, standin_teardown),
                cmocka_unit_test_teardown(test_added_unheard, standin_teardown),
                cmocka_unit_test_teardown(test_too_much_is_added_unheard, standin_teardown),
                cmocka_unit_test_teardown(test_added_memory_is_short, standin_teardown),
                cmocka_unit_test_teardown(test_ends_while_healing, standin_teardown),
                cmocka_unit_test_teardown(test_stop_while_healing, standin_teardown),
                cmocka_unit_test_teardown(test_build_while_healing, standin_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
