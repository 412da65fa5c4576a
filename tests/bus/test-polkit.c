/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What only root may do, and others if polkit says so.  polkit is a child with a given answer. */
#include "users.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <systemd/sd-event.h>

#define POLKIT "org.freedesktop.PolicyKit1"

typedef enum Answer {
        ALLOW,
        ALLOW_IF_INTERACTIVE,
        ALLOW_VMS_ONLY,
        DENY,
        CHALLENGE,
        ERROR,
        NEVER,
        NOT_ALL,
        TOO_MUCH,
        OTHER_TYPES,
        EMPTY,
} Answer;

static Answer answer;
static char policy[16384];

static void read_policy(void) {
        char path[512];
        FILE *f;
        size_t n;

        snprintf(path, sizeof(path), "%s/config/org.tdpd1.policy", getenv("SOURCE_ROOT"));
        f = fopen(path, "re");
        assert_non_null(f);
        n = fread(policy, 1, sizeof(policy) - 1, f);
        assert_true(n > 0 && n < sizeof(policy) - 1);
        policy[n] = '\0';
        fclose(f);
}

/* As polkit does: what no policy file has cannot be asked about. */
static bool is_in_policy(const char *action) {
        char want[128];

        snprintf(want, sizeof(want), "<action id=\"%s\">", action);
        return strstr(policy, want);
}

static int check(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *kind, *key, *name, *action, *cancel;
        uint32_t flags;

        if (!sd_bus_message_is_method_call(m, POLKIT ".Authority", "CheckAuthorization"))
                return 0;
        /* Whoever asks is named by the bus, and by nothing else. */
        if (sd_bus_message_read(m, "(sa{sv})s", &kind, 1, &key, "s", &name, &action) < 0 ||
            strcmp(kind, "system-bus-name") != 0 || strcmp(key, "name") != 0 || name[0] != ':' ||
            sd_bus_message_skip(m, "a{ss}") < 0 || sd_bus_message_read(m, "us", &flags, &cancel) < 0)
                _exit(1);
        if (!is_in_policy(action))
                return sd_bus_error_setf(error, "org.freedesktop.PolicyKit1.Error.Failed",
                                         "Action %s is not registered", action);

        switch (answer) {
        case ALLOW:
                return sd_bus_reply_method_return(m, "(bba{ss})", 1, 0, 0);
        case ALLOW_IF_INTERACTIVE:
                return sd_bus_reply_method_return(m, "(bba{ss})", flags == 1, flags != 1, 0);
        case ALLOW_VMS_ONLY:
                return sd_bus_reply_method_return(m, "(bba{ss})",
                                                  strcmp(action, "org.tdpd1.manage-vms") == 0, 0, 0);
        case DENY:
                return sd_bus_reply_method_return(m, "(bba{ss})", 0, 0, 1, "why", "because");
        case CHALLENGE:
                return sd_bus_reply_method_return(m, "(bba{ss})", 0, 1, 0);
        case ERROR:
                return sd_bus_error_set(error, "org.freedesktop.PolicyKit1.Error.Failed", "I am not well");
        case NEVER:
                return 1;
        case NOT_ALL:
                return sd_bus_reply_method_return(m, "(b)", 1);
        case TOO_MUCH:
                return sd_bus_reply_method_return(m, "(bba{ss})s", 1, 0, 0, "more");
        case OTHER_TYPES:
                return sd_bus_reply_method_return(m, "b", 1);
        default:
                return sd_bus_reply_method_return(m, NULL);
        }
}

static pid_t start_polkit(Fixture *f, Answer a) {
        pid_t parent = getpid(), pid;
        sd_event *event;
        sd_bus *bus;

        answer = a;
        read_policy();
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                bus = fixture_connect(f->address);
                if (getppid() != parent || !bus || sd_event_new(&event) < 0 ||
                    sd_bus_attach_event(bus, event, 0) < 0 ||
                    /* No vtable: with one, the library would not send what is wrong. */
                    sd_bus_add_object(bus, NULL, "/org/freedesktop/PolicyKit1/Authority", check, NULL) < 0 ||
                    sd_bus_request_name(bus, POLKIT, SD_BUS_NAME_REPLACE_EXISTING) < 0)
                        _exit(1);
                (void) sd_event_loop(event);
                _exit(1);
        }
        for (uint64_t until = now_usec() + 10000000; sd_bus_get_name_creds(f->bus, POLKIT, 0, NULL) < 0;) {
                assert_true(now_usec() < until);
                usleep(10000);
        }
        return pid;
}

static void stop_polkit(Fixture *f, pid_t pid) {
        reap(pid, SIGKILL);
        for (uint64_t until = now_usec() + 10000000; sd_bus_get_name_creds(f->bus, POLKIT, 0, NULL) >= 0;) {
                assert_true(now_usec() < until);
                usleep(10000);
        }
}

/* A call that a user makes; "error" NULL: it works. */
typedef struct Ask {
        const char *path, *interface, *member;
        const char *error, *part;
        const char *types; /* of its arguments, which are 0 or empty; or NULL */
        bool interactive;
} Ask;

static int append_nothing(sd_bus_message *m, const char *types) {
        if (!types)
                return 0;
        if (strcmp(types, "a{sv}") == 0)
                return sd_bus_message_append(m, "a{sv}", 0);
        return sd_bus_message_append(m, types, UINT64_C(0), UINT64_C(0), 0);
}

static int ask(sd_bus *bus, void *userdata) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const Ask *a = userdata;
        sd_bus_message *m = NULL;
        int r;

        if (sd_bus_message_new_method_call(bus, &m, "org.tdpd1", a->path, a->interface, a->member) < 0 ||
            sd_bus_message_set_allow_interactive_authorization(m, a->interactive) < 0 ||
            append_nothing(m, a->types) < 0)
                return 2;
        r = sd_bus_call(bus, m, 0, &error, NULL);
        if (r >= 0 && !a->error)
                return 0;
        if (r < 0 && a->error && strcmp(error.name, a->error) == 0 && strstr(error.message, a->part))
                return 0;
        fprintf(stderr, "%s: expected %s, got %s: %s\n", a->member, a->error ? a->error : "success",
                r >= 0 ? "success" : error.name, r >= 0 ? "" : error.message);
        return 1;
}

#define RELOAD            .path = MANAGER, .interface = "org.tdpd1.Manager", .member = "Reload"
#define REFUSED(why)      .error = ERR("NotPermitted"), .part = (why)
#define ask_as(f, u, ...) assert_int_equal(user_run(f, u, 0, ask, &(Ask){ __VA_ARGS__ }), 0)

static void case_72_errors_deny(void **state) {
        static const struct {
                Answer answer;
                const char *why;
        } bad[] = {
                { DENY, "polkit says no" },
                { CHALLENGE, "somebody has to authenticate" },
                { ERROR, "polkit cannot be asked (I am not well)" },
                { NEVER, "polkit cannot be asked" },
                { NOT_ALL, "polkit's answer makes no sense" },
                { TOO_MUCH, "polkit's answer makes no sense" },
                { OTHER_TYPES, "polkit's answer makes no sense" },
                { EMPTY, "polkit's answer makes no sense" },
        };
        Fixture *f;
        pid_t pid;

        require_root();
        f = fixture_start("[Access]\nPolkitTimeoutSec=1\n", NULL);

        /* No polkit at all: root goes on. */
        ask_as(f, NOBODY, RELOAD,
               REFUSED("only root may, or whoever polkit allows org.tdpd1.reload; polkit cannot be asked"));
        ask_as(f, 0, RELOAD);

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                pid = start_polkit(f, bad[i].answer);
                ask_as(f, NOBODY, RELOAD, REFUSED(bad[i].why));
                ask_as(f, 0, RELOAD); /* is never asked about */
                stop_polkit(f, pid);
        }

        /* It dies while we wait. */
        pid = start_polkit(f, NEVER);
        kill(pid, SIGSTOP);
        {
                pid_t user = user_start(f, NOBODY, 0, ask,
                                        &(Ask){ RELOAD, REFUSED("polkit cannot be asked") });

                usleep(200000);
                stop_polkit(f, pid);
                assert_int_equal(user_wait(user), 0);
        }
        fixture_stop(f);
}

static void case_72_subject_is_the_sender(void **state) {
        Fixture *f;
        pid_t pid;

        require_root();
        f = fixture_start(NULL, NULL);
        pid = start_polkit(f, ALLOW); /* and looks at the subject */
        ask_as(f, NOBODY, RELOAD);
        ask_as(f, SOMEBODY, RELOAD);
        stop_polkit(f, pid);

        pid = start_polkit(f, ALLOW_IF_INTERACTIVE);
        ask_as(f, NOBODY, RELOAD, REFUSED("somebody has to authenticate"));
        ask_as(f, NOBODY, RELOAD, .interactive = true);
        stop_polkit(f, pid);
        fixture_stop(f);
}

static void test_others_vms(void **state) {
        Reservation r;
        Fixture *f;
        pid_t pid;

        require_root();
        f = fixture_start(NULL, NULL);
        r = reserve(f, "db", MIB, 4096);
        wait_job(f, r.job);
        pid = start_polkit(f, ALLOW_VMS_ONLY);
        ask_as(f, NOBODY, RELOAD, REFUSED("polkit says no"));
        ask_as(f, NOBODY, .path = r.vm, .interface = "org.tdpd1.VM", .member = "GetMemory");
        ask_as(f, NOBODY, .path = r.vm, .interface = "org.tdpd1.VM", .member = "Release");
        assert_int_equal(count_vms(f), 0);
        stop_polkit(f, pid);
        fixture_stop(f);
}

/* What has gone meanwhile is not there any more, and whoever has gone gets nothing done. */
static void test_gone_meanwhile(void **state) {
        Reservation r;
        pid_t pid, user;
        Fixture *f;

        require_root();
        f = fixture_start(NULL, NULL);
        r = reserve(f, "db", MIB, 4096);
        wait_job(f, r.job);
        pid = start_polkit(f, ALLOW);
        kill(pid, SIGSTOP);
        user = user_start(f, NOBODY, 0, ask,
                          &(Ask){ .path = r.vm,
                                  .interface = "org.tdpd1.VM",
                                  .member = "Release",
                                  .error = SD_BUS_ERROR_UNKNOWN_OBJECT,
                                  .part = "db" });
        usleep(200000);
        release(f, r.vm); /* the loop goes on while polkit thinks */
        kill(pid, SIGCONT);
        assert_int_equal(user_wait(user), 0);

        r = reserve(f, "web", MIB, 4096);
        wait_job(f, r.job);
        kill(pid, SIGSTOP);
        user = user_start(f, NOBODY, 0, ask,
                          &(Ask){ .path = r.vm, .interface = "org.tdpd1.VM", .member = "Release" });
        usleep(200000);
        reap(user, SIGKILL);
        usleep(100000);
        kill(pid, SIGCONT);
        usleep(200000);
        assert_int_equal(count_vms(f), 1);
        stop_polkit(f, pid);
        fixture_stop(f);
}

static int on_reply(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const sd_bus_error *e = sd_bus_message_get_error(m);
        unsigned *n = userdata;

        if (e && strcmp(e->name, ERR("LimitExceeded")) == 0 && strstr(e->message, "MaxCalls="))
                n[0]++;
        else if (e && strcmp(e->name, ERR("NotPermitted")) == 0)
                n[1]++;
        return 0;
}

static int ask_often(sd_bus *bus, void *userdata) {
        unsigned n[2] = {};

        for (unsigned i = 0; i < 8; i++)
                if (sd_bus_call_method_async(bus, NULL, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "Reload",
                                             on_reply, n, NULL) < 0)
                        return 2;
        while (n[0] + n[1] < 8)
                if (sd_bus_process(bus, NULL) == 0)
                        (void) sd_bus_wait(bus, UINT64_MAX);
        fprintf(stderr, "%u over the limit, %u refused\n", n[0], n[1]);
        return n[0] == 5 && n[1] == 3 ? 0 : 1;
}

/* Calls that wait are memory. */
static void test_limit(void **state) {
        Fixture *f;
        pid_t pid;

        require_root();
        f = fixture_start("[Access]\nPolkitTimeoutSec=1\n[Limits]\nMaxCalls=3\n", NULL);
        pid = start_polkit(f, NEVER);
        assert_int_equal(user_run(f, NOBODY, 0, ask_often, NULL), 0);
        stop_polkit(f, pid);
        fixture_stop(f);
}

/* All that can be asked about is what config/org.tdpd1.policy has, and that has nothing else. */
static void test_actions(void **state) {
        static const struct {
                const char *action;
                Ask ask;
        } asks[] = {
                { "org.tdpd1.reload", { RELOAD } },
                { "org.tdpd1.calibrate",
                  { .path = MANAGER,
                    .interface = "org.tdpd1.Manager",
                    .member = "Calibrate",
                    .types = "a{sv}" } },
                { "org.tdpd1.manage-pools",
                  { .path = "/org/tdpd1/node/0",
                    .interface = "org.tdpd1.Node",
                    .member = "SetPool",
                    .types = "tta{sv}" } },
                { "org.tdpd1.manage-vms",
                  { .path = "/org/tdpd1/vm/db", .interface = "org.tdpd1.VM", .member = "Release" } },
                { "org.tdpd1.handoff",
                  { .path = "/org/tdpd1/vm/db",
                    .interface = "org.tdpd1.VM",
                    .member = "OfferHandoff",
                    .types = "a{sv}" } },
        };
        size_t n = 0;
        Reservation r;
        Fixture *f;
        pid_t pid;

        require_root();
        f = fixture_start(NULL, NULL);
        r = reserve(f, "db", MIB, 4096);
        wait_job(f, r.job);
        pid = start_polkit(f, DENY);
        for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++) {
                char why[128];
                Ask a = asks[i].ask;

                snprintf(why, sizeof(why), "whoever polkit allows %s; polkit says no", asks[i].action);
                a.error = ERR("NotPermitted");
                a.part = why;
                assert_int_equal(user_run(f, NOBODY, 0, ask, &a), 0);
        }
        stop_polkit(f, pid);
        release(f, r.vm);
        fixture_stop(f);

        for (const char *p = policy; (p = strstr(p, "<action id=")); p++)
                n++;
        assert_int_equal(n, sizeof(asks) / sizeof(asks[0]));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(case_72_errors_deny, fixture_teardown),
                cmocka_unit_test_teardown(case_72_subject_is_the_sender, fixture_teardown),
                cmocka_unit_test_teardown(test_others_vms, fixture_teardown),
                cmocka_unit_test_teardown(test_gone_meanwhile, fixture_teardown),
                cmocka_unit_test_teardown(test_limit, fixture_teardown),
                cmocka_unit_test_teardown(test_actions, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
