/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Each allocation of each bus call fails once: an error, nothing left behind, and the next call is served.
 */
#include "failing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMITS  "[Limits]\nMaxVMs=2\nMaxJobs=2\nMaxBytes=8M\n"
#define VM_PATH "/org/tdpd1/vm/db"
#define N_MAX   2000U

/* Of those in libraries: many end tdpd, and with a sanitizer it takes long to start again. */
#ifdef __SANITIZE_ADDRESS__
#define LIBRARIES_STEP 7U
#else
#define LIBRARIES_STEP 1U
#endif

typedef struct Call {
        const char *path, *interface, *member, *types;
        const char *error; /* it fails with this one anyway */
        int (*append)(sd_bus_message *m);
} Call;

static int append_name(sd_bus_message *m) {
        return sd_bus_message_append(m, "s", "db");
}

static int append_wrong_name(sd_bus_message *m) {
        return sd_bus_message_append(m, "s", "nobody");
}

static int append_pid(sd_bus_message *m) {
        return sd_bus_message_append(m, "u", 1);
}

static int append_wrong_path(sd_bus_message *m) {
        return sd_bus_message_append(m, "o", "/org/tdpd1/vm/nobody");
}

static int append_explain(sd_bus_message *m) {
        return sd_bus_message_append(m, "a{sv}", 5, "bytes", "t", 4 * MIB, "nodes", "s", "0", "name", "s",
                                     "x", "vcpus", "u", 4, "decision", "s", "always");
}

static int append_reserve(sd_bus_message *m) {
        return sd_bus_message_append(m, "sta{sv}", "new", MIB, 2, "page-size", "t", UINT64_C(4096), "nodes",
                                     "s", "0");
}

static int append_reserve_taken(sd_bus_message *m) {
        return sd_bus_message_append(m, "sta{sv}", "db", MIB, 0);
}

static int append_reserve_unknown_option(sd_bus_message *m) {
        return sd_bus_message_append(m, "sta{sv}", "new", MIB, 1, "colour", "s", "blue");
}

/* It is granted if there are huge pages here, and waits for some else. */
static int append_reserve_wait(sd_bus_message *m) {
        return sd_bus_message_append(m, "sta{sv}", "new", HUGE_2M, 3, "page-size", "t", HUGE_2M, "nodes",
                                     "s", "0", "wait-usec", "t", UINT64_C(60000000));
}

static int append_reserve_much(sd_bus_message *m) {
        return sd_bus_message_append(m, "sta{sv}", "new", UINT64_C(1) << 60, 0);
}

static int append_attach_pid(sd_bus_message *m) {
        return sd_bus_message_append(m, "sua{sv}", "new", (uint32_t) getpid(), 1, "decision", "s", "never");
}

static int append_no_options(sd_bus_message *m) {
        return sd_bus_message_append(m, "a{sv}", 0);
}

static int append_vm_interface(sd_bus_message *m) {
        return sd_bus_message_append(m, "s", "org.tdpd1.VM");
}

static int append_manager_interface(sd_bus_message *m) {
        return sd_bus_message_append(m, "s", "org.tdpd1.Manager");
}

static int append_node_interface(sd_bus_message *m) {
        return sd_bus_message_append(m, "s", "org.tdpd1.Node");
}

static int append_level(sd_bus_message *m) {
        return sd_bus_message_append(m, "ssv", "org.freedesktop.LogControl1", "LogLevel", "s", "info");
}

#define MANAGER_CALL(member, error, append)                                                                 \
        { MANAGER, "org.tdpd1.Manager", member, NULL, error, append }
#define GET_ALL(path, append)                                                                               \
        { path, "org.freedesktop.DBus.Properties", "GetAll", NULL, NULL, append }

static const Call calls[] = {
        MANAGER_CALL("Explain", NULL, append_explain),
        MANAGER_CALL("Reload", NULL, NULL),
        MANAGER_CALL("ListVMs", NULL, NULL),
        MANAGER_CALL("ListJobs", NULL, NULL),
        MANAGER_CALL("ListNodes", NULL, NULL),
        MANAGER_CALL("GetVM", NULL, append_name),
        MANAGER_CALL("GetVM", ERR("NoSuchVM"), append_wrong_name),
        MANAGER_CALL("GetVMByPid", ERR("NoSuchVM"), append_pid),
        MANAGER_CALL("Release", ERR("NoSuchVM"), append_wrong_path),
        MANAGER_CALL("Reserve", NULL, append_reserve),
        MANAGER_CALL("Reserve", ERR("NameTaken"), append_reserve_taken),
        MANAGER_CALL("Reserve", ERR("InvalidArgument"), append_reserve_unknown_option),
        MANAGER_CALL("Reserve", NULL, append_reserve_wait),
        MANAGER_CALL("Reserve", ERR("NoPages"), append_reserve_much),
        MANAGER_CALL("AttachPid", ERR("NotVMM"), append_attach_pid),
        { VM_PATH, "org.tdpd1.VM", "GetMemory", NULL, NULL, NULL },
        { VM_PATH, "org.tdpd1.VM", "Build", NULL, ERR("Busy"), append_no_options },
        { VM_PATH, "org.tdpd1.VM", "Heal", NULL, ERR("Busy"), append_no_options },
        { VM_PATH, "org.freedesktop.DBus.Introspectable", "Introspect", NULL, NULL, NULL },
        { MANAGER, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects", NULL, NULL, NULL },
        { "/org/freedesktop/LogControl1", "org.freedesktop.DBus.Properties", "Set", NULL, NULL,
          append_level },
        GET_ALL(VM_PATH, append_vm_interface),
        GET_ALL(MANAGER, append_manager_interface),
        GET_ALL("/org/tdpd1/node/0", append_node_interface),
};

static Fixture *start_with_vm(void) {
        Fixture *f = failing_start(LIMITS, NULL);
        Reservation r = reserve(f, "db", MIB, 4096);

        assert_string_equal(wait_job(f, r.job)->result, "done");
        assert_int_equal(count_vms(f), 1); /* the job's own descriptors are closed when this is answered */
        return f;
}

typedef struct Reply {
        bool arrived;
        int r;
        sd_bus_error *error;
} Reply;

static int on_reply(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Reply *reply = userdata;
        const sd_bus_error *e = sd_bus_message_get_error(m);

        reply->arrived = true;
        reply->r = e ? -sd_bus_error_get_errno(e) : 0;
        if (e && reply->error)
                (void) sd_bus_error_copy(reply->error, e);
        return 0;
}

static void wait_reply(Fixture *f, const Reply *reply, uint64_t usec) {
        uint64_t until = now_usec() + usec;

        while (!reply->arrived && now_usec() < until)
                if (sd_bus_process(f->bus, NULL) == 0)
                        assert_true(sd_bus_wait(f->bus, until - now_usec()) >= 0);
}

/* What is asked after it is answered after it: so a reply that will not come need not be waited for long. */
static int make_call(Fixture *f, const Call *c, sd_bus_error *error) {
        Reply reply = { .error = error }, ping = {};
        sd_bus_slot *slot = NULL, *ping_slot = NULL;
        sd_bus_message *m = NULL;

        assert_true(sd_bus_message_new_method_call(f->bus, &m, "org.tdpd1", c->path, c->interface,
                                                   c->member) >= 0);
        if (c->append)
                assert_true(c->append(m) >= 0);
        assert_true(sd_bus_call_async(f->bus, &slot, m, on_reply, &reply, 0) >= 0);
        sd_bus_message_unref(m);
        assert_true(sd_bus_call_method_async(f->bus, &ping_slot, "org.tdpd1", MANAGER,
                                             "org.freedesktop.DBus.Peer", "Ping", on_reply, &ping,
                                             NULL) >= 0);
        wait_reply(f, &ping, 5000000);
        /* Unless it is refused at once, while the call before it still waits for its turn. */
        wait_reply(f, &reply, ping.r < 0 ? 2000000 : 20000);
        sd_bus_slot_unref(slot);
        sd_bus_slot_unref(ping_slot);
        if (!reply.arrived)
                sd_bus_error_set_const(error, SD_BUS_ERROR_NO_REPLY, "dropped");
        return reply.arrived ? reply.r : -ETIMEDOUT;
}

static bool is_reserve(const Call *c) {
        return strcmp(c->member, "Reserve") == 0;
}

/* Release what was reserved, if it was. */
static void clear_new(Fixture *f, const char *what) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        uint64_t until = now_usec() + 3000000;

        for (;;) {
                sd_bus_message *m = manager_call(f, &error, "Release", "o", "/org/tdpd1/vm/new");

                if (!m && !sd_bus_error_has_name(&error, ERR("NoSuchVM")))
                        fail_msg("%s: Release: %s: %s", what, error.name, error.message);
                sd_bus_message_unref(m);
                sd_bus_error_free(&error);
                if (count_vms(f) == 1)
                        return;
                assert_true(now_usec() < until);
        }
}

static bool error_is_fine(const Call *c, const sd_bus_error *e) {
        return (c->error && sd_bus_error_has_name(e, c->error)) ||
               sd_bus_error_has_name(e, SD_BUS_ERROR_NO_MEMORY) || sd_bus_error_has_name(e, ERR("Failed")) ||
               sd_bus_error_has_name(e, ERR("NotPermitted")); /* who asks cannot be found out: fail closed */
}

/* Returns about how many allocations there are. */
static unsigned sweep(Fixture **f, const Call *c, bool libraries) {
        unsigned fds = failing_count_fds(*f), n;

        for (n = 1; n < N_MAX; n += libraries ? LIBRARIES_STEP : 1) {
                sd_bus_error error = SD_BUS_ERROR_NULL;
                char what[128];
                bool fired;
                int r;

                (*f)->n_ends = 0;
                snprintf(what, sizeof(what), "%s, allocation %u%s", c->member, n,
                         libraries ? " of libraries too" : "");
                failing_arm(FAIL_ALLOCATION, ENOMEM, n, libraries);
                r = make_call(*f, c, &error);
                fired = failing_disarm();

                /* libsystemd leaves the bus when it cannot read a message. Then systemd starts tdpd again.
                 */
                if (failing_has_ended(*f, what)) {
                        assert_true(libraries && fired);
                        fixture_stop(*f);
                        *f = start_with_vm();
                        fds = failing_count_fds(*f);
                        sd_bus_error_free(&error);
                        continue;
                }
                if (!fired) {
                        if (c->error ? !sd_bus_error_has_name(&error, c->error) : r < 0)
                                fail_msg("%s without a failure: %s: %s", c->member, error.name,
                                         error.message);
                        sd_bus_error_free(&error);
                        if (is_reserve(c))
                                clear_new(*f, what);
                        return n - 1;
                }
                if (r < 0 && !libraries && !error_is_fine(c, &error))
                        fail_msg("%s: %s: %s", what, error.name, error.message);
                sd_bus_error_free(&error);

                if (is_reserve(c))
                        clear_new(*f, what);
                assert_int_equal(count_vms(*f), 1);
                failing_assert_fds(*f, fds, what);
        }
        fail_msg("%s: more than %u allocations", c->member, N_MAX);
        return 0;
}

/* The account is as it was: exactly what is left of the limits can be had. */
static void assert_account(Fixture *f) {
        Reservation r = reserve(f, "more", 7 * MIB, 4096);

        assert_string_equal(wait_job(f, r.job)->result, "done");
        assert_call_fails(f, ERR("LimitExceeded"), "VMs", "Reserve", "sta{sv}", "third", MIB, 0);
        release(f, r.vm);
        release(f, VM_PATH);
        assert_int_equal(count_vms(f), 0);
}

static void sweep_all(bool libraries) {
        Fixture *f = start_with_vm();
        unsigned n = 0;

        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
                if (!libraries || calls[i].append != append_reserve_wait) /* those are the other one's */
                        n += sweep(&f, &calls[i], libraries);
        print_message("%u allocations\n", n);
        assert_true(n > 0);
        assert_account(f);
        fixture_stop(f);
}

static void test_own_allocations(void **state) {
        sweep_all(false);
}

static void test_all_allocations(void **state) {
        sweep_all(true);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_own_allocations, fixture_teardown),
                cmocka_unit_test_teardown(test_all_allocations, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
