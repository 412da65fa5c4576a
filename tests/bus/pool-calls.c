/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool-calls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake-sysfs.h"

static char config_text[512];
unsigned pools_changed, pool_lows;
static char wanted_path[64];

const char *pools_config(const char *lines) {
        snprintf(config_text, sizeof(config_text), "[Pools]\nWatchSec=1\nRetrySec=1\n%s", lines);
        return config_text;
}

Fixture *start_on_fake(const char *lines) {
        char arg[96];

        snprintf(arg, sizeof(arg), "--sysfs-root=%s", fake_sysfs_root());
        return fixture_start(lines ? pools_config(lines) : NULL, arg);
}

const char *set_pool_raw(Fixture *f, const char *node, uint64_t size, uint64_t pages, const char *mode,
                         bool partial, sd_bus_error *error) {
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

const char *set_pool(Fixture *f, const char *node, uint64_t size, uint64_t pages, const char *mode,
                     bool partial) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *job = set_pool_raw(f, node, size, pages, mode, partial, &error);

        if (!job)
                fail_msg("SetPool: %s", error.message);
        return job;
}

void assert_set_fails(Fixture *f, const char *node, uint64_t size, uint64_t pages, const char *mode,
                      const char *name, const char *part) {
        sd_bus_error error = SD_BUS_ERROR_NULL;

        assert_null(set_pool_raw(f, node, size, pages, mode, false, &error));
        assert_error_is(&error, name, part);
}

void assert_end(Fixture *f, const char *job, const char *result, const char *error, const char *part) {
        const JobEnd *e = wait_job(f, job);

        if (strcmp(e->result, result) != 0 || strcmp(e->error, error) != 0 || !strstr(e->message, part))
                fail_msg("job ended as %s, %s: %s", e->result, e->error, e->message);
}

Target read_target(Fixture *f, const char *node, uint64_t size) {
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

void wait_target(Fixture *f, const char *node, uint64_t size, const char *state, uint64_t got) {
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

void assert_manager_state(Fixture *f, const char *state) {
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

void watch_pools(Fixture *f, const char *path) {
        pools_changed = pool_lows = 0;
        snprintf(wanted_path, sizeof(wanted_path), "%s", path);
        assert_true(sd_bus_match_signal(f->bus, NULL, "org.tdpd1", path, "org.freedesktop.DBus.Properties",
                                        "PropertiesChanged", on_changed, NULL) >= 0);
        assert_true(sd_bus_match_signal(f->bus, NULL, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "PoolLow",
                                        on_low, NULL) >= 0);
}

void process_until(Fixture *f, unsigned *counter, unsigned at_least) {
        uint64_t until = now_usec() + 5000000;

        while (*counter < at_least && now_usec() < until) {
                assert_true(sd_bus_process(f->bus, NULL) >= 0);
                assert_true(sd_bus_wait(f->bus, 20000) >= 0);
        }
        assert_true(*counter >= at_least);
}
