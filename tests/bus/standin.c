/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "standin.h"
#include "store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];
static int events_fd = -1;

Fixture *standin_start_with(const char *scenario, const char *config) {
        static char arg[160];

        /* The variable is what fixture_start() runs. */
        assert_non_null(getenv("TDPD_STANDIN"));
        assert_int_equal(setenv("TDPD", getenv("TDPD_STANDIN"), 1), 0);
        snprintf(arg, sizeof(arg), "--device=standin:%s", scenario);
        return fixture_start(config, arg);
}

Fixture *standin_start(const char *scenario) {
        return standin_start_with(scenario, NULL);
}

/* The job of a call that must succeed. */
const char *standin_attach(Fixture *f, pid_t pid, const char *decision) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        static char copy[64];
        const char *vm, *job;
        sd_bus_message *m;

        m = manager_call(f, &error, "AttachPid", "sua{sv}", "db", (uint32_t) pid, 1, "decision", "s",
                         decision);
        if (!m)
                fail_msg("AttachPid: %s: %s", error.name, error.message);
        assert_true(sd_bus_message_read(m, "oo", &vm, &job) > 0);
        assert_string_equal(vm, VM_PATH);
        snprintf(copy, sizeof(copy), "%s", job);
        sd_bus_message_unref(m);
        return copy;
}

const char *standin_build(Fixture *f) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        static char copy[64];
        const char *job;
        sd_bus_message *m;

        m = call(f->bus, &error, VM_PATH, "org.tdpd1.VM", "Build", "a{sv}", 0);
        if (!m)
                fail_msg("Build: %s: %s", error.name, error.message);
        assert_true(sd_bus_message_read(m, "o", &job) > 0);
        snprintf(copy, sizeof(copy), "%s", job);
        sd_bus_message_unref(m);
        return copy;
}

void assert_state(Fixture *f, const char *expected) {
        char *s = vm_state(f, VM_PATH);

        assert_string_equal(s, expected);
        free(s);
}

/* Statistics are not read anew if reading them took long just before. */
void wait_state(Fixture *f, const char *expected) {
        for (uint64_t until = now_usec() + 5000000; now_usec() < until;) {
                char *s = vm_state(f, VM_PATH);
                bool same = strcmp(s, expected) == 0;

                free(s);
                if (same)
                        return;
                usleep(10000);
        }
        assert_state(f, expected);
}

uint64_t get_property(Fixture *f, const char *name) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        uint64_t v;

        if (sd_bus_get_property_trivial(f->bus, "org.tdpd1", VM_PATH, "org.tdpd1.VM", name, &error, 't',
                                        &v) < 0)
                fail_msg("%s: %s", name, error.message);
        return v;
}

void assert_property(Fixture *f, const char *name, uint64_t expected) {
        uint64_t v = get_property(f, name);

        if (v != expected)
                fail_msg("%s is %llu instead of %llu", name, (unsigned long long) v,
                         (unsigned long long) expected);
}

void wait_no_vm(Fixture *f) {
        for (uint64_t until = now_usec() + 2000000; count_vms(f) > 0 && now_usec() < until;)
                usleep(10000);
        assert_int_equal(count_vms(f), 0);
}

static const char *dir_path(const char *name) {
        static char path[96];

        snprintf(path, sizeof(path), "%s/%s", dir, name);
        return path;
}

Fixture *standin_start_dir(const char *config) {
        char scenario[96];

        snprintf(dir, sizeof(dir), "/tmp/tdpd-standin-XXXXXX");
        assert_non_null(mkdtemp(dir));
        assert_int_equal(mkfifo(dir_path("events"), 0600), 0);
        /* Reading as well, so that the daemon's end neither waits for us nor sees us go before it should. */
        events_fd = open(dir_path("events"), O_RDWR | O_CLOEXEC | O_NONBLOCK);
        assert_true(events_fd >= 0);
        snprintf(scenario, sizeof(scenario), "dir:%s", dir);
        return standin_start_with(scenario, config);
}

Fixture *standin_start_kept(const char *config) {
        char scenario[96];

        require_root();
        snprintf(dir, sizeof(dir), "/tmp/tdpd-standin-XXXXXX");
        assert_non_null(mkdtemp(dir));
        snprintf(scenario, sizeof(scenario), "kept:%s", dir);
        store_begin();
        return standin_start_with(scenario, config);
}

const char *standin_dir(void) {
        return dir;
}

const char *standin_calls(void) {
        static char text[16384];
        size_t n = 0;
        FILE *f;

        /* Locked, as the daemon writes to it: what it is about to write must not go with what is read. */
        f = fopen(dir_path("calls"), "r+e");
        if (f) {
                assert_int_equal(flock(fileno(f), LOCK_EX), 0);
                n = fread(text, 1, sizeof(text) - 1, f);
                assert_int_equal(ftruncate(fileno(f), 0), 0);
                fclose(f);
        }
        text[n] = '\0';
        return text;
}

void standin_set(const char *name, bool on) {
        int fd;

        if (!on) {
                assert_int_equal(unlink(dir_path(name)), 0);
                return;
        }
        fd = open(dir_path(name), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
}

void standin_event(const struct kvm_gtdp_event *event) {
        assert_int_equal(write(events_fd, event, sizeof(*event)), sizeof(*event));
}

int standin_teardown(void **state) {
        int r = fixture_teardown(state);

        if (events_fd >= 0)
                close(events_fd);
        events_fd = -1;
        if (dir[0])
                remove_dir(dir);
        dir[0] = '\0';
        return r;
}
