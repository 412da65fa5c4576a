/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Each allocation fails once while tdpd starts with VMs to take over, while it reads its configuration
 * again, and while it sets a pool: all of it, or nothing. */
#include "failing.h"
#include "standin.h"
#include "store.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_MAX 2000U
#define N_VMS 3U
#define NODE0 "/org/tdpd1/node/0"

/* Starting is slow with a sanitizer. */
#ifdef __SANITIZE_ADDRESS__
#define START_STEP 7U
#else
#define START_STEP 1U
#endif

/* No slab of that size fits anywhere. */
#define CONFIG(decision, max_vms, slabs)                                                                    \
        "[Policy]\nDecision=" decision "\n[Limits]\nMaxVMs=" max_vms "\n[Pools]\nWarm=" slabs               \
        "\nReserved=2M:0@0 2M:0@1\n[Rule 10-x]\nMatchName=x* y*\nMatchUser=0 1\nNodes=0-1\nWarm=no\n"       \
        "[Rule 20-y]\nMatchUnit=*.scope\nPageSize=2M\nDecision=never\n"

static const char config_a[] = CONFIG("always", "5", "512T*1 page=2M");
static const char config_b[] = CONFIG("never", "6", "512T*2 node=0 page=2M, 256T*1");

static void write_config(Fixture *f, const char *text) {
        char path[128];
        FILE *file;

        snprintf(path, sizeof(path), "%s/tdpd.conf", f->dir);
        file = fopen(path, "we");
        assert_non_null(file);
        assert_true(fputs(text, file) >= 0);
        assert_int_equal(fclose(file), 0);
}

static bool policy_is(Fixture *f, const char *decision) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        char *policy = NULL;
        bool same;

        if (sd_bus_get_property_string(f->bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "Policy", &error,
                                       &policy) < 0)
                fail_msg("Policy: %s", error.message);
        same = strcmp(policy, decision) == 0;
        free(policy);
        return same;
}

/* Two that have their memory, and one that is attached. */
static void assert_all_kept(Fixture *f, const char *what) {
        static const struct {
                const char *path, *state;
        } vms[N_VMS] = {
                { "/org/tdpd1/vm/a", "populated" },
                { "/org/tdpd1/vm/b", "populated" },
                { VM_PATH, "built" },
        };

        if (count_vms(f) != N_VMS)
                fail_msg("%s: %zu VMs", what, count_vms(f));
        for (size_t i = 0; i < N_VMS; i++) {
                char *s = vm_state(f, vms[i].path);

                /* What is built again is on its way there. */
                if (strcmp(s, vms[i].state) != 0 && strcmp(s, "healing") != 0)
                        fail_msg("%s: %s is %s", what, vms[i].path, s);
                free(s);
        }
        if (!policy_is(f, "always"))
                fail_msg("%s: another configuration", what);
}

static void assert_all_stored(Fixture *f, const char *what) {
        static const char *const names[N_VMS] = { "a", "b", "db" };
        char path[160];

        if (store_count() != N_VMS)
                fail_msg("%s: the service manager has %zu descriptors", what, store_count());
        for (size_t i = 0; i < N_VMS; i++) {
                snprintf(path, sizeof(path), "%s/state/%s.vm", f->dir, names[i]);
                if (access(path, R_OK) < 0)
                        fail_msg("%s: %s: %s", what, path, strerror(errno));
        }
}

/* Returns whether an allocation has failed. */
static bool start_once(Fixture *f, unsigned n, unsigned *n_ended) {
        bool fired, serves;
        char what[64];
        int status;

        snprintf(what, sizeof(what), "start, allocation %u", n);
        failing_arm(FAIL_ALLOCATION, ENOMEM, n, false);
        serves = failing_restart(f, &status);
        fired = failing_disarm();
        if (serves) {
                assert_all_kept(f, what);
                assert_all_stored(f, what);
                fixture_kill_tdpd(f, SIGKILL);
                return fired;
        }
        /* With any other status systemd would not start it again. */
        if (!fired || !WIFEXITED(status) || WEXITSTATUS(status) != EXIT_FAILURE)
                fail_msg("%s: wait status 0x%x", what, (unsigned) status);
        (*n_ended)++;
        assert_all_stored(f, what);
        return true;
}

static void test_start(void **state) {
        Fixture *f = standin_start_kept(config_a);
        pid_t pid = spawn_vmm(1, 0);
        unsigned n, n_ended = 0;

        assert_string_equal(wait_job(f, reserve(f, "a", MIB, 4096).job)->result, "done");
        assert_string_equal(wait_job(f, reserve(f, "b", MIB, 4096).job)->result, "done");
        assert_string_equal(wait_job(f, standin_attach(f, pid, "always"))->result, "done");
        assert_all_kept(f, "at first");
        fixture_kill_tdpd(f, SIGKILL);

        for (n = 1; start_once(f, n, &n_ended); n += START_STEP)
                assert_true(n < N_MAX);
        print_message("%u allocations, with %u of them it ended\n", n, n_ended);
        assert_true(n_ended > 0);
        fixture_restart(f);
        assert_all_kept(f, "at last");
        reap(pid, SIGKILL);
        fixture_stop(f);
}

/* Sends the call with an allocation that fails; what it returns is the caller's. */
static sd_bus_message *call_once(Fixture *f, unsigned n, bool *fired, sd_bus_error *error, const char *path,
                                 const char *interface, const char *member, uint64_t pages) {
        sd_bus_message *m;

        failing_arm(FAIL_ALLOCATION, ENOMEM, n, false);
        if (strcmp(member, "Reload") == 0)
                m = call(f->bus, error, path, interface, member, NULL);
        else
                m = call(f->bus, error, path, interface, member, "tta{sv}", HUGE_2M, pages, 0);
        *fired = failing_disarm();
        if (!m && (!*fired || (!sd_bus_error_has_name(error, SD_BUS_ERROR_NO_MEMORY) &&
                               !sd_bus_error_has_name(error, ERR("Failed")) &&
                               !sd_bus_error_has_name(error, ERR("NotPermitted")))))
                fail_msg("%s, allocation %u: %s: %s", member, n, error->name, error->message);
        return m;
}

static uint32_t warm_wanted(Fixture *f) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = NULL;
        uint32_t wanted = 0;

        if (sd_bus_get_property(f->bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "Warm", &error, &m,
                                "a(sttiuutss)") < 0)
                fail_msg("Warm: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(sttiuutss)") > 0);
        while (sd_bus_message_enter_container(m, 'r', "sttiuutss") > 0) {
                uint32_t k;

                assert_true(sd_bus_message_skip(m, "stti") > 0);
                assert_true(sd_bus_message_read(m, "u", &k) > 0);
                assert_true(sd_bus_message_skip(m, "utss") > 0);
                assert_true(sd_bus_message_exit_container(m) >= 0);
                wanted += k;
        }
        sd_bus_message_unref(m);
        return wanted;
}

/* All of it is as in that file. */
static void assert_config(Fixture *f, bool a, unsigned n) {
        if (policy_is(f, "always") != a || warm_wanted(f) != (a ? 1 : 3))
                fail_msg("Reload, allocation %u: it is not what it %s", n, a ? "was" : "is to be");
}

static void test_reload(void **state) {
        Fixture *f;
        unsigned n;
        bool fired;

        require_root();
        f = failing_start(config_a, NULL);
        assert_config(f, true, 0);
        for (n = 1;; n++) {
                sd_bus_error error = SD_BUS_ERROR_NULL;
                sd_bus_message *m;

                write_config(f, config_b);
                m = call_once(f, n, &fired, &error, MANAGER, "org.tdpd1.Manager", "Reload", 0);
                assert_config(f, !m, n);
                sd_bus_error_free(&error);
                sd_bus_message_unref(m);
                if (!fired)
                        break;
                /* Back again. */
                write_config(f, config_a);
                m = manager_call(f, &error, "Reload", NULL);
                if (!m)
                        fail_msg("Reload after allocation %u: %s", n, error.message);
                sd_bus_message_unref(m);
                assert_config(f, true, n);
                assert_true(n < N_MAX);
        }
        print_message("%u allocations\n", n);
        assert_true(n > 10);
        fixture_stop(f);
}

/* One page less, and back: with a failure the pool has either number. */
static void test_set_pool(void **state) {
        uint64_t pages = (pool_grow(4), pool_read("nr_hugepages")), target = pages;
        unsigned n, fds = 0;
        Fixture *f;
        bool fired;

        f = failing_start(NULL, NULL);
        for (n = 1;; n++) {
                sd_bus_error error = SD_BUS_ERROR_NULL;
                const char *job, *result = "refused";
                sd_bus_message *m;
                char what[64];

                snprintf(what, sizeof(what), "SetPool, allocation %u", n);
                f->n_ends = 0;
                target = pool_read("nr_hugepages") == pages ? pages - 1 : pages;
                m = call_once(f, n, &fired, &error, NODE0, "org.tdpd1.Node", "SetPool", target);
                if (m) {
                        assert_true(sd_bus_message_read(m, "o", &job) > 0);
                        result = wait_job(f, job)->result;
                }
                if (strcmp(result, "done") == 0)
                        assert_int_equal(pool_read("nr_hugepages"), target);
                else if (pool_read("nr_hugepages") == target)
                        fail_msg("%s: %s, and it has happened", what, result);
                sd_bus_message_unref(m);
                sd_bus_error_free(&error);
                assert_int_equal(count_vms(f), 0); /* and so the job's own are closed */
                if (n == 1)
                        fds = failing_count_fds(f);
                failing_assert_fds(f, fds, what);
                if (!fired)
                        break;
                assert_true(n < N_MAX);
        }
        print_message("%u allocations\n", n);
        assert_true(n > 3);
        if (pool_read("nr_hugepages") != pages) {
                sd_bus_error error = SD_BUS_ERROR_NULL;
                sd_bus_message *m = call_once(f, N_MAX, &fired, &error, NODE0, "org.tdpd1.Node", "SetPool",
                                              pages);
                const char *job;

                assert_non_null(m);
                assert_true(sd_bus_message_read(m, "o", &job) > 0);
                assert_string_equal(wait_job(f, job)->result, "done");
                sd_bus_message_unref(m);
        }
        assert_int_equal(pool_read("nr_hugepages"), pages);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_start, standin_teardown),
                cmocka_unit_test_teardown(test_reload, fixture_teardown),
                cmocka_unit_test_teardown(test_set_pool, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
