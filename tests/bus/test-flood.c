/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One user calls without end, and another one is served. */
#include "users.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CALLS 10000U

/* A call that costs: it reads the nodes from sysfs. */
static sd_bus_message *explain(sd_bus *bus) {
        sd_bus_message *m = NULL;

        if (sd_bus_message_new_method_call(bus, &m, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "Explain") <
                            0 ||
            sd_bus_message_append(m, "a{sv}", 2, "name", "s", "x", "bytes", "t", MIB) < 0)
                return NULL;
        return m;
}

static int flood(sd_bus *bus, void *userdata) {
        uint64_t start = now_usec();

        for (unsigned i = 0; i < CALLS; i++) {
                sd_bus_message *m = explain(bus);

                /* What is not to be answered is bounded by nobody on the way. */
                if (!m || sd_bus_message_set_expect_reply(m, 0) < 0 || sd_bus_send(bus, m, NULL) < 0)
                        return 2;
                sd_bus_message_unref(m);
        }
        if (sd_bus_flush(bus) < 0)
                return 3;
        fprintf(stderr, "%u calls sent in %.3f s\n", CALLS, (double) (now_usec() - start) / 1e6);
        return 0;
}

/* What the daemon has worked: other than the time, that does not depend on what else this machine does. */
static uint64_t cpu_usec(clockid_t clock) {
        struct timespec ts = {};

        clock_gettime(clock, &ts);
        return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}

/* Shared with the children. */
typedef struct Measure {
        clockid_t clock;
        volatile bool stop;
        unsigned calls;
        uint64_t longest_usec, longest_cpu_usec;
        uint64_t explain_cpu_usec;
} Measure;

/* Calls until it is told to stop, one after the other. */
static int measure(sd_bus *bus, void *userdata) {
        Measure *m = userdata;

        do {
                sd_bus_error error = SD_BUS_ERROR_NULL;
                uint64_t cpu = cpu_usec(m->clock), from = now_usec();

                if (sd_bus_call_method(bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "ListVMs", &error,
                                       NULL, NULL) < 0) {
                        fprintf(stderr, "ListVMs: %s: %s\n", error.name, error.message);
                        return 1;
                }
                cpu = cpu_usec(m->clock) - cpu;
                from = now_usec() - from;
                m->longest_cpu_usec = cpu > m->longest_cpu_usec ? cpu : m->longest_cpu_usec;
                m->longest_usec = from > m->longest_usec ? from : m->longest_usec;
                m->calls++;
        } while (!m->stop);
        return 0;
}

static int measure_explain(sd_bus *bus, void *userdata) {
        Measure *m = userdata;
        uint64_t cpu = cpu_usec(m->clock);

        for (unsigned i = 0; i < 100; i++) {
                sd_bus_message *call = explain(bus);

                if (!call || sd_bus_call(bus, call, 0, NULL, NULL) < 0)
                        return 1;
                sd_bus_message_unref(call);
        }
        m->explain_cpu_usec = (cpu_usec(m->clock) - cpu) / 100;
        return 0;
}

/* The flood has come through once its user can call again. */
static int call_again(sd_bus *bus, void *userdata) {
        for (unsigned i = 0; i < 10000; i++) {
                sd_bus_error error = SD_BUS_ERROR_NULL;
                sd_bus_message *call = explain(bus);
                int r = call ? sd_bus_call(bus, call, 0, &error, NULL) : -1;

                sd_bus_message_unref(call);
                if (r >= 0)
                        return 0;
                if (!sd_bus_error_has_name(&error, ERR("LimitExceeded")))
                        return 1;
                sd_bus_error_free(&error);
                usleep(1000);
        }
        return 2;
}

static uint64_t peak_kib(pid_t pid) {
        char path[64], line[256];
        uint64_t kib = 0;
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%i/status", (int) pid);
        f = fopen(path, "re");
        assert_non_null(f);
        while (fgets(line, sizeof(line), f))
                if (strncmp(line, "VmHWM:", 6) == 0)
                        kib = strtoull(line + 6, NULL, 10);
        fclose(f);
        return kib;
}

static void test_flood(void **state) {
        uint64_t before, after;
        pid_t other, flooders[2];
        Measure *m;
        Fixture *f;

        require_root();
        m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(m, MAP_FAILED);
        f = fixture_start(NULL, NULL);
        assert_int_equal(clock_getcpuclockid(f->tdpd_pid, &m->clock), 0);
        for (unsigned i = 0; i < 8; i++) {
                char name[8];

                snprintf(name, sizeof(name), "vm%u", i);
                wait_job(f, reserve(f, name, MIB, 4096).job);
        }
        assert_int_equal(user_run(f, SOMEBODY, 0, measure_explain, m), 0);
        before = peak_kib(f->tdpd_pid);

        other = user_start(f, SOMEBODY, 0, measure, m);
        /* From two connections of the same user. */
        for (unsigned i = 0; i < 2; i++)
                flooders[i] = user_start(f, NOBODY, 0, flood, NULL);
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(user_wait(flooders[i]), 0);
        assert_int_equal(user_run(f, NOBODY, 0, call_again, NULL), 0);
        m->stop = true;
        assert_int_equal(user_wait(other), 0);
        after = peak_kib(f->tdpd_pid);
        fprintf(stderr,
                "another user's calls: %u; the longest took %.1f ms, and %.1f ms of tdpd's CPU, which is the work of "
                "%.0f of the %u calls that flooded it\n",
                m->calls, (double) m->longest_usec / 1e3, (double) m->longest_cpu_usec / 1e3,
                (double) m->longest_cpu_usec / (double) m->explain_cpu_usec, 2 * CALLS);
        fprintf(stderr, "tdpd's memory: %lu KiB before, %lu KiB at the peak\n", before, after);

        assert_true(m->longest_cpu_usec < 2 * CALLS * m->explain_cpu_usec / 4);
        assert_true(m->longest_usec < 20000000); /* far from what a client waits for */
        /* What waits is bounded, too. A sanitizer keeps what is freed. */
        if (!getenv("ASAN_OPTIONS"))
                assert_true(after < before + 8192);
        assert_int_equal(count_vms(f), 8);
        fixture_stop(f);
        munmap(m, sizeof(*m));
}

static int on_reply(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const sd_bus_error *e = sd_bus_message_get_error(m);
        unsigned *n = userdata;

        n[0]++;
        if (!e)
                n[1]++;
        else if (strcmp(e->name, ERR("LimitExceeded")) == 0 && strstr(e->message, "MaxCalls="))
                n[2]++;
        else
                fprintf(stderr, "%s: %s\n", e->name, e->message);
        return 0;
}

static int ask_100(sd_bus *bus, void *userdata) {
        unsigned n[3] = {};

        for (unsigned i = 0; i < 100; i++) {
                sd_bus_message *m = explain(bus);

                if (!m || sd_bus_call_async(bus, NULL, m, on_reply, n, 0) < 0)
                        return 2;
                sd_bus_message_unref(m);
        }
        while (n[0] < 100)
                if (sd_bus_process(bus, NULL) == 0)
                        (void) sd_bus_wait(bus, UINT64_MAX);
        fprintf(stderr, "%u answered, %u refused\n", n[1], n[2]);
        /* Each has one answer or the other. */
        return n[1] + n[2] == 100 && n[1] >= 10 ? (int) n[2] : 200;
}

/* Whoever has more waiting than that is told. */
static void test_limit(void **state) {
        Fixture *f;

        require_root();
        f = fixture_start("[Limits]\nMaxCalls=10\n", NULL);
        assert_in_range(user_run(f, NOBODY, 0, ask_100, NULL), 1, 90);
        fixture_stop(f);
        f = fixture_start(NULL, NULL);
        assert_int_equal(user_run(f, NOBODY, 0, ask_100, NULL), 0);
        fixture_stop(f);
}

/* More connections than are remembered, each with its own calls, in the order in which they were sent. */
static int calls_in_order(sd_bus *bus, void *userdata) {
        Fixture *f = userdata;

        for (unsigned round = 0; round < 3; round++)
                for (unsigned i = 0; i < 200; i++) {
                        sd_bus *one = fixture_connect(f->address);
                        unsigned n[3] = {};

                        if (!one)
                                return 2;
                        for (unsigned k = 0; k < 3; k++)
                                if (sd_bus_call_method_async(one, NULL, "org.tdpd1", MANAGER,
                                                             "org.tdpd1.Manager", "ListVMs", on_reply, n,
                                                             NULL) < 0)
                                        return 3;
                        while (n[0] < 3)
                                if (sd_bus_process(one, NULL) == 0)
                                        (void) sd_bus_wait(one, UINT64_MAX);
                        sd_bus_flush_close_unref(one);
                        if (n[1] != 3)
                                return 4;
                }
        return 0;
}

static void test_many_connections(void **state) {
        Fixture *f;

        require_root();
        f = fixture_start(NULL, NULL);
        assert_int_equal(user_run(f, NOBODY, 0, calls_in_order, f), 0);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_flood, fixture_teardown),
                cmocka_unit_test_teardown(test_limit, fixture_teardown),
                cmocka_unit_test_teardown(test_many_connections, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
