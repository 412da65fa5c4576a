/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Limits of cgroups on huge pages, and who has them. */
#include "fixture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake-sysfs.h"

#define NODE0 "/org/tdpd1/node/0"

static void test_case_16_limits_of_cgroups(void **state) {
        char arg[96];
        Fixture *f;

        put("0\n", "devices/system/node/online");
        put_node(0, "0\n", "33554432");
        put_pool(0, "2048", "2048\n");
        put("0\n", "fs/cgroup/vms/hugetlb.2MB.max");
        put("0\n", "fs/cgroup/vms/hugetlb.2MB.current");
        snprintf(arg, sizeof(arg), "--sysfs-root=%s", fake_sysfs_root());
        f = fixture_start(NULL, arg);
        assert_call_fails(f, ERR("LimitExceeded"),
                          "asked for 8 pages of 2 MiB, and cgroup /vms (of the VMM) allows 0 more: its "
                          "hugetlb.2MB.max is 0 bytes",
                          "Reserve", "sta{sv}", "a", 8 * HUGE_2M, 2, "page-size", "t", HUGE_2M, "cgroup",
                          "s", "/vms/a.scope");
        assert_call_fails(f, ERR("InvalidArgument"), "is no path of one", "Reserve", "sta{sv}", "a", HUGE_2M,
                          1, "cgroup", "s", "/vms/../x");
        assert_int_equal(count_vms(f), 0);
        fixture_stop(f);
}

#define UNIFIED "/sys/fs/cgroup/unified"

/* The kernel charges tdpd, so the limit of its own cgroup comes first. */
static void test_case_16_own_cgroup(void **state) {
        static const char folder[] = UNIFIED "/tdpd-test";
        char path[128], text[32];
        Fixture *f;
        FILE *file;

        require_root();
        file = fopen(UNIFIED "/cgroup.subtree_control", "we");
        if (!file || fprintf(file, "+hugetlb") < 0 || fclose(file) != 0 ||
            (mkdir(folder, 0755) < 0 && errno != EEXIST)) {
                print_message("no unified tree with the hugetlb controller at " UNIFIED "\n");
                skip();
        }
        pool_grow(16);
        f = fixture_start(NULL, NULL);
        snprintf(path, sizeof(path), "%s/hugetlb.2MB.rsvd.max", folder);
        file = fopen(path, "we");
        assert_non_null(file);
        fprintf(file, "%llu", 4ULL * HUGE_2M);
        assert_int_equal(fclose(file), 0);
        snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
        snprintf(text, sizeof(text), "%i", (int) f->tdpd_pid);
        file = fopen(path, "we");
        assert_non_null(file);
        fputs(text, file);
        assert_int_equal(fclose(file), 0);

        assert_call_fails(
                        f, ERR("LimitExceeded"),
                        "cgroup /tdpd-test (of tdpd, which allocates) allows 4 more: its hugetlb.2MB.rsvd.max",
                        "Reserve", "sta{sv}", "a", 5 * HUGE_2M, 1, "page-size", "t", HUGE_2M);
        wait_job(f, reserve(f, "a", 4 * HUGE_2M, HUGE_2M).job);
        fixture_stop(f);
        assert_int_equal(rmdir(folder), 0);
}

typedef struct Wanted {
        const char *kind, *name;
        int32_t node;
        uint64_t pages;
        uint32_t pid;
        bool found;
} Wanted;

static void look_for(Fixture *f, Wanted *wanted, size_t n) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *kind, *name, *file;
        uint64_t size, pages;
        uint32_t pid, uid;
        sd_bus_message *m;
        int32_t node;

        m = manager_call(f, &error, "Holders", NULL);
        if (!m)
                fail_msg("Holders: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(tituusss)") > 0);
        while (sd_bus_message_read(m, "(tituusss)", &size, &node, &pages, &pid, &uid, &kind, &name, &file) >
               0)
                for (size_t i = 0; i < n; i++)
                        if (size == HUGE_2M && node == wanted[i].node && pages == wanted[i].pages &&
                            pid == wanted[i].pid && strcmp(kind, wanted[i].kind) == 0 &&
                            (!wanted[i].name || strcmp(name, wanted[i].name) == 0))
                                wanted[i].found = true;
        sd_bus_message_unref(m);
        for (size_t i = 0; i < n; i++)
                if (!wanted[i].found)
                        fail_msg("no %s with %" PRIu64 " pages", wanted[i].kind, wanted[i].pages);
}

static void test_case_26_exact_fit_or_who_has_them(void **state) {
        uint64_t available, others;
        Reservation a;
        Fixture *f;
        char *p;

        pool_grow(12);
        f = fixture_start(NULL, NULL);
        p = mmap(NULL, 3 * HUGE_2M, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1,
                 0);
        assert_true(p != MAP_FAILED);
        memset(p, 1, 3 * HUGE_2M);

        read_available(f, NODE0, HUGE_2M, &available, &others);
        assert_true(available >= 9);
        assert_call_fails(f, ERR("NoPages"), "pages are held by process", "Reserve", "sta{sv}", "b",
                          (available + 1) * HUGE_2M, 1, "page-size", "t", HUGE_2M);
        a = reserve(f, "a", available * HUGE_2M, HUGE_2M);
        assert_string_equal(wait_job(f, a.job)->result, "done");
        {
                Wanted wanted[] = {
                        { "process", "test-bus-holder", 0, 3, (uint32_t) getpid(), false },
                        { "vm", "a", -1, available, (uint32_t) f->tdpd_pid, false },
                };

                look_for(f, wanted, 2);
        }
        assert_call_fails(f, ERR("NoPages"), "VM a ", "Reserve", "sta{sv}", "b", HUGE_2M, 1, "page-size",
                          "t", HUGE_2M);
        munmap(p, 3 * HUGE_2M);
        release(f, a.vm);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_case_16_limits_of_cgroups, fake_sysfs_setup,
                                                fake_sysfs_teardown),
                cmocka_unit_test_teardown(test_case_16_own_cgroup, fixture_teardown),
                cmocka_unit_test_teardown(test_case_26_exact_fit_or_who_has_them, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
