/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is decided of a VM, why, and what that depends on: options, rules, the VMM's command line. */
#include "standin.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_DEVICE "--device=/nonexistent"

/* The first reason's word of a reply that stands before "a(ss)"; all of them and texts in "all". */
static void read_reasons(sd_bus_message *m, char *all, size_t size) {
        const char *word, *text;
        size_t n = 0;

        all[0] = '\0';
        assert_true(sd_bus_message_enter_container(m, 'a', "(ss)") > 0);
        while (sd_bus_message_read(m, "(ss)", &word, &text) > 0) {
                int k = snprintf(all + n, size - n, "[%s] %s\n", word, text);

                assert_true(k > 0 && (size_t) k < size - n);
                n += (size_t) k;
        }
        assert_true(sd_bus_message_exit_container(m) >= 0);
}

static void assert_reasons(Fixture *f, const char *path, const char *decision, const char *part) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        char all[2048], *d = NULL;
        sd_bus_message *m = NULL;

        assert_true(sd_bus_get_property_string(f->bus, "org.tdpd1", path, "org.tdpd1.VM", "Decision", &error,
                                               &d) >= 0);
        assert_string_equal(d, decision);
        free(d);
        assert_true(sd_bus_get_property(f->bus, "org.tdpd1", path, "org.tdpd1.VM", "Reasons", &error, &m,
                                        "a(ss)") >= 0);
        read_reasons(m, all, sizeof(all));
        sd_bus_message_unref(m);
        if (!strstr(all, part))
                fail_msg("\"%s\" is not in:\n%s", part, all);
}

static void assert_rule(Fixture *f, const char *path, const char *rule) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        char *s = NULL;

        assert_true(sd_bus_get_property_string(f->bus, "org.tdpd1", path, "org.tdpd1.VM", "Rule", &error,
                                               &s) >= 0);
        assert_string_equal(s, rule);
        free(s);
}

typedef struct Plan {
        char decision[16], reasons[2048], rule[64];
        uint64_t page_size, vfio_bytes, pinned_bytes, saved_usec, leaf_size;
        uint32_t migrations;
        bool fault_measured;
} Plan;

static void read_plan(sd_bus_message *m, Plan *p) {
        const struct {
                const char *key;
                uint64_t *value;
        } numbers[] = { { "page-size", &p->page_size },
                        { "vfio-bytes", &p->vfio_bytes },
                        { "pinned-bytes", &p->pinned_bytes },
                        { "saved-usec", &p->saved_usec },
                        { "leaf-size", &p->leaf_size } };
        const char *key, *s;
        unsigned found = 0;
        int b;

        assert_true(sd_bus_message_enter_container(m, 'a', "{sv}") > 0);
        while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
                bool known = false;

                assert_true(sd_bus_message_read(m, "s", &key) > 0);
                for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
                        if (strcmp(numbers[i].key, key) == 0) {
                                assert_true(sd_bus_message_read(m, "v", "t", numbers[i].value) > 0);
                                known = true;
                                found++;
                        }
                if (known)
                        ;
                else if (strcmp(key, "rule") == 0) {
                        assert_true(sd_bus_message_read(m, "v", "s", &s) > 0);
                        snprintf(p->rule, sizeof(p->rule), "%s", s);
                } else if (strcmp(key, "migrations") == 0)
                        assert_true(sd_bus_message_read(m, "v", "u", &p->migrations) > 0);
                else if (strcmp(key, "fault-measured") == 0) {
                        assert_true(sd_bus_message_read(m, "v", "b", &b) > 0);
                        p->fault_measured = b;
                } else
                        assert_true(sd_bus_message_skip(m, "v") >= 0);
                assert_true(sd_bus_message_exit_container(m) >= 0);
        }
        assert_int_equal(found, sizeof(numbers) / sizeof(numbers[0]));
}

#define explain(f, p, ...)                                                                                  \
        do {                                                                                                \
                sd_bus_error _e = SD_BUS_ERROR_NULL;                                                        \
                sd_bus_message *_m = manager_call(f, &_e, "Explain", "a{sv}", __VA_ARGS__);                 \
                const char *_d;                                                                             \
                if (!_m)                                                                                    \
                        fail_msg("Explain: %s", _e.message);                                                \
                memset(p, 0, sizeof(*p));                                                                   \
                assert_true(sd_bus_message_read(_m, "s", &_d) > 0);                                         \
                snprintf((p)->decision, sizeof((p)->decision), "%s", _d);                                   \
                read_reasons(_m, (p)->reasons, sizeof((p)->reasons));                                       \
                read_plan(_m, p);                                                                           \
                sd_bus_message_unref(_m);                                                                   \
        } while (0)

#define assert_plan(p, d, part)                                                                             \
        do {                                                                                                \
                assert_string_equal((p)->decision, d);                                                      \
                if (!strstr((p)->reasons, part))                                                            \
                        fail_msg("\"%s\" is not in:\n%s", part, (p)->reasons);                              \
        } while (0)

static void test_rules_fill_what_is_open(void **state) {
        Fixture *f = fixture_start("[Rule 10-db]\nMatchName=db*\nDecision=never\nPageSize=4K\nNodes=0\n"
                                   "[Rule 20-none]\nMatchName=nowhere\nPageSize=4K\nNodes=1023\n"
                                   "[Rule 30-others]\nMatchMinBytes=1G\nDecision=always\n",
                                   NO_DEVICE);
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *path, *job;
        sd_bus_message *m;
        char vm[128];
        Plan p;

        m = manager_call(f, &error, "Reserve", "sta{sv}", "db1", MIB, 0);
        if (!m)
                fail_msg("Reserve: %s", error.message);
        assert_true(sd_bus_message_read(m, "oo", &path, &job) > 0);
        snprintf(vm, sizeof(vm), "%s", path);
        assert_string_equal(wait_job(f, job)->result, "done");
        sd_bus_message_unref(m);
        assert_reasons(f, vm, "skip", "[rule] rule \"10-db\" says \"never\"");
        assert_rule(f, vm, "10-db");
        release(f, vm);

        /* Who asks wins over a rule. */
        m = manager_call(f, &error, "Reserve", "sta{sv}", "db2", MIB, 1, "decision", "s", "never");
        assert_non_null(m);
        assert_true(sd_bus_message_read(m, "oo", &path, &job) > 0);
        snprintf(vm, sizeof(vm), "%s", path);
        wait_job(f, job);
        sd_bus_message_unref(m);
        assert_reasons(f, vm, "skip", "[requested]");
        assert_rule(f, vm, "10-db");
        release(f, vm);

        /* What a rule brought in is said to come from it. */
        assert_call_fails(f, ERR("NoSuchNode"), "the nodes are from rule \"20-none\"", "Reserve", "sta{sv}",
                          "nowhere", MIB, 1, "page-size", "t", UINT64_C(4096));
        assert_call_fails(f, ERR("NoSuchNode"), "the page size and the nodes are from rule \"20-none\"",
                          "Reserve", "sta{sv}", "nowhere", MIB, 0);

        explain(f, &p, 2, "name", "s", "db9", "bytes", "t", MIB);
        assert_plan(&p, "skip", "[rule]");
        assert_string_equal(p.rule, "10-db");
        assert_int_equal(p.page_size, 4096);
        explain(f, &p, 2, "name", "s", "web", "bytes", "t", MIB);
        assert_string_equal(p.rule, "");
        assert_int_equal(count_vms(f), 0);
        fixture_stop(f);
}

static void test_rules_by_user(void **state) {
        char config[160];
        Fixture *f;
        Plan p;

        snprintf(config, sizeof(config), "[Rule me]\nMatchUser=%u\n[Rule other]\nMatchUser=nobody\n",
                 (unsigned) geteuid());
        f = fixture_start(config, NO_DEVICE);
        explain(f, &p, 1, "bytes", "t", MIB);
        assert_string_equal(p.rule, "me");
        fixture_stop(f);
}

/* A host with pages, a kernel that could build, and a VM: nothing happens that nobody has asked for.  And
 * what was asked for is kept with its reasons. */
static void case_46_decision_and_reasons_are_kept(void **state) {
        Fixture *f = standin_start_with("good", "[Policy]\nDecision=never\n");
        pid_t pid = spawn_vmm(1, 0);
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *path, *job;
        sd_bus_message *m;
        char vm[128];

        usleep(300000);
        assert_int_equal(count_vms(f), 0);
        m = manager_call(f, &error, "AttachPid", "sua{sv}", "db", (uint32_t) pid, 0);
        if (!m)
                fail_msg("AttachPid: %s", error.message);
        assert_true(sd_bus_message_read(m, "oo", &path, &job) > 0);
        snprintf(vm, sizeof(vm), "%s", path);
        assert_string_equal(wait_job(f, job)->result, "done");
        sd_bus_message_unref(m);
        assert_reasons(f, vm, "skip", "[configured] decision \"never\" is in the configuration");
        assert_property(f, "BuiltBytes", 0);
        assert_property(f, "PinnedBytes", 0);
        reap(pid, SIGKILL);
        wait_no_vm(f);
        fixture_stop(f);
}

static void attach_and_check(Fixture *f, const char *const *argv, const char *decision, const char *part) {
        pid_t pid = spawn_named_vmm(argv, -1);
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *path, *job;
        sd_bus_message *m;

        m = manager_call(f, &error, "AttachPid", "sua{sv}", "db", (uint32_t) pid, 0);
        if (!m)
                fail_msg("AttachPid: %s", error.message);
        assert_true(sd_bus_message_read(m, "oo", &path, &job) > 0);
        assert_string_equal(wait_job(f, job)->result, "done");
        sd_bus_message_unref(m);
        assert_reasons(f, VM_PATH, decision, part);
        reap(pid, SIGKILL);
        wait_no_vm(f);
}

static void case_47_balloons_of_running_vms_are_seen(void **state) {
        Fixture *f = standin_start("good");

        attach_and_check(f,
                         (const char *const[]){ "qemu-system-x86_64", "-device",
                                                "virtio-balloon-pci,id=balloon0", NULL },
                         "build", "[leaf-faults-avoided]");
        attach_and_check(
                        f,
                        (const char *const[]){ "qemu-system-x86_64", "-device",
                                               "{\"driver\":\"virtio-balloon-pci\",\"deflate-on-oom\":true}",
                                               NULL },
                        "skip", "[balloon]");
        attach_and_check(f,
                         (const char *const[]){ "/usr/bin/qemu-system-x86_64", "-device",
                                                "virtio-balloon-pci,free-page-reporting=on", "-object",
                                                "memory-backend-memfd,id=m,discard-data=on", NULL },
                         "skip", "[discard]");
        fixture_stop(f);
}

static void test_explained_facts(void **state) {
        Fixture *f = standin_start("good");
        uint64_t saved;
        Plan p;

        /* Small pages, which are always there. */
#define VM "bytes", "t", 64 * MIB, "page-size", "t", UINT64_C(4096)
        explain(f, &p, 2, VM);
        assert_plan(&p, "build", "[leaf-faults-avoided]");
        assert_int_equal(p.leaf_size, 4096);
        assert_int_equal(p.pinned_bytes, 64 * MIB);
        assert_false(p.fault_measured);
        saved = p.saved_usec;
        explain(f, &p, 3, VM, "migrations", "u", (uint32_t) 3);
        assert_plan(&p, "build", "[leaf-faults-avoided]");
        assert_int_equal(p.migrations, 3);
        assert_int_equal(p.saved_usec, 4 * saved);

        explain(f, &p, 3, VM, "balloon", "b", 1);
        assert_plan(&p, "skip", "[balloon]");
        assert_int_equal(p.pinned_bytes, 0);
        explain(f, &p, 3, VM, "balloon", "b", 0);
        assert_plan(&p, "build", "[leaf-faults-avoided]");
        explain(f, &p, 4, VM, "free-page-reporting", "b", 1, "discard", "b", 1);
        assert_plan(&p, "skip", "[free-page-reporting]");
        assert_plan(&p, "skip", "[discard]");
        explain(f, &p, 4, VM, "confidential", "b", 1, "decision", "s", "always");
        assert_plan(&p, "skip", "[confidential]");

        assert_call_fails(f, ERR("InvalidArgument"), "it must be 'b'", "Explain", "a{sv}", 3, VM, "balloon",
                          "u", (uint32_t) 1);
        assert_call_fails(f, ERR("InvalidArgument"), "it must be 'u'", "Explain", "a{sv}", 3, VM,
                          "migrations", "s", "some");
        fixture_stop(f);
}

static void case_49_explain_warns_of_nx_huge_pages(void **state) {
        Fixture *f;
        Plan p;

        (void) pool_grow(32);
        f = standin_start("nx");
        explain(f, &p, 3, "bytes", "t", 64 * MIB, "page-size", "t", HUGE_2M, "decision", "s", "always");
        assert_plan(&p, "build", "[nx-huge-pages]");
        explain(f, &p, 2, VM);
        assert_null(strstr(p.reasons, "nx-huge-pages"));
        fixture_stop(f);
}

static void case_50_plan_shows_what_vfio_locks(void **state) {
        Fixture *f = standin_start("good");
        Plan p;

        explain(f, &p, 3, VM, "vfio-devices", "u", (uint32_t) 3);
        assert_plan(&p, "build", "[leaf-faults-avoided]");
        assert_int_equal(p.vfio_bytes, 64 * MIB + 1024 * MIB);
        explain(f, &p, 4, VM, "vfio-devices", "u", (uint32_t) 3, "viommu", "b", 1);
        assert_int_equal(p.vfio_bytes, 3 * 64 * MIB + 1024 * MIB);
        explain(f, &p, 2, VM);
        assert_int_equal(p.vfio_bytes, 0);
        fixture_stop(f);
}

int main(int argc, char *argv[]) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_rules_fill_what_is_open, fixture_teardown),
                cmocka_unit_test_teardown(test_rules_by_user, fixture_teardown),
                cmocka_unit_test_teardown(case_46_decision_and_reasons_are_kept, fixture_teardown),
                cmocka_unit_test_teardown(case_47_balloons_of_running_vms_are_seen, fixture_teardown),
                cmocka_unit_test_teardown(test_explained_facts, fixture_teardown),
                cmocka_unit_test_teardown(case_49_explain_warns_of_nx_huge_pages, fixture_teardown),
                cmocka_unit_test_teardown(case_50_plan_shows_what_vfio_locks, fixture_teardown),
        };

        vmm_main(argc, argv);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
