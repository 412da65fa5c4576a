/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who may do what. Other users are played by child processes. */
#include "users.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a user tries, and what must come of it: an error's name, or NULL. */
typedef struct Try {
        const char *path, *interface, *member;
        const char *name;   /* for Reserve and AttachPid */
        uint32_t pid;       /* for AttachPid */
        const char *object; /* for Release */
        const char *cgroup; /* for Reserve, or NULL */
        const char *error;
} Try;

static int run_try(sd_bus *bus, void *userdata) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const Try *t = userdata;
        sd_bus_message *m;

        if (t->cgroup)
                m = call(bus, &error, t->path, t->interface, t->member, "sta{sv}", t->name, MIB, 2,
                         "page-size", "t", UINT64_C(4096), "cgroup", "s", t->cgroup);
        else if (strcmp(t->member, "Reserve") == 0)
                m = call(bus, &error, t->path, t->interface, t->member, "sta{sv}", t->name, MIB, 1,
                         "page-size", "t", UINT64_C(4096));
        else if (strcmp(t->member, "AttachPid") == 0)
                m = call(bus, &error, t->path, t->interface, t->member, "sua{sv}", t->name, t->pid, 1,
                         "decision", "s", "never");
        else if (t->object)
                m = call(bus, &error, t->path, t->interface, t->member, "o", t->object);
        else
                m = call(bus, &error, t->path, t->interface, t->member, NULL);

        if (m && !t->error)
                return 0;
        if (!m && t->error && strcmp(error.name, t->error) == 0)
                return 0;
        fprintf(stderr, "%s: expected %s, got %s: %s\n", t->member, t->error ? t->error : "success",
                m ? "success" : error.name, m ? "" : error.message);
        return 1;
}

static void try_as(Fixture *f, uid_t uid, gid_t group, Try t) {
        assert_int_equal(user_run(f, uid, group, run_try, &t), 0);
}

#define MANAGER_TRY   .path = MANAGER, .interface = "org.tdpd1.Manager"
#define NOT_PERMITTED ERR("NotPermitted")

static void test_strangers(void **state) {
        Reservation r;
        Fixture *f;
        pid_t vmm;

        require_root();
        f = fixture_start("[Access]\nGroup=games\n", NULL);
        vmm = spawn_vmm(1, 0);
        r = reserve(f, "db", MIB, 4096);
        wait_job(f, r.job);

        /* Reading is for all. */
        try_as(f, NOBODY, 0, (Try){ MANAGER_TRY, .member = "ListVMs" });
        try_as(f, NOBODY, 0, (Try){ MANAGER_TRY, .member = "ListNodes" });
        try_as(f, NOBODY, 0, (Try){ MANAGER_TRY, .member = "ListJobs" });
        /* Anything else is not, and a memfd least of all. */
        try_as(f, NOBODY, 0, (Try){ MANAGER_TRY, .member = "Reserve", .name = "x", .error = NOT_PERMITTED });
        try_as(f, NOBODY, 0,
               (Try){ MANAGER_TRY, .member = "AttachPid", .name = "x", .pid = (uint32_t) vmm,
                      .error = NOT_PERMITTED });
        try_as(f, NOBODY, 0,
               (Try){ MANAGER_TRY, .member = "Release", .object = r.vm, .error = NOT_PERMITTED });
        try_as(f, NOBODY, 0,
               (Try){ .path = r.vm,
                      .interface = "org.tdpd1.VM",
                      .member = "Release",
                      .error = NOT_PERMITTED });
        try_as(f, NOBODY, 0,
               (Try){ .path = r.vm,
                      .interface = "org.tdpd1.VM",
                      .member = "GetMemory",
                      .error = NOT_PERMITTED });
        assert_int_equal(count_vms(f), 1);

        reap(vmm, SIGKILL);
        fixture_stop(f);
}

static void test_members(void **state) {
        gid_t group = test_group();
        Reservation r;
        Fixture *f;
        pid_t roots, own;

        require_root();
        f = fixture_start("[Access]\nGroup=games\n", NULL);
        roots = spawn_vmm(1, 0);
        own = spawn_vmm(1, NOBODY);
        r = reserve(f, "roots", MIB, 4096);
        wait_job(f, r.job);

        try_as(f, NOBODY, group, (Try){ MANAGER_TRY, .member = "Reserve", .name = "mine" });
        wait_job(f, "/org/tdpd1/job/2");
        try_as(f, NOBODY, group,
               (Try){ .path = "/org/tdpd1/vm/mine", .interface = "org.tdpd1.VM", .member = "GetMemory" });

        /* What is root's, or another member's, stays so. */
        try_as(f, NOBODY, group,
               (Try){ MANAGER_TRY, .member = "Release", .object = r.vm, .error = NOT_PERMITTED });
        try_as(f, NOBODY, group,
               (Try){ .path = r.vm,
                      .interface = "org.tdpd1.VM",
                      .member = "GetMemory",
                      .error = NOT_PERMITTED });
        try_as(f, SOMEBODY, group,
               (Try){ MANAGER_TRY, .member = "Release", .object = "/org/tdpd1/vm/mine",
                      .error = NOT_PERMITTED });
        try_as(f, SOMEBODY, group,
               (Try){ .path = "/org/tdpd1/vm/mine",
                      .interface = "org.tdpd1.VM",
                      .member = "GetMemory",
                      .error = NOT_PERMITTED });
        try_as(f, NOBODY, group,
               (Try){ MANAGER_TRY, .member = "AttachPid", .name = "x", .pid = (uint32_t) roots,
                      .error = NOT_PERMITTED });
        try_as(f, SOMEBODY, group,
               (Try){ MANAGER_TRY, .member = "AttachPid", .name = "x", .pid = (uint32_t) own,
                      .error = NOT_PERMITTED });
        /* Under the name of another user's VM it would join that VM. */
        try_as(f, NOBODY, group,
               (Try){ MANAGER_TRY, .member = "AttachPid", .name = "roots", .pid = (uint32_t) own,
                      .error = NOT_PERMITTED });

        try_as(f, NOBODY, group,
               (Try){ MANAGER_TRY, .member = "AttachPid", .name = "mine", .pid = (uint32_t) own });
        try_as(f, NOBODY, group, (Try){ MANAGER_TRY, .member = "Release", .object = "/org/tdpd1/vm/mine" });
        assert_int_equal(count_vms(f), 1);

        reap(roots, SIGKILL);
        reap(own, SIGKILL);
        fixture_stop(f);
}

static bool join_cgroup(const char *root, const char *cgroup) {
        char path[128];
        FILE *f;

        snprintf(path, sizeof(path), "%s%s/cgroup.procs", root, cgroup);
        f = fopen(path, "we");
        return f && fprintf(f, "%i\n", (int) getpid()) > 0 && fclose(f) == 0;
}

/* Limits of a cgroup are nothing if one may name another one. */
static void test_case_16_cgroup_of_others(void **state) {
        static const char *const roots[] = { "/sys/fs/cgroup/unified", "/sys/fs/cgroup" };
        gid_t group = test_group();
        char own[64], delegated[64];
        const char *root = NULL;
        Fixture *f;

        require_root();
        for (size_t i = 0; i < 2 && !root; i++) {
                snprintf(own, sizeof(own), "%s/tdpd-test-own", roots[i]);
                snprintf(delegated, sizeof(delegated), "%s/tdpd-test-delegated", roots[i]);
                if (mkdir(own, 0755) == 0 || errno == EEXIST)
                        root = access(own, F_OK) == 0 && join_cgroup(roots[i], "/tdpd-test-own") ? roots[i]
                                                                                                 : NULL;
        }
        if (!root) {
                print_message("no unified tree of cgroups that can be written to\n");
                skip();
        }
        assert_true(mkdir(delegated, 0755) == 0 || errno == EEXIST);
        assert_int_equal(chown(delegated, NOBODY, -1), 0);

        f = fixture_start("[Access]\nGroup=games\n", NULL);
        try_as(f, NOBODY, group,
               (Try){ MANAGER_TRY, .member = "Reserve", .name = "x", .cgroup = "/",
                      .error = NOT_PERMITTED });
        try_as(f, NOBODY, group,
               (Try){ MANAGER_TRY, .member = "Reserve", .name = "x", .cgroup = "/tdpd-test-owner/x",
                      .error = NOT_PERMITTED });
        try_as(f, SOMEBODY, group,
               (Try){ MANAGER_TRY, .member = "Reserve", .name = "x", .cgroup = "/tdpd-test-delegated/x",
                      .error = NOT_PERMITTED });
        assert_int_equal(count_vms(f), 0);
        try_as(f, NOBODY, group,
               (Try){ MANAGER_TRY, .member = "Reserve", .name = "a", .cgroup = "/tdpd-test-own" });
        try_as(f, NOBODY, group,
               (Try){ MANAGER_TRY, .member = "Reserve", .name = "b",
                      .cgroup = "/tdpd-test-own/later.scope" });
        try_as(f, NOBODY, group,
               (Try){ MANAGER_TRY, .member = "Reserve", .name = "c",
                      .cgroup = "/tdpd-test-delegated/later" });
        try_as(f, 0, 0, (Try){ MANAGER_TRY, .member = "Reserve", .name = "d", .cgroup = "/" });
        assert_int_equal(count_vms(f), 4);
        fixture_stop(f);

        assert_true(join_cgroup(root, ""));
        assert_int_equal(rmdir(own), 0);
        assert_int_equal(rmdir(delegated), 0);
}

/* A group that is not there opens nothing. */
static void test_no_group(void **state) {
        Fixture *f;

        require_root();
        f = fixture_start("[Access]\nGroup=no-such-group\n", NULL);
        try_as(f, NOBODY, test_group(),
               (Try){ MANAGER_TRY, .member = "Reserve", .name = "x", .error = NOT_PERMITTED });
        /* Not even with gid 0, which a failed lookup could be taken for. */
        try_as(f, NOBODY, 0, (Try){ MANAGER_TRY, .member = "Reserve", .name = "x", .error = NOT_PERMITTED });
        fixture_stop(f);
}

/* Calls of a user that are refused, and how often that is in the log of tdpd, which is our stderr. */
static void test_denied_is_logged(void **state) {
        char path[] = "/tmp/tdpd-test-log-XXXXXX", line[1024];
        int fd, saved = dup(STDERR_FILENO);
        unsigned n = 0, process = 0;
        Fixture *f;
        FILE *log;

        require_root();
        fd = mkstemp(path);
        assert_true(fd >= 0 && saved >= 0);
        (void) unlink(path);
        assert_true(dup2(fd, STDERR_FILENO) >= 0);
        f = fixture_start("[Access]\nGroup=games\n", NULL);
        for (unsigned i = 0; i < 25; i++)
                try_as(f, NOBODY, 0, (Try){ MANAGER_TRY, .member = "Reload", .error = NOT_PERMITTED });
        try_as(f, 0, 0, (Try){ MANAGER_TRY, .member = "Reload" });
        fixture_stop(f);
        assert_true(dup2(saved, STDERR_FILENO) >= 0);
        close(saved);

        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        log = fdopen(fd, "r");
        assert_non_null(log);
        while (fgets(line, sizeof(line), log)) {
                fputs(line, stderr);
                if (!strstr(line, "called Reload of /org/tdpd1 and may not: user 65534 may not do this"))
                        continue;
                n++;
                process += strstr(line, "User 65534 (process ") && strstr(line, ", :1.");
        }
        fclose(log);
        /* Whoever asks all the time does not fill it. */
        assert_int_equal(n, 20);
        assert_int_equal(process, n);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_strangers, fixture_teardown),
                cmocka_unit_test_teardown(test_members, fixture_teardown),
                cmocka_unit_test_teardown(test_case_16_cgroup_of_others, fixture_teardown),
                cmocka_unit_test_teardown(test_no_group, fixture_teardown),
                cmocka_unit_test_teardown(test_denied_is_logged, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
