/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Warm slabs: kept ready, handed over in no time, cut to size, given up, and never with anybody's old
 * content. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake-sysfs.h"

#define ANY_LOAD "WarmMaxLoad=infinity\n"

typedef struct Warm {
        char flavour[96];
        uint64_t bytes, page_size, filling;
        int node;
        uint32_t wanted, ready;
        char held[32], why[512];
} Warm;

/* The i-th flavour. */
static Warm get_warm(Fixture *f, unsigned i) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *flavour, *held, *why;
        sd_bus_message *m = NULL;
        Warm w;

        if (sd_bus_get_property(f->bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "Warm", &error, &m,
                                "a(sttiuutss)") < 0)
                fail_msg("Warm: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(sttiuutss)") > 0);
        for (unsigned k = 0; k <= i; k++)
                assert_true(sd_bus_message_read(m, "(sttiuutss)", &flavour, &w.bytes, &w.page_size, &w.node,
                                                &w.wanted, &w.ready, &w.filling, &held, &why) > 0);
        snprintf(w.flavour, sizeof(w.flavour), "%s", flavour);
        snprintf(w.held, sizeof(w.held), "%s", held);
        snprintf(w.why, sizeof(w.why), "%s", why);
        sd_bus_message_unref(m);
        return w;
}

static void wait_ready(Fixture *f, unsigned i, unsigned n) {
        uint64_t until = now_usec() + 20000000;
        Warm w;

        while ((w = get_warm(f, i)).ready != n) {
                if (now_usec() > until)
                        fail_msg("%s: %u ready of %u, held back: %s (%s)", w.flavour, w.ready, w.wanted,
                                 w.held, w.why);
                usleep(5000);
        }
}

static void wait_held(Fixture *f, const char *word) {
        uint64_t until = now_usec() + 20000000;
        Warm w;

        while (strcmp((w = get_warm(f, 0)).held, word) != 0) {
                if (now_usec() > until)
                        fail_msg("%s: held back: \"%s\" (%s), not \"%s\"", w.flavour, w.held, w.why, word);
                usleep(5000);
        }
}

static uint64_t warm_bytes(Fixture *f, uint64_t page_size) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = NULL;
        uint64_t size, bytes, sum = 0;
        uint32_t node;

        assert_true(sd_bus_get_property(f->bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "WarmBytes",
                                        &error, &m, "a(utt)") >= 0);
        assert_true(sd_bus_message_enter_container(m, 'a', "(utt)") > 0);
        while (sd_bus_message_read(m, "(utt)", &node, &size, &bytes) > 0)
                if (size == page_size)
                        sum += bytes;
        sd_bus_message_unref(m);
        return sum;
}

static uint64_t populate_usec(Fixture *f, const char *vm) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        uint64_t v;

        assert_true(sd_bus_get_property_trivial(f->bus, "org.tdpd1", vm, "org.tdpd1.VM", "PopulateUSec",
                                                &error, 't', &v) >= 0);
        return v;
}

/* Fails unless all of it is zero, and leaves a pattern. */
static void poison_fd(int fd, uint64_t bytes) {
        uint64_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        assert_ptr_not_equal(p, MAP_FAILED);
        for (uint64_t i = 0; i < bytes / 8; i++) {
                if (p[i] != 0)
                        fail_msg("old content at %llu: %llx", (unsigned long long) i * 8,
                                 (unsigned long long) p[i]);
                p[i] = UINT64_C(0xdeadbeefcafebabe);
        }
        munmap(p, bytes);
}

static void poison(Fixture *f, const char *vm, uint64_t bytes) {
        int fd = get_memory(f, vm, bytes);

        poison_fd(fd, bytes);
        close(fd);
}

static Reservation reserve_done(Fixture *f, const char *name, uint64_t bytes, uint64_t page_size) {
        Reservation r = reserve(f, name, bytes, page_size);
        const JobEnd *end = wait_job(f, r.job);

        if (strcmp(end->result, "done") != 0)
                fail_msg("%s: %s", end->error, end->message);
        return r;
}

static void test_served(void **state) {
        uint64_t available = pool_grow(96), free_before = pool_read("free_hugepages"), best = UINT64_MAX;
        Fixture *f = fixture_start("[Pools]\nWarm=64M*1 node=0 page=2M\n" ANY_LOAD, NULL);
        Reservation r;

        wait_ready(f, 0, 1);
        assert_int_equal(pool_read("free_hugepages"), free_before - 32);
        assert_int_equal(warm_bytes(f, HUGE_2M), 64 * MIB);
        /* On a busy machine it may just not get to run: the best of up to twenty counts. */
        for (unsigned i = 0; i < 20 && (i < 3 || best > 20000); i++) {
                uint64_t start;

                wait_ready(f, 0, 1);
                start = now_usec();
                r = reserve(f, "a", 64 * MIB, HUGE_2M);
                assert_string_equal(wait_job(f, r.job)->result, "done");
                close(get_memory(f, r.vm, 64 * MIB));
                start = now_usec() - start;
                best = start < best ? start : best;
                /* Nothing had to be populated. */
                assert_int_equal(populate_usec(f, r.vm), 0);
                poison(f, r.vm, 64 * MIB);
                release(f, r.vm);
        }
        /* It does not depend on the size: 4 GiB take as long. */
        print_message("from the request to memory in hand: %llu us\n", (unsigned long long) best);
        assert_true(best <= 20000);
        assert_true(available >= 96);
        fixture_stop(f);
        assert_pool_free(free_before);
}

/* The smallest one that is large enough, and what is too much of it goes back before the reply. */
static void cut(uint64_t page_size, const char *config) {
        uint64_t free_before;
        Fixture *f;
        Reservation r;

        (void) pool_grow(128);
        free_before = pool_read("free_hugepages");
        f = fixture_start(config, NULL);
        wait_ready(f, 0, 1);
        wait_ready(f, 1, 1);
        assert_int_equal(warm_bytes(f, page_size), 80 * MIB);
        r = reserve_done(f, "a", 6 * MIB, page_size);
        poison(f, r.vm, 6 * MIB);
        /* The smaller one is made anew. */
        wait_ready(f, 0, 1);
        assert_int_equal(get_warm(f, 1).ready, 1);
        if (page_size == HUGE_2M)
                assert_int_equal(pool_read("free_hugepages"), free_before - 43);
        release(f, r.vm);
        r = reserve_done(f, "b", 64 * MIB, page_size);
        poison(f, r.vm, 64 * MIB);
        release(f, r.vm);
        fixture_stop(f);
        assert_pool_free(free_before);
}

static void test_cut_huge(void **state) {
        cut(HUGE_2M, "[Pools]\nWarm=16M node=0 page=2M, 64M node=0 page=2M\n" ANY_LOAD);
}

static void test_cut_small(void **state) {
        cut(4096, "[Pools]\nWarm=16M node=0 page=4K, 64M node=0 page=4K\n" ANY_LOAD);
}

/* A slab is no reason to refuse a request, and is not given up for one that would be refused either way. */
static void test_given_up(void **state) {
        uint64_t available = pool_grow(64), free_before = pool_read("free_hugepages");
        Fixture *f = fixture_start("[Pools]\nWarm=32M*2 node=0 page=2M\n" ANY_LOAD, NULL);
        Reservation r;

        wait_ready(f, 0, 2);
        assert_call_fails(f, ERR("NoPages"), "short of", "Reserve", "sta{sv}", "a",
                          (available + 1) * HUGE_2M, 2, "page-size", "t", HUGE_2M, "nodes", "s", "0");
        assert_int_equal(get_warm(f, 0).ready, 2);

        r = reserve_done(f, "a", (available - 16) * HUGE_2M, HUGE_2M);
        assert_int_equal(get_warm(f, 0).ready, 1);
        release(f, r.vm);
        r = reserve_done(f, "b", available * HUGE_2M, HUGE_2M);
        poison(f, r.vm, available * HUGE_2M);
        assert_int_equal(get_warm(f, 0).ready, 0);
        wait_held(f, "no-pages");
        assert_non_null(strstr(get_warm(f, 0).why, "short of"));
        release(f, r.vm);
        /* It looks again by itself. */
        wait_ready(f, 0, 2);
        fixture_stop(f);
        assert_pool_free(free_before);
}

static void test_not_wanted(void **state) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *vm, *job;
        sd_bus_message *m;
        Fixture *f;

        (void) pool_grow(64);
        f = fixture_start("[Pools]\nWarm=32M node=0 page=2M\n" ANY_LOAD, NULL);
        wait_ready(f, 0, 1);
        m = manager_call(f, &error, "Reserve", "sta{sv}", "a", 32 * MIB, 3, "page-size", "t", HUGE_2M,
                         "nodes", "s", "0", "warm", "b", 0);
        if (!m)
                fail_msg("Reserve: %s", error.message);
        assert_true(sd_bus_message_read(m, "oo", &vm, &job) > 0);
        assert_string_equal(wait_job(f, job)->result, "done");
        assert_int_equal(get_warm(f, 0).ready, 1);
        sd_bus_message_unref(m);
        fixture_stop(f);
}

static void write_text(const char *dir, const char *name, const char *text) {
        char path[160], tmp[170];
        FILE *f;

        snprintf(path, sizeof(path), "%s/%s", dir, name);
        snprintf(tmp, sizeof(tmp), "%s.new", path);
        f = fopen(tmp, "we");
        assert_non_null(f);
        fputs(text, f);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(rename(tmp, path), 0);
}

static void test_held_back(void **state) {
        char dir[] = "/tmp/tdpd-test-proc-XXXXXX", arg[64], path[64];
        Fixture *f;

        (void) pool_grow(64);
        assert_non_null(mkdtemp(dir));
        snprintf(path, sizeof(path), "%s/pressure", dir);
        assert_int_equal(mkdir(path, 0700), 0);
        write_text(dir, "pressure/memory", "some avg10=5.01 avg60=0.00 avg300=0.00 total=1\n");
        write_text(dir, "loadavg", "0.00 0.00 0.00 1/100 100\n");
        snprintf(arg, sizeof(arg), "--proc-root=%s", dir);
        f = fixture_start("[Pools]\nWarm=16M node=0 page=2M, 16M node=0 page=4K\n", arg);

        wait_held(f, "pressure");
        assert_int_equal(warm_bytes(f, HUGE_2M), 0);
        assert_non_null(strstr(get_warm(f, 0).why, "5.01%"));
        write_text(dir, "pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n");
        write_text(dir, "loadavg", "99999.00 0.00 0.00 1/100 100\n");
        wait_held(f, "load");
        assert_int_equal(warm_bytes(f, HUGE_2M), 0);
        write_text(dir, "loadavg", "0.00 0.00 0.00 1/100 100\n");
        wait_ready(f, 0, 1);
        wait_ready(f, 1, 1);
        assert_string_equal(get_warm(f, 0).held, "");

        /* Under pressure the host gets small pages back, and those of a pool are of no use to it. */
        write_text(dir, "pressure/memory", "some avg10=50.00 avg60=0.00 avg300=0.00 total=1\n");
        wait_ready(f, 1, 0);
        assert_int_equal(get_warm(f, 0).ready, 1);
        fixture_stop(f);

        snprintf(path, sizeof(path), "%s/pressure/memory", dir);
        unlink(path);
        snprintf(path, sizeof(path), "%s/pressure", dir);
        rmdir(path);
        snprintf(path, sizeof(path), "%s/loadavg", dir);
        unlink(path);
        rmdir(dir);
}

static void test_limit(void **state) {
        Fixture *f;

        (void) pool_grow(32);
        f = fixture_start("[Limits]\nMaxBytes=16M\n[Pools]\nWarm=32M node=0 page=2M\n" ANY_LOAD, NULL);
        wait_ready(f, 0, 1);
        /* Nobody has paid for the slab yet, and who has no right to so much does not cost us the slab. */
        assert_call_fails(f, ERR("LimitExceeded"), "MaxBytes", "Reserve", "sta{sv}", "a", 32 * MIB, 2,
                          "page-size", "t", HUGE_2M, "nodes", "s", "0");
        assert_int_equal(get_warm(f, 0).ready, 1);
        assert_int_equal(count_vms(f), 0);
        fixture_stop(f);
}

/* A VMM that leaves a pattern behind, and waits. */
/* What a slab has is ours, and the VMM's cgroup may not have it all the same. */
static void test_case_16_warm_memory_and_the_vmms_cgroup(void **state) {
        const char *refused = "cgroup /vms (of the VMM) allows 0 more: its hugetlb.2MB.max is 0 bytes";
        char arg[96];
        Fixture *f;

        pool_grow(8);
        put("0\n", "devices/system/node/online");
        put_node(0, "0\n", "33554432");
        put_pool(0, "2048", "8\n");
        put("0\n", "fs/cgroup/vms/hugetlb.2MB.max");
        put("0\n", "fs/cgroup/vms/hugetlb.2MB.current");
        snprintf(arg, sizeof(arg), "--sysfs-root=%s", fake_sysfs_root());
        f = fixture_start("[Pools]\nWarm=16M node=0 page=2M\n" ANY_LOAD, arg);
        wait_ready(f, 0, 1);
        /* All of it is in the slab now. */
        put("0\n", "devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages");

        assert_call_fails(f, ERR("LimitExceeded"), refused, "Reserve", "sta{sv}", "a", 8 * HUGE_2M, 2,
                          "page-size", "t", HUGE_2M, "cgroup", "s", "/vms/a.scope");
        /* Nor by having the slab given up. */
        assert_call_fails(f, ERR("LimitExceeded"), refused, "Reserve", "sta{sv}", "a", 8 * HUGE_2M, 3,
                          "page-size", "t", HUGE_2M, "cgroup", "s", "/vms/a.scope", "warm", "b", 0);
        fixture_stop(f);
}

static pid_t spawn_writer(int fd, uint64_t bytes) {
        int ready[2];
        pid_t pid;
        char c;

        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                uint64_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

                if (p == MAP_FAILED)
                        _exit(1);
                memset(p, 0xa5, bytes);
                if (write(ready[1], "x", 1) != 1)
                        _exit(1);
                for (;;)
                        pause();
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &c, 1), 1);
        close(ready[0]);
        return pid;
}

/* Whatever way memory comes back, the next one finds zeroes: cold, from a slab, and from the end of one. */
static void check_all_zero(Fixture *f, uint64_t bytes, uint64_t page_size) {
        Reservation a, b;

        wait_ready(f, 0, 1);
        a = reserve_done(f, "warm", 64 * MIB, page_size);
        poison(f, a.vm, 64 * MIB);
        b = reserve_done(f, "rest", bytes - 64 * MIB, page_size);
        poison(f, b.vm, bytes - 64 * MIB);
        release(f, a.vm);
        release(f, b.vm);
}

static void all_release_paths(uint64_t page_size, const char *config) {
        uint64_t bytes = pool_grow(64) * HUGE_2M, free_before = pool_read("free_hugepages");
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m;
        Reservation r;
        Fixture *f;
        pid_t vmm;
        int fd;

        bytes = bytes < 256 * MIB ? bytes : 256 * MIB;
        f = fixture_start(config, NULL);

        /* Release. */
        r = reserve_done(f, "a", bytes, page_size);
        poison(f, r.vm, bytes);
        release(f, r.vm);
        check_all_zero(f, bytes, page_size);

        /* The VMM is killed, and its memory outlives the release for as long as it lives. */
        r = reserve_done(f, "a", bytes, page_size);
        fd = get_memory(f, r.vm, bytes);
        vmm = spawn_writer(fd, bytes);
        close(fd);
        reap(vmm, SIGKILL);
        release(f, r.vm);
        check_all_zero(f, bytes, page_size);

        r = reserve_done(f, "a", bytes / 2, page_size);
        fd = get_memory(f, r.vm, bytes / 2);
        vmm = spawn_writer(fd, bytes / 2);
        close(fd);
        release(f, r.vm);
        reap(vmm, SIGKILL);
        if (page_size == HUGE_2M)
                for (uint64_t until = now_usec() + 5000000;
                     pool_read("free_hugepages") < free_before - 32 && now_usec() < until;)
                        usleep(10000);
        check_all_zero(f, bytes, page_size);

        /* A reservation that is canceled. */
        r = reserve(f, "a", bytes, page_size);
        m = call(f->bus, &error, r.job, "org.tdpd1.Job", "Cancel", NULL);
        sd_bus_message_unref(m);
        sd_bus_error_free(&error);
        if (strcmp(wait_job(f, r.job)->result, "done") == 0)
                release(f, r.vm);
        wait_vms(f, 0);
        check_all_zero(f, bytes, page_size);

        /* The end of a slab. */
        wait_ready(f, 0, 1);
        r = reserve_done(f, "a", 2 * MIB, page_size);
        poison(f, r.vm, 2 * MIB);
        release(f, r.vm);
        check_all_zero(f, bytes, page_size);

        /* tdpd is killed. */
        r = reserve_done(f, "a", bytes, page_size);
        poison(f, r.vm, bytes);
        fixture_kill_tdpd(f, SIGKILL);
        fixture_stop(f);
        assert_pool_free(free_before);
        f = fixture_start(config, NULL);
        check_all_zero(f, bytes, page_size);
        fixture_stop(f);
        assert_pool_free(free_before);
}

static void test_scrubbed_huge(void **state) {
        all_release_paths(HUGE_2M, "[Pools]\nWarm=64M node=0 page=2M\n" ANY_LOAD);
}

static void test_scrubbed_small(void **state) {
        all_release_paths(4096, "[Pools]\nWarm=64M node=0 page=4K\n" ANY_LOAD);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_served, fixture_teardown),
                cmocka_unit_test_teardown(test_cut_huge, fixture_teardown),
                cmocka_unit_test_teardown(test_cut_small, fixture_teardown),
                cmocka_unit_test_teardown(test_given_up, fixture_teardown),
                cmocka_unit_test_teardown(test_not_wanted, fixture_teardown),
                cmocka_unit_test_teardown(test_held_back, fixture_teardown),
                cmocka_unit_test_teardown(test_limit, fixture_teardown),
                cmocka_unit_test_setup_teardown(test_case_16_warm_memory_and_the_vmms_cgroup,
                                                fake_sysfs_setup, fake_sysfs_teardown),
                cmocka_unit_test_teardown(test_scrubbed_huge, fixture_teardown),
                cmocka_unit_test_teardown(test_scrubbed_small, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
