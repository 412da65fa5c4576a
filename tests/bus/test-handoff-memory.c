/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which memory a VM has at either end of a handoff. */
#include "carry.h"
#include "fake-sysfs.h"
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIB  (1024 * MIB)
#define MORE (128 * MIB) /* of the stand-in, at 8G */

static Bytes message;

/* Two nodes with 8 pages of 1G each, all of one of them in use. */
static Fixture *start_with_full_node(unsigned full) {
        char arg[96];

        put("0-1\n", "devices/system/node/online");
        for (unsigned i = 0; i < 2; i++) {
                put_node(i, i == 0 ? "0\n" : "1\n", "16777216");
                put_pool(i, "1048576", "8\n");
        }
        put("0\n", "devices/system/node/node%u/hugepages/hugepages-1048576kB/free_hugepages", full);
        snprintf(arg, sizeof(arg), "--sysfs-root=%s", fake_sysfs_root());
        return fixture_start(NULL, arg);
}

static unsigned node_of(Side *destination) {
        char *vm = carry_property(destination, "VMObject");
        sd_bus_error error = SD_BUS_ERROR_NULL;
        uint64_t bytes;
        const char *part;
        sd_bus_message *m;
        uint32_t node;
        int fd;

        m = call(destination->f->bus, &error, vm, "org.tdpd1.VM", "GetMemory", NULL);
        if (!m)
                fail_msg("GetMemory: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(stuh)") > 0);
        assert_true(sd_bus_message_read(m, "(stuh)", &part, &bytes, &node, &fd) > 0);
        assert_int_equal(bytes, 8 * GIB);
        sd_bus_message_unref(m);
        free(vm);
        return node;
}

/* This machine need not have such pages, nor that node: what fails then is its memory there, by name. */
static void assert_lands_on(Fixture *f, unsigned node, unsigned full) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        char there[16], other[16];
        Side destination;
        Bytes answer;

        snprintf(there, sizeof(there), "node %u", node);
        snprintf(other, sizeof(other), "node %u", full);
        if (carry_try_prepare_on(NULL, &destination, f, &message, NULL, 0, &answer, &error)) {
                carry_wait_state(&destination, "ready");
                assert_int_equal(node_of(&destination), node);
                carry_cancel(&destination, "");
                carry_wait_state(&destination, "gone");
                return;
        }
        if (!strstr(error.message, there) || strstr(error.message, other) ||
            strstr(error.message, "short of"))
                fail_msg("not on %s: %s", there, error.message);
        sd_bus_error_free(&error);
}

static void case_53_destination_places_by_itself(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        char nodes[8], path[64];
        Side destination;
        Bytes answer;
        Fixture *f;

        require_root();
        /* The VM was on node 0 of its host, which is full of it.  Node 0 is full here, too; then node 1. */
        craft_offer(&message, "db", 1, 8 * GIB, GIB);
        for (unsigned full = 0; full < 2; full++) {
                f = start_with_full_node(full);
                assert_lands_on(f, 1 - full, full);
                snprintf(nodes, sizeof(nodes), "%u", full);
                assert_false(carry_try_prepare_on(nodes, &destination, f, &message, NULL, 0, &answer,
                                                  &error));
                snprintf(path, sizeof(path), "0 free, 0 reserved on node %u: short of 8", full);
                assert_error_is(&error, ERR("NoPages"), path);
                assert_int_equal(count_vms(f), 0);
                fixture_stop(f);
        }
}

static void wait_bytes(Fixture *f, uint64_t bytes) {
        for (uint64_t until = now_usec() + 20000000;
             now_usec() < until && get_property(f, "Bytes") != bytes;)
                usleep(10000);
        assert_property(f, "Bytes", bytes);
}

static void wait_call(const char *expected) {
        const char *calls = standin_calls();

        for (uint64_t until = now_usec() + 20000000; now_usec() < until && !*calls; calls = standin_calls())
                usleep(10000);
        assert_string_equal(calls, expected);
}

static void case_60_memory_is_added_meanwhile(void **state) {
        Side source, again;
        Fixture *f;

        require_root();
        f = standin_start_dir("[Healing]\nHealDelayMSec=100\n");
        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        (void) standin_calls();
        carry_offer(&source, f, VM_PATH, CARRY_USEC, false, &message);
        assert_int_equal(carry_number(&source, "Bytes"), SLOTS_BYTES);

        /* What the kernel could not map when it came is mapped as without a handoff. */
        standin_set("auto-error", true);
        standin_set("more", true);
        standin_event(&(struct kvm_gtdp_event){
                        .type = KVM_GTDP_EVENT_SLOT_ADDED, .gpa = 8 * GIB, .size = MORE });
        wait_bytes(f, SLOTS_BYTES + MORE);
        wait_call("heal 0x200000000+0x8000000 0\n");
        assert_int_equal(carry_number(&source, "Bytes"), SLOTS_BYTES);
        carry_assert(&source, "State", "offered");

        /* The next one has it. */
        carry_cancel(&source, "");
        carry_wait_state(&source, "kept");
        carry_offer(&again, f, VM_PATH, CARRY_USEC, false, &message);
        assert_int_equal(carry_number(&again, "Bytes"), SLOTS_BYTES + MORE);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(case_53_destination_places_by_itself, fake_sysfs_setup,
                                                fake_sysfs_teardown),
                cmocka_unit_test_teardown(case_60_memory_is_added_meanwhile, standin_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
