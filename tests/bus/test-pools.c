/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sizes of pools: on this machine's own 2 MiB pool, and on trees of files behind which a kernel of ours
 * sits. */
#include "fixture.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake-sysfs.h"

#define NODE0 "/org/tdpd1/node/0"

static char config_text[512];
static unsigned pools_changed, pool_lows;
static char wanted_path[64];

static const char *config(const char *lines) {
        snprintf(config_text, sizeof(config_text), "[Pools]\nWatchSec=1\nRetrySec=1\n%s", lines);
        return config_text;
}

static Fixture *start_on_fake(const char *lines) {
        char arg[96];

        snprintf(arg, sizeof(arg), "--sysfs-root=%s", fake_sysfs_root());
        return fixture_start(lines ? config(lines) : NULL, arg);
}

static const char *set_pool_raw(Fixture *f, const char *node, uint64_t size, uint64_t pages,
                                const char *mode, bool partial, sd_bus_error *error) {
        static char job[8][64];
        static unsigned next;
        const char *path;
        sd_bus_message *m;

        m = call(f->bus, error, node, "org.tdpd1.Node", "SetPool", "tta{sv}", size, pages, 2, "mode", "s",
                 mode, "allow-partial", "b", partial);
        if (!m)
                return NULL;
        assert_true(sd_bus_message_read(m, "o", &path) > 0);
        next = (next + 1) % 8;
        snprintf(job[next], sizeof(job[next]), "%s", path);
        sd_bus_message_unref(m);
        return job[next];
}

static const char *set_pool(Fixture *f, const char *node, uint64_t size, uint64_t pages, const char *mode,
                            bool partial) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *job = set_pool_raw(f, node, size, pages, mode, partial, &error);

        if (!job)
                fail_msg("SetPool: %s", error.message);
        return job;
}

static void assert_set_fails(Fixture *f, const char *node, uint64_t size, uint64_t pages, const char *mode,
                             const char *name, const char *part) {
        sd_bus_error error = SD_BUS_ERROR_NULL;

        assert_null(set_pool_raw(f, node, size, pages, mode, false, &error));
        assert_error_is(&error, name, part);
}

static void assert_end(Fixture *f, const char *job, const char *result, const char *error,
                       const char *part) {
        const JobEnd *e = wait_job(f, job);

        if (strcmp(e->result, result) != 0 || strcmp(e->error, error) != 0 || !strstr(e->message, part))
                fail_msg("job ended as %s, %s: %s", e->result, e->error, e->message);
}

typedef struct Target {
        uint64_t pages, got;
        char state[16];
} Target;

static Target read_target(Fixture *f, const char *node, uint64_t size) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = NULL;
        Target t = {};
        uint64_t s, pages, got;
        const char *state;

        if (sd_bus_get_property(f->bus, "org.tdpd1", node, "org.tdpd1.Node", "Targets", &error, &m,
                                "a(ttts)") < 0)
                fail_msg("Targets: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(ttts)") > 0);
        while (sd_bus_message_read(m, "(ttts)", &s, &pages, &got, &state) > 0)
                if (s == size) {
                        t = (Target){ .pages = pages, .got = got };
                        snprintf(t.state, sizeof(t.state), "%s", state);
                }
        sd_bus_message_unref(m);
        return t;
}

static void wait_target(Fixture *f, const char *node, uint64_t size, const char *state, uint64_t got) {
        uint64_t until = now_usec() + 8000000;
        Target t;

        do {
                t = read_target(f, node, size);
                if (strcmp(t.state, state) == 0 && t.got == got)
                        return;
                usleep(20000);
        } while (now_usec() < until);
        fail_msg("target of %s is %s with %" PRIu64 ", not %s with %" PRIu64, node, t.state, t.got, state,
                 got);
}

static char *manager_state(Fixture *f) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        char *s;

        if (sd_bus_get_property_string(f->bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "State", &error,
                                       &s) < 0)
                fail_msg("State: %s", error.message);
        return s;
}

static void assert_state(Fixture *f, const char *state) {
        char *s = manager_state(f);

        assert_string_equal(s, state);
        free(s);
}

static int on_changed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *path = sd_bus_message_get_path(m);

        if (path && strcmp(path, wanted_path) == 0)
                pools_changed++;
        return 0;
}

static int on_low(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        pool_lows++;
        return 0;
}

static void watch(Fixture *f, const char *path) {
        pools_changed = pool_lows = 0;
        snprintf(wanted_path, sizeof(wanted_path), "%s", path);
        assert_true(sd_bus_match_signal(f->bus, NULL, "org.tdpd1", path, "org.freedesktop.DBus.Properties",
                                        "PropertiesChanged", on_changed, NULL) >= 0);
        assert_true(sd_bus_match_signal(f->bus, NULL, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "PoolLow",
                                        on_low, NULL) >= 0);
}

static void process(Fixture *f, unsigned *counter, unsigned at_least) {
        uint64_t until = now_usec() + 5000000;

        while (*counter < at_least && now_usec() < until) {
                assert_true(sd_bus_process(f->bus, NULL) >= 0);
                assert_true(sd_bus_wait(f->bus, 20000) >= 0);
        }
        assert_true(*counter >= at_least);
}

/* This machine's pool. */

static void test_grow_and_shrink(void **state) {
        uint64_t before, n;
        Fixture *f;

        pool_grow(8);
        before = pool_read("nr_hugepages");
        f = fixture_start(NULL, NULL);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, before + 40, "set", false), "done", "", "");
        assert_int_equal(pool_read("nr_hugepages"), before + 40);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 20, "grow", false), "done", "", "");
        assert_int_equal(pool_read("nr_hugepages"), before + 60);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 60, "shrink", false), "done", "", "");
        n = pool_read("nr_hugepages");
        assert_int_equal(n, before);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, before, "set", false), "done", "", "");
        fixture_stop(f);
}

static void test_shrink_takes_from_nobody(void **state) {
        uint64_t before, in_use;
        char text[64];
        Reservation a;
        Fixture *f;

        pool_grow(16);
        before = pool_read("nr_hugepages");
        f = fixture_start(NULL, NULL);
        a = reserve(f, "a", 10 * HUGE_2M, HUGE_2M);
        wait_job(f, a.job);
        in_use = before - pool_read("free_hugepages");
        snprintf(text, sizeof(text), "%" PRIu64 " are in use", in_use);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 0, "set", false), "failed", ERR("Busy"), text);
        assert_int_equal(pool_read("nr_hugepages"), before);
        assert_int_equal(pool_read("surplus_hugepages"), 0);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 0, "set", true), "failed", ERR("Partial"), "stay");
        assert_in_range(pool_read("nr_hugepages"), in_use, before - 1);
        assert_int_equal(pool_read("surplus_hugepages"), 0);
        release(f, a.vm);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, before, "set", false), "done", "", "");
        fixture_stop(f);
}

static void test_case_08_two_at_once_add_up(void **state) {
        const char *jobs[6];
        uint64_t before;
        Fixture *f;

        pool_grow(2);
        before = pool_read("nr_hugepages");
        f = fixture_start(NULL, NULL);
        for (unsigned i = 0; i < 6; i++)
                jobs[i] = set_pool(f, NODE0, HUGE_2M, i + 1, "grow", false);
        for (unsigned i = 0; i < 6; i++)
                assert_end(f, jobs[i], "done", "", "");
        assert_int_equal(pool_read("nr_hugepages"), before + 21);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 21, "shrink", false), "done", "", "");
        assert_int_equal(pool_read("nr_hugepages"), before);
        fixture_stop(f);
}

static void test_case_28_seen_and_signalled(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        uint64_t available, others;
        sd_bus_message *m;
        char path[64];
        Fixture *f;

        f = fixture_start(config(""), NULL);
        watch(f, NODE0);
        usleep(1200000);
        pool_grow(12);
        process(f, &pools_changed, 1);
        read_available(f, NODE0, HUGE_2M, &available, &others);
        assert_true(available >= 12);
        snprintf(path, sizeof(path), "%s", MANAGER);
        m = call(f->bus, &error, path, "org.tdpd1.Manager", "Explain", "a{sv}", 3, "bytes", "t",
                 12 * HUGE_2M, "page-size", "t", HUGE_2M, "nodes", "s", "0");
        assert_non_null(m);
        sd_bus_message_unref(m);
        fixture_stop(f);
}

static void test_pool_low(void **state) {
        uint64_t available, others;
        Reservation a;
        Fixture *f;

        pool_grow(20);
        f = fixture_start(config("LowPercent=50\n"), NULL);
        read_available(f, NODE0, HUGE_2M, &available, &others);
        watch(f, NODE0);
        a = reserve(f, "a", available * HUGE_2M, HUGE_2M);
        process(f, &pool_lows, 1);
        wait_job(f, a.job);
        usleep(2200000);
        while (sd_bus_process(f->bus, NULL) > 0)
                ;
        /* Once, not each time that it is looked at. */
        assert_int_equal(pool_lows, 1);
        release(f, a.vm);
        fixture_stop(f);
}

static unsigned won, refused;

static int on_reserved(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        sd_bus_error error = SD_BUS_ERROR_NULL;

        if (!sd_bus_message_is_method_error(m, NULL)) {
                won++;
                return 0;
        }
        assert_true(sd_bus_error_copy(&error, sd_bus_message_get_error(m)) < 0);
        assert_error_is(&error, ERR("NoPages"), "short of");
        refused++;
        return 0;
}

static void test_case_30_ten_slots_for_sixteen(void **state) {
        uint64_t available, others;
        Fixture *f;

        pool_grow(20);
        f = fixture_start(NULL, NULL);
        read_available(f, NODE0, HUGE_2M, &available, &others);
        if (available < 20)
                fail_msg("%" PRIu64 " pages can be had of 20", available);
        won = refused = 0;
        /* Ten slots of the same size, whatever was there before; all are on their way before one is served.
         */
        for (unsigned i = 0; i < 16; i++) {
                char name[16];

                snprintf(name, sizeof(name), "vm%u", i);
                assert_true(sd_bus_call_method_async(f->bus, NULL, "org.tdpd1", MANAGER, "org.tdpd1.Manager",
                                                     "Reserve", on_reserved, NULL, "sta{sv}", name,
                                                     available / 10 * HUGE_2M, 2, "page-size", "t", HUGE_2M,
                                                     "nodes", "s", "0") >= 0);
        }
        process(f, &won, 10);
        process(f, &refused, 6);
        assert_int_equal(won, 10);
        assert_int_equal(refused, 6);
        fixture_stop(f);
}

static void test_case_30_two_for_the_last_pages(void **state) {
        uint64_t available, others;
        Fixture *f;

        pool_grow(4);
        f = fixture_start(NULL, NULL);
        read_available(f, NODE0, HUGE_2M, &available, &others);
        for (unsigned round = 0; round < 5; round++) {
                won = refused = 0;
                for (unsigned i = 0; i < 2; i++)
                        assert_true(sd_bus_call_method_async(f->bus, NULL, "org.tdpd1", MANAGER,
                                                             "org.tdpd1.Manager", "Reserve", on_reserved,
                                                             NULL, "sta{sv}", i == 0 ? "a" : "b",
                                                             available * HUGE_2M, 1, "page-size", "t",
                                                             HUGE_2M) >= 0);
                process(f, &won, 1);
                process(f, &refused, 1);
                assert_int_equal(won, 1);
                assert_int_equal(refused, 1);
                release(f, "/org/tdpd1/vm/a");
                assert_pool_free(available);
        }
        fixture_stop(f);
}

/* Machines of files. */

#define NR(node, kib) get("devices/system/node/node%u/hugepages/hugepages-" kib "kB/nr_hugepages", node)

static void test_case_01_configured_at_start(void **state) {
        Fixture *f;

        put("0-1\n", "devices/system/node/online");
        put_node(0, "0\n", "33554432");
        put_node(1, "1\n", "33554432");
        put_pool(0, "1048576", "0\n");
        put_pool(1, "1048576", "0\n");
        fake_kernel_start();
        fake_kernel_limit(0, "1048576", 3, 8);
        fake_kernel_limit(1, "1048576", 5, 5);

        f = start_on_fake("Pages=1G:8@0,1G:8@1\n");
        wait_target(f, "/org/tdpd1/node/0", UINT64_C(1) << 30, "met", 8);
        wait_target(f, "/org/tdpd1/node/1", UINT64_C(1) << 30, "short", 5);
        assert_state(f, "degraded");
        assert_int_equal(NR(0, "1048576"), 8);
        assert_int_equal(NR(1, "1048576"), 5);
        assert_int_equal(get("devices/system/node/node0/compact"), 1);

        /* It does not give up. */
        fake_kernel_limit(1, "1048576", 16, 16);
        wait_target(f, "/org/tdpd1/node/1", UINT64_C(1) << 30, "met", 8);
        assert_state(f, "running");
        assert_int_equal(fake_kernel_global_writes(), 0);
        assert_int_equal(get("kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"), 4711);
        fixture_stop(f);
}

static void test_case_02_03_only_node_files(void **state) {
        Fixture *f;

        put("0,2,8\n", "devices/system/node/online");
        put_node(0, "0-3\n", "4194304");
        put_node(2, "4-7\n", "0");    /* no memory */
        put_node(8, "\n", "8388608"); /* no CPUs */
        put_pool(0, "2048", "10\n");
        put_pool(2, "2048", "0\n");
        put_pool(8, "2048", "0\n");
        fake_kernel_start();
        fake_kernel_limit(0, "2048", 1000, 1000);
        fake_kernel_limit(2, "2048", 0, 0);
        fake_kernel_limit(8, "2048", 2000, 2000);

        f = start_on_fake("Pages=2M:100@8\n");
        wait_target(f, "/org/tdpd1/node/8", HUGE_2M, "met", 100);
        assert_end(f, set_pool(f, "/org/tdpd1/node/0", HUGE_2M, 512, "set", false), "done", "", "");
        assert_end(f, set_pool(f, "/org/tdpd1/node/8", HUGE_2M, 99, "shrink", false), "done", "", "");
        assert_set_fails(f, "/org/tdpd1/node/2", HUGE_2M, 1, "set", ERR("InvalidArgument"),
                         "more than all memory of node 2, 0 bytes");
        assert_set_fails(f, "/org/tdpd1/node/0", HUGE_2M, 2049, "set", ERR("InvalidArgument"), "4 GiB");
        assert_int_equal(NR(0, "2048"), 512);
        assert_int_equal(NR(2, "2048"), 0);
        assert_int_equal(NR(8, "2048"), 1);
        assert_int_equal(fake_kernel_global_writes(), 0);
        assert_int_equal(get("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"), 4711);
        fixture_stop(f);
}

static void put_two_nodes(void) {
        put("0-1\n", "devices/system/node/online");
        put_node(0, "0\n", "4194304");
        put_node(1, "1\n", "4194304");
        put_pool(0, "2048", "0\n");
        put_pool(1, "2048", "10\n");
        fake_kernel_start();
        fake_kernel_limit(0, "2048", 2048, 2048);
        fake_kernel_limit(1, "2048", 100, 100);
}

/* What happens to one node's pool is nothing to the other's. */
static void test_two_nodes(void **state) {
        const char *one, *two;
        Fixture *f;

        put_two_nodes();
        f = start_on_fake(NULL);
        one = set_pool(f, NODE0, HUGE_2M, 300, "set", false);
        two = set_pool(f, "/org/tdpd1/node/1", HUGE_2M, 300, "set", false);
        assert_end(f, one, "done", "", "");
        assert_end(f, two, "failed", ERR("Partial"),
                   "asked for 300 pages of 2 MiB on node 1, reached 100, with the memory compacted; there are 10 "
                   "as before");
        assert_int_equal(NR(0, "2048"), 300);
        assert_int_equal(NR(1, "2048"), 10);
        assert_int_equal(get("devices/system/node/node1/compact"), 1);
        assert_end(f, set_pool(f, "/org/tdpd1/node/1", HUGE_2M, 300, "set", true), "failed", ERR("Partial"),
                   "100 stay");
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 250, "shrink", false), "done", "", "");
        assert_end(f, set_pool(f, "/org/tdpd1/node/1", HUGE_2M, 0, "set", false), "done", "", "");
        assert_int_equal(NR(0, "2048"), 50);
        assert_int_equal(NR(1, "2048"), 0);
        assert_int_equal(fake_kernel_global_writes(), 0);
        fixture_stop(f);
}

/* A number too many does not take all memory from a host. */
static void test_some_memory_stays(void **state) {
        Fixture *f;

        put_two_nodes();
        f = start_on_fake("Pages=2M:2000@0\n");
        wait_target(f, NODE0, HUGE_2M, "short", 0);
        assert_int_equal(NR(0, "2048"), 0);
        assert_set_fails(f, NODE0, HUGE_2M, 1793, "set", ERR("InvalidArgument"),
                         "512 MiB of its 4 GiB stay out of all its pools (MaxPercent=95 in tdpd.conf");
        assert_set_fails(f, NODE0, HUGE_2M, 1793, "grow", ERR("InvalidArgument"), "can have 1792 pages");
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 1792, "set", false), "done", "", "");
        fixture_stop(f);

        /* What is there may stay, and go. */
        f = start_on_fake("MaxPercent=50\n");
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 1792, "set", false), "done", "", "");
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 1700, "set", false), "done", "", "");
        assert_set_fails(f, NODE0, HUGE_2M, 1701, "set", ERR("InvalidArgument"), "can have 1700 pages");
        fixture_stop(f);

        f = start_on_fake("MaxPercent=100\nPages=2M:2048@0\n");
        wait_target(f, NODE0, HUGE_2M, "met", 2048);
        fixture_stop(f);
}

static void test_case_04_06_07_short(void **state) {
        Fixture *f;

        put("0\n", "devices/system/node/online");
        put_node(0, "0\n", "33554432");
        put_pool(0, "2048", "1000\n");
        put_pool(0, "1048576", "0\n");
        fake_kernel_start();
        fake_kernel_limit(0, "2048", 3000, 3738);
        fake_kernel_limit(0, "1048576", 0, 0);

        f = start_on_fake(NULL);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 4096, "set", false), "failed", ERR("Partial"),
                   "asked for 4096 pages of 2 MiB on node 0, reached 3738, with the memory compacted; there are "
                   "1000 as before");
        assert_int_equal(NR(0, "2048"), 1000);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 4096, "set", true), "failed", ERR("Partial"), "3738 stay");
        assert_int_equal(NR(0, "2048"), 3738);
        assert_int_equal(read_target(f, NODE0, HUGE_2M).pages, 3738);

        assert_end(f, set_pool(f, NODE0, UINT64_C(1) << 30, 16, "set", false), "failed", ERR("Partial"),
                   "hugepagesz=1G hugepages=0:PAGES");
        assert_end(f, set_pool(f, NODE0, UINT64_C(1) << 30, 16, "set", false), "failed", ERR("Partial"),
                   "hugetlb_cma=");
        assert_int_equal(NR(0, "1048576"), 0);
        fixture_stop(f);
}

/* A kernel with granules of 64 KiB: sizes are what sysfs has. */
static void test_case_10_sizes_of_sysfs(void **state) {
        Fixture *f;

        put("0\n", "devices/system/node/online");
        put_node(0, "0\n", "67108864");
        put_pool(0, "2048", "0\n");
        put_pool(0, "524288", "0\n");
        put_pool(0, "16777216", "1\n");
        fake_kernel_start();
        fake_kernel_limit(0, "524288", 64, 64);

        f = start_on_fake("Pages=512M:16@0 1G:4@0\n");
        wait_target(f, NODE0, UINT64_C(512) << 20, "met", 16);
        /* It is named by the kernel's command line on other hosts, and has no pool here. */
        wait_target(f, NODE0, UINT64_C(1) << 30, "short", 0);
        assert_state(f, "degraded");
        assert_set_fails(f, NODE0, UINT64_C(1) << 30, 1, "set", ERR("InvalidArgument"),
                         "2 MiB, 512 MiB, 16 GiB");
        fixture_stop(f);
}

static void test_case_23_pages_of_others(void **state) {
        uint64_t available, others;
        Fixture *f;

        put("0\n", "devices/system/node/online");
        put_node(0, "0\n", "33554432");
        put_pool(0, "2048", "1024\n");
        f = start_on_fake("Reserved=node:0,size:2048,count:512\n");
        read_available(f, NODE0, HUGE_2M, &available, &others);
        assert_int_equal(available, 512);
        assert_int_equal(others, 512);
        assert_call_fails(f, ERR("NoPages"), "1024 free, 512 reserved on node 0: short of 1;", "Reserve",
                          "sta{sv}", "a", 513 * HUGE_2M, 1, "page-size", "t", HUGE_2M);
        /* They are not to be given away either. */
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 511, "set", false), "failed", ERR("Busy"), "512 promised");

        /* Once they have them, they are not counted twice. */
        put("700\n", "devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages");
        read_available(f, NODE0, HUGE_2M, &available, &others);
        assert_int_equal(others, 188);
        assert_int_equal(available, 512);
        put("500\n", "devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages");
        read_available(f, NODE0, HUGE_2M, &available, &others);
        assert_int_equal(others, 0);
        assert_int_equal(available, 500);
        fixture_stop(f);
}

static void test_case_21_all_free_are_reserved(void **state) {
        uint64_t available, others;
        Fixture *f;

        put("0\n", "devices/system/node/online");
        put_node(0, "0\n", "33554432");
        put_pool(0, "2048", "3072\n");
        put("2181\n", "devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages");
        put("2181\n", "kernel/mm/hugepages/hugepages-2048kB/resv_hugepages");
        f = start_on_fake(NULL);
        read_available(f, NODE0, HUGE_2M, &available, &others);
        assert_int_equal(available, 0);
        assert_call_fails(f, ERR("NoPages"), "2181 free, 2181 reserved on node 0: short of 1;", "Reserve",
                          "sta{sv}", "a", HUGE_2M, 1, "page-size", "t", HUGE_2M);
        fixture_stop(f);
}

static void test_drift(void **state) {
        Fixture *f;

        put("0\n", "devices/system/node/online");
        put_node(0, "0\n", "33554432");
        put_pool(0, "2048", "0\n");
        fake_kernel_start();
        fake_kernel_limit(0, "2048", 1000, 1000);
        f = start_on_fake("Pages=2M:100@0\n");
        wait_target(f, NODE0, HUGE_2M, "met", 100);
        watch(f, NODE0);
        put("60\n", "devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages");
        process(f, &pools_changed, 1);
        wait_target(f, NODE0, HUGE_2M, "changed", 60);
        assert_state(f, "degraded");
        usleep(1500000);
        /* That is somebody's will, too. */
        assert_int_equal(NR(0, "2048"), 60);
        assert_end(f, set_pool(f, NODE0, HUGE_2M, 100, "set", false), "done", "", "");
        assert_state(f, "running");
        fixture_stop(f);
}

static void test_refused(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Fixture *f = fixture_start(NULL, NULL);

        assert_set_fails(f, NODE0, 12345, 1, "set", ERR("InvalidArgument"), "no pool of 12345 byte pages");
        assert_set_fails(f, NODE0, 0, 1, "set", ERR("InvalidArgument"), "no pool");
        assert_set_fails(f, NODE0, HUGE_2M, 1, "more", ERR("InvalidArgument"), "use set, grow or shrink");
        assert_set_fails(f, NODE0, HUGE_2M, UINT64_MAX, "set", ERR("InvalidArgument"),
                         "more than all memory");
        assert_set_fails(f, NODE0, HUGE_2M, UINT64_MAX, "grow", ERR("InvalidArgument"),
                         "more than all memory");
        assert_null(call(f->bus, &error, NODE0, "org.tdpd1.Node", "SetPool", "tta{sv}", HUGE_2M, UINT64_C(1),
                         1, "allow-partial", "s", "yes"));
        assert_error_is(&error, ERR("InvalidArgument"), "must be 'b'");
        assert_null(call(f->bus, &error, NODE0, "org.tdpd1.Node", "SetPool", "tta{sv}", HUGE_2M, UINT64_C(1),
                         1, "force", "b", 1));
        assert_error_is(&error, ERR("InvalidArgument"), "is unknown here");
        assert_end(f, set_pool(f, NODE0, HUGE_2M, UINT64_C(1) << 50, "shrink", false), "failed",
                   ERR("InvalidArgument"), "where there are");
        fixture_stop(f);
}

#define FAKE(test) cmocka_unit_test_setup_teardown(test, fake_sysfs_setup, fake_sysfs_teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_grow_and_shrink, fixture_teardown),
                cmocka_unit_test_teardown(test_shrink_takes_from_nobody, fixture_teardown),
                cmocka_unit_test_teardown(test_case_08_two_at_once_add_up, fixture_teardown),
                cmocka_unit_test_teardown(test_case_28_seen_and_signalled, fixture_teardown),
                cmocka_unit_test_teardown(test_pool_low, fixture_teardown),
                cmocka_unit_test_teardown(test_case_30_ten_slots_for_sixteen, fixture_teardown),
                cmocka_unit_test_teardown(test_case_30_two_for_the_last_pages, fixture_teardown),
                cmocka_unit_test_teardown(test_refused, fixture_teardown),
                FAKE(test_case_01_configured_at_start),
                FAKE(test_case_02_03_only_node_files),
                FAKE(test_two_nodes),
                FAKE(test_some_memory_stays),
                FAKE(test_case_04_06_07_short),
                FAKE(test_case_10_sizes_of_sysfs),
                FAKE(test_case_21_all_free_are_reserved),
                FAKE(test_case_23_pages_of_others),
                FAKE(test_drift),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
