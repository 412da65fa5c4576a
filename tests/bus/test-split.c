/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Heal, Split and Collapse: jobs on all of a VM's memory or a range. */
#include "standin.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static size_t count_lines(const char *s, const char *word) {
        size_t n = 0;

        for (; (s = strstr(s, word)); s += strlen(word))
                n++;
        return n;
}

/* The path of the job, or NULL with "error" set. "max_level" UINT32_MAX, "size" 0: not given. */
static const char *job_of(Fixture *f, sd_bus_error *error, const char *member, uint32_t max_level,
                          uint64_t gpa, uint64_t size) {
        static char copy[64];
        const char *job;
        sd_bus_message *m;

        if (size > 0 && max_level != UINT32_MAX)
                m = call(f->bus, error, VM_PATH, "org.tdpd1.VM", member, "a{sv}", 3, "gpa", "t", gpa, "size",
                         "t", size, "max-level", "u", max_level);
        else if (size > 0)
                m = call(f->bus, error, VM_PATH, "org.tdpd1.VM", member, "a{sv}", 2, "gpa", "t", gpa, "size",
                         "t", size);
        else if (max_level != UINT32_MAX)
                m = call(f->bus, error, VM_PATH, "org.tdpd1.VM", member, "a{sv}", 1, "max-level", "u",
                         max_level);
        else
                m = call(f->bus, error, VM_PATH, "org.tdpd1.VM", member, "a{sv}", 0);
        if (!m)
                return NULL;
        assert_true(sd_bus_message_read(m, "o", &job) > 0);
        snprintf(copy, sizeof(copy), "%s", job);
        sd_bus_message_unref(m);
        return copy;
}

static void run_job(Fixture *f, const char *member, uint32_t max_level, uint64_t gpa, uint64_t size) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *job = job_of(f, &error, member, max_level, gpa, size);

        if (!job)
                fail_msg("%s: %s", member, error.message);
        assert_string_equal(wait_job(f, job)->result, "done");
}

static void refused(Fixture *f, const char *member, uint64_t gpa, uint64_t size, const char *name,
                    const char *part) {
        sd_bus_error error = SD_BUS_ERROR_NULL;

        assert_null(job_of(f, &error, member, UINT32_MAX, gpa, size));
        assert_error_is(&error, name, part);
}

static void test_all(void **state) {
        Fixture *f = standin_start_dir(NULL);
        const char *seen;

        require_root();
        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        assert_int_equal(count_lines(standin_calls(), "build"), 12);

        /* 512M and 256M in pieces of 64M, and not the read-only slot. */
        run_job(f, "Split", UINT32_MAX, 0, 0);
        seen = standin_calls();
        assert_int_equal(count_lines(seen, "split 0x"), 12);
        assert_int_equal(count_lines(seen, "+0x4000000 0\n"), 12);
        assert_state(f, "built");
        run_job(f, "Split", 2, 0, 0);
        assert_int_equal(count_lines(standin_calls(), " 2\n"), 12);
        run_job(f, "Collapse", UINT32_MAX, 0, 0);
        assert_int_equal(count_lines(standin_calls(), "collapse 0x"), 12);
        run_job(f, "Heal", UINT32_MAX, 0, 0);
        assert_int_equal(count_lines(standin_calls(), "heal 0x"), 12);
        assert_state(f, "built");
        assert_property(f, "SplitLeaves", 5);
        assert_property(f, "CollapsedLeaves", 6);
        assert_property(f, "KeptBytes", 12288);
        fixture_stop(f);
}

static void test_range(void **state) {
        Fixture *f = standin_start_dir(NULL);

        require_root();
        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        (void) standin_calls();

        run_job(f, "Split", 2, 2 * MIB, 64 * MIB);
        assert_string_equal(standin_calls(), "split 0x200000+0x3e00000 2\nsplit 0x4000000+0x200000 2\n");
        /* Over the end of one slot and the beginning of the next: what is there of it. */
        run_job(f, "Collapse", UINT32_MAX, 480 * MIB, 4096 * MIB);
        assert_string_equal(standin_calls(),
                            "collapse 0x1e000000+0x2000000 0\n"
                            "collapse 0x100000000+0x4000000 0\ncollapse 0x104000000+0x4000000 0\n"
                            "collapse 0x108000000+0x4000000 0\ncollapse 0x10c000000+0x4000000 0\n");
        run_job(f, "Heal", UINT32_MAX, 4096, 4096);
        assert_string_equal(standin_calls(), "heal 0x1000+0x1000 0\n");

        refused(f, "Split", 1024 * MIB, MIB, ERR("InvalidArgument"), "0x100000000+0x10000000");
        refused(f, "Split", 1023 * MIB, MIB, ERR("InvalidArgument"), "no writable memory");
        refused(f, "Split", 1, 4096, ERR("InvalidArgument"), "multiples of 4096");
        refused(f, "Split", 4096, 1, ERR("InvalidArgument"), "multiples of 4096");
        refused(f, "Collapse", UINT64_MAX - 4095, 8192, ERR("InvalidArgument"), "beyond 64 bits");
        refused(f, "Heal", 1024 * MIB, MIB, ERR("InvalidArgument"), "no built memory");
        assert_string_equal(standin_calls(), "");
        fixture_stop(f);
}

/* What is healed after a split is to be split as well. */
static void test_heal_as_it_was_split(void **state) {
        Fixture *f = standin_start_dir(NULL);

        require_root();
        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        (void) standin_calls();
        run_job(f, "Split", 2, 0, 0);
        (void) standin_calls();
        run_job(f, "Heal", UINT32_MAX, 0, 4096);
        assert_string_equal(standin_calls(), "heal 0x0+0x1000 2\n");
        run_job(f, "Collapse", UINT32_MAX, 0, 0);
        (void) standin_calls();
        run_job(f, "Heal", UINT32_MAX, 0, 4096);
        assert_string_equal(standin_calls(), "heal 0x0+0x1000 0\n");
        fixture_stop(f);
}

static void test_bad_options(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Fixture *f = standin_start("good");

        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        assert_null(call(f->bus, &error, VM_PATH, "org.tdpd1.VM", "Split", "a{sv}", 1, "gpa", "t",
                         UINT64_C(0)));
        assert_error_is(&error, ERR("InvalidArgument"), "size is missing");
        assert_null(call(f->bus, &error, VM_PATH, "org.tdpd1.VM", "Split", "a{sv}", 1, "size", "t",
                         UINT64_C(4096)));
        assert_error_is(&error, ERR("InvalidArgument"), "gpa is missing");
        assert_null(call(f->bus, &error, VM_PATH, "org.tdpd1.VM", "Split", "a{sv}", 1, "max-level", "u", 4));
        assert_error_is(&error, ERR("InvalidArgument"), "max-level 4");
        assert_null(call(f->bus, &error, VM_PATH, "org.tdpd1.VM", "Split", "a{sv}", 1, "max-level", "u", 3));
        assert_error_is(&error, ERR("InvalidArgument"), "would do nothing");
        assert_null(call(f->bus, &error, VM_PATH, "org.tdpd1.VM", "Heal", "a{sv}", 1, "max-level", "u", 1));
        assert_error_is(&error, ERR("InvalidArgument"), "there are gpa, size");
        assert_null(call(f->bus, &error, VM_PATH, "org.tdpd1.VM", "Build", "a{sv}", 1, "gpa", "t",
                         UINT64_C(0)));
        assert_error_is(&error, ERR("InvalidArgument"), "\"gpa\" is unknown here");
        fixture_stop(f);
}

/* An older kernel part: it says so, and all else works. */
static void case_63_refused_by_the_kernel(void **state) {
        Fixture *f = standin_start("older");

        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        assert_state(f, "built");
        refused(f, "Split", 0, 0, ERR("Unsupported"), "older than this tdpd");
        refused(f, "Collapse", 0, 0, ERR("Unsupported"), "older than this tdpd");
        run_job(f, "Heal", UINT32_MAX, 0, 0);
        assert_property(f, "Heals", 0);
        release(f, VM_PATH);
        fixture_stop(f);
}

static void test_nothing_to_heal(void **state) {
        Fixture *f = standin_start("good");

        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "never"))->result, "done");
        refused(f, "Heal", 0, 0, ERR("InvalidArgument"), "no built memory");
        /* KVM's own leaves can be split all the same. */
        run_job(f, "Split", UINT32_MAX, 0, 0);
        assert_state(f, "attached");
        fixture_stop(f);
}

static uint64_t cancel_once(Fixture *f, const char *member) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *job = job_of(f, &error, member, UINT32_MAX, 0, 0);
        uint64_t start_usec;

        assert_non_null(job);
        refused(f, "Split", 0, 0, ERR("Busy"), "wait for its end");
        usleep(50000);
        start_usec = now_usec();
        sd_bus_message_unref(call(f->bus, &error, job, "org.tdpd1.Job", "Cancel", NULL));
        assert_false(sd_bus_error_is_set(&error));
        assert_string_equal(wait_job(f, job)->error, ERR("Canceled"));
        start_usec = now_usec() - start_usec;
        assert_state(f, "built");
        return start_usec;
}

static void test_cancel(void **state) {
        static const char *const members[] = { "Split", "Collapse", "Heal" };
        Fixture *f = standin_start("others-never-end");

        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        for (size_t i = 0; i < 3; i++) {
                uint64_t usec = cancel_once(f, members[i]);

                /* On a busy machine a thread may just not get to run. */
                for (unsigned k = 0; k < 4 && usec >= 100000; k++)
                        usec = cancel_once(f, members[i]);
                if (usec >= 100000)
                        fail_msg("a cancel of %s takes %llu us", members[i], (unsigned long long) usec);
        }
        fixture_stop(f);
}

static void test_release_meanwhile(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Fixture *f = standin_start("others-never-end");
        const char *job;

        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        job = job_of(f, &error, "Split", UINT32_MAX, 0, 0);
        assert_non_null(job);
        release(f, VM_PATH);
        assert_string_equal(wait_job(f, job)->result, "canceled");
        assert_int_equal(count_vms(f), 0);
        fixture_stop(f);
}

static void test_slots_property(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = NULL;
        Fixture *f = standin_start_dir(NULL);
        uint64_t gpa, size;
        const char *flag;

        require_root();
        assert_string_equal(wait_job(f, standin_attach(f, spawn_vmm(1, 0), "always"))->result, "done");
        standin_set("logging", true);
        assert_true(sd_bus_get_property(f->bus, "org.tdpd1", VM_PATH, "org.tdpd1.VM", "Slots", &error, &m,
                                        "a(ttas)") >= 0);
        assert_true(sd_bus_message_enter_container(m, 'a', "(ttas)") > 0);
        assert_true(sd_bus_message_read(m, "(ttas)", &gpa, &size, 0) > 0);
        assert_int_equal(size, 512 * MIB);
        assert_true(sd_bus_message_read(m, "(ttas)", &gpa, &size, 1, &flag) > 0);
        assert_string_equal(flag, "read-only");
        assert_true(sd_bus_message_read(m, "(ttas)", &gpa, &size, 1, &flag) > 0);
        assert_string_equal(flag, "dirty-log");
        assert_int_equal(gpa, 4096 * MIB);
        sd_bus_message_unref(m);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_all, standin_teardown),
                cmocka_unit_test_teardown(test_range, standin_teardown),
                cmocka_unit_test_teardown(test_heal_as_it_was_split, standin_teardown),
                cmocka_unit_test_teardown(test_bad_options, standin_teardown),
                cmocka_unit_test_teardown(case_63_refused_by_the_kernel, standin_teardown),
                cmocka_unit_test_teardown(test_nothing_to_heal, standin_teardown),
                cmocka_unit_test_teardown(test_cancel, standin_teardown),
                cmocka_unit_test_teardown(test_release_meanwhile, standin_teardown),
                cmocka_unit_test_teardown(test_slots_property, standin_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
