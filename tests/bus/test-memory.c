/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What memory is once it is handed out, and what is left if it could not be. */
#include "standin.h"
#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

static Fixture *start_filtered(const char *call, const char *config) {
        const char *tdpd = getenv("TDPD");
        char *real;
        Fixture *f;

        assert_non_null(getenv("FILTERED"));
        real = strdup(tdpd);
        assert_non_null(real);
        setenv("FILTERED_COMMAND", real, 1);
        setenv("FILTERED_SYSCALL", call, 1);
        setenv("TDPD", getenv("FILTERED"), 1);
        f = fixture_start(config, NULL);
        setenv("TDPD", real, 1);
        free(real);
        return f;
}

/* Whether another program gets that many pages. */
static bool can_take(uint64_t pages) {
        void *p = mmap(NULL, pages * HUGE_2M, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT), -1, 0);

        if (p == MAP_FAILED)
                return false;
        munmap(p, pages * HUGE_2M);
        return true;
}

/* A look at what is free is no grant: the pages are the VM's before the caller hears of it. */
static void case_15_reserved_before_the_reply(void **state) {
        uint64_t available = pool_grow(64);
        Reservation r;
        Fixture *f;
        uint8_t *p;
        int fd;

        f = fixture_start("[Workers]\nThreads=1\n", NULL);
        assert_call_fails(f, ERR("NoPages"), "short of", "Reserve", "sta{sv}", "a",
                          (available + 1) * HUGE_2M, 2, "page-size", "t", HUGE_2M, "nodes", "s", "0");
        assert_true(can_take(available));
        r = reserve(f, "a", available * HUGE_2M, HUGE_2M);
        assert_false(can_take(1));
        assert_string_equal(wait_job(f, r.job)->result, "done");
        assert_false(can_take(1));
        fd = get_memory(f, r.vm, 0);
        p = mmap(NULL, available * HUGE_2M, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(p, MAP_FAILED);
        for (uint64_t i = 0; i < available; i++)
                p[i * HUGE_2M] = 1; /* no SIGBUS */
        munmap(p, available * HUGE_2M);
        close(fd);
        fixture_stop(f);
}

static void fails_with(const char *filter, uint64_t page_size, const char *name, const char *part) {
        uint64_t free_before = pool_read("free_hugepages");
        Fixture *f = start_filtered(filter, NULL);
        const JobEnd *end;
        Reservation r;

        for (unsigned i = 0; i < 3; i++) {
                r = reserve(f, "a", 64 * MIB, page_size);
                end = wait_job(f, r.job);
                assert_string_equal(end->result, "failed");
                if (strcmp(end->error, name) != 0 || !strstr(end->message, part))
                        fail_msg("expected %s with \"%s\", got %s: %s", name, part, end->error,
                                 end->message);
                /* When that is told, nothing is left. */
                assert_int_equal(count_vms(f), 0);
                assert_int_equal(pool_read("free_hugepages"), free_before);
                f->n_ends = 0;
        }
        fixture_stop(f);
}

/* 23 is MADV_POPULATE_WRITE. */
static void case_18_populate_fails(void **state) {
        (void) pool_grow(32);
        fails_with("madvise 14 23", HUGE_2M, ERR("NoPages"), "all is given back"); /* EFAULT */
        fails_with("madvise 12 23", 4096, ERR("NoPages"), "all is given back");    /* ENOMEM */
        fails_with("madvise 133 23", HUGE_2M, ERR("Failed"), "broken");            /* EHWPOISON */
        fails_with("madvise 22 23", 4096, ERR("Failed"), "Invalid argument");
}

static void refused(const char *filter, uint64_t page_size, const char *part) {
        uint64_t free_before = pool_read("free_hugepages");
        Fixture *f = start_filtered(filter, NULL);

        assert_call_fails(f, ERR("Failed"), part, "Reserve", "sta{sv}", "a", 64 * MIB, 2, "page-size", "t",
                          page_size, "nodes", "s", "0");
        assert_int_equal(count_vms(f), 0);
        assert_int_equal(pool_read("free_hugepages"), free_before);
        fixture_stop(f);
}

static void case_42_mbind_refused(void **state) {
        (void) pool_grow(32);
        refused("mbind 1", HUGE_2M, "mbind failed: Operation not permitted");
        refused("mbind 22", 4096, "cpuset.mems");
        refused("memfd_create 24", 4096, "memfd");
}

static void case_43_placement_is_settled(void **state) {
        Fixture *f = fixture_start(NULL, NULL);
        Reservation r = reserve(f, "a", 16 * MIB, 4096);
        static const char *const options[] = { "nodes", "cpus", "parts", "numa-mode" };

        assert_string_equal(wait_job(f, r.job)->result, "done");
        for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
                sd_bus_error error = SD_BUS_ERROR_NULL;

                assert_null(call(f->bus, &error, r.vm, "org.tdpd1.VM", "Build", "a{sv}", 1, options[i], "s",
                                 "0"));
                assert_error_is(&error, ERR("InvalidArgument"), "pinned memory cannot be moved");
                assert_call_fails(f, ERR("InvalidArgument"), "pinned memory cannot be moved", "AttachPid",
                                  "sua{sv}", "a", (uint32_t) getpid(), 1, options[i], "s", "0");
        }
        fixture_stop(f);
}

/* Of the mapping of that descriptor, in KiB. */
static uint64_t kernel_page_size(const void *p) {
        unsigned long long from, size = 0;
        bool ours = false;
        char line[512];
        FILE *f;

        f = fopen("/proc/self/smaps", "re");
        assert_non_null(f);
        while (fgets(line, sizeof(line), f)) {
                if (sscanf(line, "%llx-", &from) == 1 && strchr(line, '-'))
                        ours = from == (uintptr_t) p;
                if (ours && sscanf(line, "KernelPageSize: %llu kB", &size) == 1)
                        break;
        }
        fclose(f);
        return size;
}

static void check_kind(uint64_t page_size) {
        Fixture *f = fixture_start(NULL, NULL);
        Reservation r = reserve(f, "a", 16 * MIB, page_size);
        struct statfs fs;
        void *p;
        int fd;

        assert_string_equal(wait_job(f, r.job)->result, "done");
        fd = get_memory(f, r.vm, 0);
        assert_int_equal(fstatfs(fd, &fs), 0);
        assert_int_equal(fs.f_type, page_size == 4096 ? TMPFS_MAGIC : HUGETLBFS_MAGIC);
        assert_int_equal(fs.f_bsize, page_size);
        p = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(p, MAP_FAILED);
        assert_int_equal(kernel_page_size(p), page_size / 1024);
        munmap(p, 16 * MIB);
        close(fd);
        fixture_stop(f);
}

static void case_44_pages_are_what_they_are_called(void **state) {
        (void) pool_grow(32);
        check_kind(4096);
        check_kind(HUGE_2M);
        refused("fstatfs 38", HUGE_2M, "memfd");
}

static bool has_reason(Fixture *f, const char *word) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *w, *text;
        bool found = false;
        sd_bus_message *m;

        if (sd_bus_get_property(f->bus, "org.tdpd1", VM_PATH, "org.tdpd1.VM", "Reasons", &error, &m,
                                "a(ss)") < 0)
                fail_msg("Reasons: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(ss)") > 0);
        while (sd_bus_message_read(m, "(ss)", &w, &text) > 0)
                found = found || strcmp(w, word) == 0;
        sd_bus_message_unref(m);
        return found;
}

/* A VMM that has mapped what was reserved for it, and one that runs with other memory. */
static void case_44_vmm_has_mapped_it(void **state) {
        Fixture *f;

        (void) pool_grow(8);
        f = standin_start("good");
        for (unsigned i = 0; i < 4; i++) {
                uint64_t page_size = i < 2 ? HUGE_2M : 4096;
                Reservation r = reserve(f, "db", 8 * MIB, page_size);
                bool mapped = i % 2 == 0;
                void *p = MAP_FAILED;
                pid_t pid;
                int fd;

                assert_string_equal(wait_job(f, r.job)->result, "done");
                fd = get_memory(f, r.vm, 0);
                if (mapped) {
                        p = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
                        assert_ptr_not_equal(p, MAP_FAILED);
                }
                close(fd);
                pid = spawn_vmm(1, 0); /* it has what we have mapped */
                if (mapped)
                        munmap(p, 8 * MIB);
                assert_string_equal(wait_job(f, standin_attach(f, pid, "always"))->result, "done");
                assert_int_equal(has_reason(f, "not-mapped"), !mapped);
                assert_false(has_reason(f, "other-pages"));
                reap(pid, SIGKILL);
                wait_no_vm(f);
        }
        fixture_stop(f);
}

/* Of threads other than the first: how many there are, and how many of them may run elsewhere than on that
 * CPU. */
static void count_threads(pid_t pid, const char *cpu, unsigned *ret_n, unsigned *ret_elsewhere) {
        char path[300], line[256], list[64];
        struct dirent *de;
        DIR *d;

        *ret_n = *ret_elsewhere = 0;
        snprintf(path, sizeof(path), "/proc/%i/task", (int) pid);
        d = opendir(path);
        assert_non_null(d);
        while ((de = readdir(d))) {
                FILE *f;

                if (de->d_name[0] == '.' || atoi(de->d_name) == (int) pid)
                        continue;
                snprintf(path, sizeof(path), "/proc/%i/task/%s/status", (int) pid, de->d_name);
                f = fopen(path, "re");
                if (!f)
                        continue; /* it has ended */
                while (fgets(line, sizeof(line), f))
                        if (sscanf(line, "Cpus_allowed_list: %63s", list) == 1) {
                                (*ret_n)++;
                                *ret_elsewhere += strcmp(list, cpu) != 0;
                        }
                fclose(f);
        }
        closedir(d);
}

/* Threads that populate run on CPUs of the node, here one that has only the last of this machine's. */
static void case_40_threads_on_the_node(void **state) {
        char dir[] = "/tmp/tdpd-test-sysfs-XXXXXX", arg[64], cpu[24];
        unsigned n = 0, elsewhere = 0, bound = 0;
        long last = sysconf(_SC_NPROCESSORS_CONF) - 1;
        Reservation r;
        Fixture *f;

        require_root();
        if (last < 1) {
                print_message("a machine of one CPU shows nothing\n");
                skip();
        }
        snprintf(cpu, sizeof(cpu), "%li", last);
        assert_non_null(mkdtemp(dir));
        tree_put(dir, "devices/system/node/online", "0\n");
        tree_put(dir, "devices/system/node/node0/cpulist", cpu);
        tree_put(dir, "devices/system/node/node0/meminfo",
                 "Node 0 MemTotal: 16000000 kB\nNode 0 MemFree: 8000000 kB\n");
        snprintf(arg, sizeof(arg), "--sysfs-root=%s", dir);
        f = fixture_start("[Workers]\nThreads=4\n", arg);
        r = reserve(f, "a", 1024 * MIB, 4096);
        /* A thread binds itself as the first thing that it does, once it gets to run. */
        for (unsigned i = 0; i < 2000 && bound < 5; i++) {
                count_threads(f->tdpd_pid, cpu, &n, &elsewhere);
                if (n > 0)
                        bound = elsewhere == 0 ? bound + 1 : 0;
                usleep(2000);
        }
        release(f, r.vm);
        assert_true(bound >= 5);
        assert_int_equal(elsewhere, 0);
        fixture_stop(f);
        assert_int_equal(tree_remove(dir), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(case_15_reserved_before_the_reply, fixture_teardown),
                cmocka_unit_test_teardown(case_18_populate_fails, fixture_teardown),
                cmocka_unit_test_teardown(case_40_threads_on_the_node, fixture_teardown),
                cmocka_unit_test_teardown(case_42_mbind_refused, fixture_teardown),
                cmocka_unit_test_teardown(case_43_placement_is_settled, fixture_teardown),
                cmocka_unit_test_teardown(case_44_pages_are_what_they_are_called, fixture_teardown),
                cmocka_unit_test_teardown(case_44_vmm_has_mapped_it, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
