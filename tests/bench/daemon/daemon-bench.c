/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The measuring client of tests/bench/daemon/run: each call prints figures as JSON. See ../README.md. */

#include <errno.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <systemd/sd-bus.h>
#include <time.h>
#include <unistd.h>

#include "../lib/bench.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define STEP        (UINT64_C(64) << 20)
#define DAEMON      "org.tdpd1"
#define MANAGER     "/org/tdpd1"
#define CALL_USEC   (UINT64_C(120) * 1000000)
#define IN_FLIGHT   32U
#define BUSSES_MAX  4U
#define THREADS_MAX 256U

static uint64_t now_usec(void) {
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}

static uint64_t number(const char *s) {
        char *end;
        uint64_t n = strtoull(s, &end, 10);

        if (end == s || *end != '\0')
                die_text("'%s' is no number", s);
        return n;
}

static void check(int r, const char *what, const sd_bus_error *e) {
        if (r >= 0)
                return;
        if (e && sd_bus_error_is_set(e))
                die_text("%s: %s: %s", what, e->name, e->message);
        errno = -r;
        die(what);
}

static sd_bus *connect_to(const char *address) {
        sd_bus *bus;

        check(sd_bus_new(&bus), "sd_bus_new", NULL);
        check(sd_bus_set_address(bus, address), address, NULL);
        check(sd_bus_set_bus_client(bus, true), address, NULL);
        check(sd_bus_negotiate_fds(bus, true), address, NULL);
        check(sd_bus_start(bus), address, NULL);
        check(sd_bus_set_method_call_timeout(bus, CALL_USEC), address, NULL);
        return bus;
}

/* ---- A bare loop ------------------------------------------------------- */

typedef struct Share {
        pthread_t thread;
        unsigned k;
        uint8_t *p;
        uint64_t size;
} Share;

/* To the k-th of those that we may run on; beyond the last it is anyone's. */
static void bind_to_cpu(unsigned k) {
        cpu_set_t all, one;

        if (sched_getaffinity(0, sizeof(all), &all) < 0)
                die("sched_getaffinity");
        for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
                if (CPU_ISSET(cpu, &all) && k-- == 0) {
                        CPU_ZERO(&one);
                        CPU_SET(cpu, &one);
                        if (sched_setaffinity(0, sizeof(one), &one) < 0)
                                die("sched_setaffinity");
                        return;
                }
}

static void *populate_share(void *arg) {
        Share *s = arg;

        bind_to_cpu(s->k); /* left alone, two share one now and then until all is done */
        for (uint64_t done = 0; done < s->size; done += STEP) {
                uint64_t n = s->size - done < STEP ? s->size - done : STEP;

                if (madvise(s->p + done, n, MADV_POPULATE_WRITE) < 0)
                        die("MADV_POPULATE_WRITE");
        }
        return NULL;
}

static void bare_loop(uint64_t bytes, unsigned n_threads) {
        uint64_t start = now_usec(), share;
        Share shares[THREADS_MAX];
        uint8_t *p;
        int fd;

        if (n_threads == 0 || n_threads > THREADS_MAX)
                die_text("%u threads: it can have 1 to %u", n_threads, THREADS_MAX);
        fd = memfd_create("loop", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);
        if (fd < 0 || ftruncate(fd, (off_t) bytes) < 0)
                die("memfd");
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
                die("mmap");
        share = bytes / n_threads / (UINT64_C(2) << 20) * (UINT64_C(2) << 20);
        for (unsigned i = 0; i < n_threads; i++) {
                shares[i].k = i;
                shares[i].p = p + i * share;
                shares[i].size = i == n_threads - 1 ? bytes - i * share : share;
                if (pthread_create(&shares[i].thread, NULL, populate_share, &shares[i]) != 0)
                        die_text("no thread");
        }
        for (unsigned i = 0; i < n_threads; i++)
                pthread_join(shares[i].thread, NULL);
        printf("{\"usec\": %lu}\n", now_usec() - start);
}

/* ---- One VM ------------------------------------------------------------ */

typedef struct Wait {
        const char *job; /* NULL: all of them are counted */
        unsigned n_done;
        uint64_t usec;
} Wait;

static int on_job_removed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *job, *result, *name, *message;
        Wait *w = userdata;
        uint32_t id;

        check(sd_bus_message_read(m, "uosss", &id, &job, &result, &name, &message), "JobRemoved", NULL);
        if (w->job && strcmp(w->job, job) != 0)
                return 0;
        if (strcmp(result, "done") != 0)
                die_text("job %s %s: %s: %s", job, result, name, message);
        w->n_done++;
        w->usec = now_usec();
        return 0;
}

static void process(sd_bus *bus) {
        int r = sd_bus_process(bus, NULL);

        check(r, "sd_bus_process", NULL);
        if (r == 0)
                check(sd_bus_wait(bus, CALL_USEC), "sd_bus_wait", NULL);
}

static void watch_jobs(sd_bus *bus, Wait *w) {
        check(sd_bus_match_signal(bus, NULL, DAEMON, MANAGER, "org.tdpd1.Manager", "JobRemoved",
                                  on_job_removed, w),
              "match", NULL);
}

/* From the request until its memory is here as a descriptor; the job's end is waited for like clients do. */
static void reserve(const char *address, const char *name, uint64_t bytes, uint64_t page_size) {
        uint64_t start, populated, in_hand, populate_usec = 0, got = 0;
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *reply, *memory;
        sd_bus *bus = connect_to(address);
        const char *vm, *job, *part;
        uint64_t part_bytes;
        uint32_t node;
        Wait w = {};
        int fd, r;

        w.job = "";
        watch_jobs(bus, &w);
        start = now_usec();
        r = sd_bus_call_method(bus, DAEMON, MANAGER, "org.tdpd1.Manager", "Reserve", &error, &reply,
                               "sta{sv}", name, bytes, 2, "page-size", "t", page_size, "decision", "s",
                               "never");
        check(r, "Reserve", &error);
        check(sd_bus_message_read(reply, "oo", &vm, &job), "Reserve", NULL);
        w.job = job;
        while (w.n_done == 0)
                process(bus);
        populated = w.usec;

        r = sd_bus_call_method(bus, DAEMON, vm, "org.tdpd1.VM", "GetMemory", &error, &memory, NULL);
        check(r, "GetMemory", &error);
        check(sd_bus_message_enter_container(memory, 'a', "(stuh)"), "GetMemory", NULL);
        while ((r = sd_bus_message_read(memory, "(stuh)", &part, &part_bytes, &node, &fd)) > 0)
                got += fd >= 0 ? part_bytes : 0;
        in_hand = now_usec();
        check(r, "GetMemory", NULL);
        if (got != bytes)
                die_text("asked %lu bytes, got %lu", bytes, got);

        check(sd_bus_get_property_trivial(bus, DAEMON, vm, "org.tdpd1.VM", "PopulateUSec", &error, 't',
                                          &populate_usec),
              "PopulateUSec", &error);
        /* A descriptor of ours would keep the pages. */
        sd_bus_message_unref(memory);
        check(sd_bus_call_method(bus, DAEMON, vm, "org.tdpd1.VM", "Release", &error, NULL, NULL), "Release",
              &error);
        printf("{\"usec\": %lu, \"in_hand_usec\": %lu, \"populate_usec\": %lu}\n", populated - start,
               in_hand - start, populate_usec);
        sd_bus_message_unref(reply);
        sd_bus_flush_close_unref(bus);
}

/* ---- Many VMs ---------------------------------------------------------- */

static int on_reply(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const sd_bus_error *e = sd_bus_message_get_error(m);

        if (e)
                die_text("Reserve: %s: %s", e->name, e->message);
        ++*(unsigned *) userdata;
        return 0;
}

/* "vm0" to "vmN-1", of 4K pages. */
static void many(const char *address, unsigned n, uint64_t bytes) {
        unsigned sent = 0, replied = 0;
        uint64_t start = now_usec();
        sd_bus *bus = connect_to(address);
        Wait w = {};

        watch_jobs(bus, &w);
        while (replied < n || w.n_done < n) {
                char name[32];

                if (sent == n || sent - w.n_done >= IN_FLIGHT) {
                        process(bus);
                        continue;
                }
                snprintf(name, sizeof(name), "vm%u", sent++);
                check(sd_bus_call_method_async(bus, NULL, DAEMON, MANAGER, "org.tdpd1.Manager", "Reserve",
                                               on_reply, &replied, "sta{sv}", name, bytes, 2, "page-size",
                                               "t", UINT64_C(4096), "decision", "s", "never"),
                      "Reserve", NULL);
        }
        printf("{\"usec\": %lu}\n", now_usec() - start);
        sd_bus_flush_close_unref(bus);
}

static void count(const char *address) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus *bus = connect_to(address);
        sd_bus_message *reply;
        unsigned n = 0;

        check(sd_bus_call_method(bus, DAEMON, MANAGER, "org.tdpd1.Manager", "ListVMs", &error, &reply, NULL),
              "ListVMs", &error);
        check(sd_bus_message_enter_container(reply, 'a', "(ssout)"), "ListVMs", NULL);
        while (sd_bus_message_skip(reply, "(ssout)") > 0)
                n++;
        printf("{\"vms\": %u}\n", n);
        sd_bus_message_unref(reply);
        sd_bus_flush_close_unref(bus);
}

/* ---- Call rates -------------------------------------------------------- */

static uint64_t call_ping(sd_bus *bus, unsigned n) {
        uint64_t start = now_usec();

        for (unsigned i = 0; i < n; i++)
                check(sd_bus_call_method(bus, DAEMON, MANAGER, "org.freedesktop.DBus.Peer", "Ping", NULL,
                                         NULL, NULL),
                      "Ping", NULL);
        return now_usec() - start;
}

static uint64_t call_get_vm(sd_bus *bus, unsigned n, unsigned n_vms) {
        uint64_t start = now_usec();

        for (unsigned i = 0; i < n; i++) {
                sd_bus_error error = SD_BUS_ERROR_NULL;
                char name[32];

                snprintf(name, sizeof(name), "vm%u", (unsigned) (i * UINT64_C(7919) % n_vms));
                check(sd_bus_call_method(bus, DAEMON, MANAGER, "org.tdpd1.Manager", "GetVM", &error, NULL,
                                         "s", name),
                      "GetVM", &error);
        }
        return now_usec() - start;
}

/* Each round has some of each, so that what disturbs one disturbs all. */
static void rates(unsigned n_rounds, unsigned n_calls, char *argv[], unsigned n_busses) {
        unsigned n_vms[BUSSES_MAX];
        sd_bus *bus[BUSSES_MAX];

        if (n_busses > BUSSES_MAX)
                die_text("at most %u", BUSSES_MAX);
        for (unsigned i = 0; i < n_busses; i++) {
                bus[i] = connect_to(argv[2 * i]);
                n_vms[i] = (unsigned) number(argv[2 * i + 1]);
                (void) call_ping(bus[i], n_calls);
        }
        printf("[");
        for (unsigned round = 0; round < n_rounds; round++)
                for (unsigned k = 0; k < n_busses; k++) {
                        unsigned i = round % 2 ? n_busses - 1 - k : k; /* each is first as often */
                        uint64_t ping = call_ping(bus[i], n_calls);
                        uint64_t get_vm = call_get_vm(bus[i], n_calls, n_vms[i]);

                        printf("%s\n{\"vms\": %u, \"ping_per_second\": %lu, \"get_vm_per_second\": %lu}",
                               round + k > 0 ? "," : "", n_vms[i], n_calls * UINT64_C(1000000) / ping,
                               n_calls * UINT64_C(1000000) / get_vm);
                }
        printf("]\n");
        for (unsigned i = 0; i < n_busses; i++)
                sd_bus_flush_close_unref(bus[i]);
}

static const char usage[] = "daemon-bench loop BYTES THREADS\n"
                            "daemon-bench reserve ADDRESS NAME BYTES PAGE-SIZE\n"
                            "daemon-bench many ADDRESS N BYTES\n"
                            "daemon-bench count ADDRESS\n"
                            "daemon-bench rates ROUNDS CALLS [ADDRESS N]...\n";

int main(int argc, char *argv[]) {
        if (argc == 4 && strcmp(argv[1], "loop") == 0)
                bare_loop(number(argv[2]), (unsigned) number(argv[3]));
        else if (argc == 6 && strcmp(argv[1], "reserve") == 0)
                reserve(argv[2], argv[3], number(argv[4]), number(argv[5]));
        else if (argc == 5 && strcmp(argv[1], "many") == 0)
                many(argv[2], (unsigned) number(argv[3]), number(argv[4]));
        else if (argc == 3 && strcmp(argv[1], "count") == 0)
                count(argv[2]);
        else if (argc >= 6 && argc % 2 == 0 && strcmp(argv[1], "rates") == 0)
                rates((unsigned) number(argv[2]), (unsigned) number(argv[3]), argv + 4,
                      (unsigned) (argc - 4) / 2);
        else {
                fputs(usage, stderr);
                return 2;
        }
        return 0;
}
