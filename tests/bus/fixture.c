/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "preload.h"
#include "store.h"

#define START_USEC UINT64_C(10000000)
#define JOB_USEC   UINT64_C(30000000)

static const char bus_config[] =
                "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\"\n"
                " \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n"
                "<busconfig><listen>unix:path=%s/bus</listen><auth>EXTERNAL</auth>\n"
                "<policy context='default'><allow user='*'/><allow own='*'/><allow send_destination='*' eavesdrop='true'/>\n"
                "<allow eavesdrop='true'/></policy></busconfig>\n";

uint64_t now_usec(void) {
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}

void require_root(void) {
        if (geteuid() == 0)
                return;
        print_message("needs root\n");
        skip();
}

/* Of the test that runs, for its teardown: a test that fails does not come to its end. */
static Fixture *current;

static void write_file(const char *dir, const char *name, const char *format, ...) {
        char path[128];
        va_list ap;
        FILE *f;

        snprintf(path, sizeof(path), "%s/%s", dir, name);
        f = fopen(path, "we");
        assert_non_null(f);
        va_start(ap, format);
        vfprintf(f, format, ap);
        va_end(ap);
        assert_int_equal(fclose(f), 0);
}

static pid_t spawn(char *const argv[], bool is_tdpd) {
        pid_t parent = getpid(), pid;

        store_before_fork();
        pid = fork();
        store_after_fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                if (is_tdpd)
                        store_in_child();
                if (is_tdpd && !machine_has_kvm())
                        preload_add("KVM_PRELOAD");
                /* A test that dies leaves no daemon behind. */
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() != parent)
                        _exit(1);
                execvp(argv[0], argv);
                fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
                _exit(127);
        }
        return pid;
}

sd_bus *fixture_connect(const char *address) {
        sd_bus *bus = NULL;

        if (sd_bus_new(&bus) < 0 || sd_bus_set_address(bus, address) < 0 ||
            sd_bus_set_bus_client(bus, true) < 0 || sd_bus_start(bus) < 0)
                return sd_bus_unref(bus);
        return bus;
}

static int on_job_removed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *job, *result, *name, *message;
        Fixture *f = userdata;
        uint32_t id;

        assert_true(sd_bus_message_read(m, "uosss", &id, &job, &result, &name, &message) > 0);
        assert_true(f->n_ends < sizeof(f->ends) / sizeof(f->ends[0]));
        snprintf(f->ends[f->n_ends].job, sizeof(f->ends[0].job), "%s", job);
        snprintf(f->ends[f->n_ends].result, sizeof(f->ends[0].result), "%s", result);
        snprintf(f->ends[f->n_ends].error, sizeof(f->ends[0].error), "%s", name);
        snprintf(f->ends[f->n_ends].message, sizeof(f->ends[0].message), "%s", message);
        f->n_ends++;
        return 0;
}

static int on_vm_added(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        ((Fixture *) userdata)->vms_added++;
        return 0;
}

static int on_vm_removed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        ((Fixture *) userdata)->vms_removed++;
        return 0;
}

static void wait_for_name(Fixture *f) {
        uint64_t until = now_usec() + START_USEC;

        for (;;) {
                if (sd_bus_get_name_creds(f->bus, "org.tdpd1", 0, NULL) >= 0)
                        return;
                if (waitpid(f->tdpd_pid, NULL, WNOHANG) == f->tdpd_pid) {
                        f->tdpd_pid = 0;
                        fail_msg("tdpd ended while it started");
                }
                assert_true(now_usec() < until);
                usleep(2000);
        }
}

/* Whoever runs the tests without being root must be a member of the group that may. */
static const char *own_group_config(void) {
        static char text[128];
        struct group *g;

        if (geteuid() == 0)
                return "";
        g = getgrgid(getegid());
        assert_non_null(g);
        snprintf(text, sizeof(text), "[Access]\nGroup=%s\n", g->gr_name);
        return text;
}

static void spawn_tdpd(Fixture *f) {
        char bus[128], config[128], data[128], state[128], *argv[7] = { getenv("TDPD"), bus, config, data };
        size_t n = 4;

        snprintf(bus, sizeof(bus), "--bus=%s", f->address);
        snprintf(config, sizeof(config), "--config=%s/tdpd.conf", f->dir);
        snprintf(data, sizeof(data), "--data-dir=%s/data", f->dir);
        snprintf(state, sizeof(state), "--state-dir=%s/state", f->dir);
        if (store_is_on())
                argv[n++] = state;
        if (f->arg[0] != '\0')
                argv[n++] = f->arg;
        f->tdpd_pid = spawn(argv, true);
}

bool fixture_try_restart(Fixture *f, int *ret_status) {
        uint64_t until = now_usec() + START_USEC;

        /* The bus may still think of the one before. */
        while (sd_bus_get_name_creds(f->bus, "org.tdpd1", 0, NULL) >= 0) {
                assert_true(now_usec() < until);
                usleep(1000);
        }
        spawn_tdpd(f);
        /* The loop answers, and so all before it is done. */
        while (sd_bus_call_method(f->bus, "org.tdpd1", MANAGER, "org.freedesktop.DBus.Peer", "Ping", NULL,
                                  NULL, NULL) < 0) {
                if (waitpid(f->tdpd_pid, ret_status, WNOHANG) == f->tdpd_pid) {
                        f->tdpd_pid = 0;
                        return false;
                }
                assert_true(now_usec() < until);
                usleep(1000);
        }
        return true;
}

void fixture_restart(Fixture *f) {
        int status;

        if (!fixture_try_restart(f, &status))
                fail_msg("tdpd ended while it started");
}

Fixture *fixture_start_kept(const char *config) {
        require_root();
        store_begin();
        return fixture_start(config, NULL);
}

void fixture_end_and_restart(Fixture *f, int sig) {
        fixture_kill_tdpd(f, sig);
        fixture_restart(f);
}

Fixture *fixture_start(const char *config, const char *arg) {
        char file[128];
        Fixture *f;

        if (!getenv("TDPD"))
                fail_msg("TDPD is not set: run this with meson test");

        f = current = calloc(1, sizeof(*f));
        assert_non_null(f);
        snprintf(f->dir, sizeof(f->dir), "/tmp/tdpd-test-XXXXXX");
        assert_non_null(mkdtemp(f->dir));
        assert_int_equal(chmod(f->dir, 0755), 0); /* other users connect as well */
        snprintf(f->address, sizeof(f->address), "unix:path=%s/bus", f->dir);
        write_file(f->dir, "bus.conf", bus_config, f->dir);
        write_file(f->dir, "tdpd.conf", "%s%s", config ? config : "", own_group_config());

        snprintf(file, sizeof(file), "--config-file=%s/bus.conf", f->dir);
        f->bus_pid = spawn((char *[]){ (char *) "dbus-daemon", file, (char *) "--nofork", NULL }, false);
        for (uint64_t until = now_usec() + START_USEC; !(f->bus = fixture_connect(f->address));) {
                assert_true(now_usec() < until);
                usleep(10000);
        }

        snprintf(f->arg, sizeof(f->arg), "%s", arg ?: "");
        spawn_tdpd(f);

        assert_true(sd_bus_match_signal(f->bus, NULL, NULL, MANAGER, "org.tdpd1.Manager", "JobRemoved",
                                        on_job_removed, f) >= 0);
        assert_true(sd_bus_match_signal(f->bus, NULL, NULL, MANAGER, "org.tdpd1.Manager", "VMAdded",
                                        on_vm_added, f) >= 0);
        assert_true(sd_bus_match_signal(f->bus, NULL, NULL, MANAGER, "org.tdpd1.Manager", "VMRemoved",
                                        on_vm_removed, f) >= 0);
        wait_for_name(f);
        return f;
}

void fixture_kill_tdpd(Fixture *f, int sig) {
        reap(f->tdpd_pid, sig);
        f->tdpd_pid = 0;
}

void remove_dir(const char *dir) {
        struct dirent *de;
        char path[400];
        DIR *d;

        d = opendir(dir);
        while (d && (de = readdir(d))) {
                snprintf(path, sizeof(path), "%s/%s", dir, de->d_name);
                if (unlink(path) < 0)
                        (void) rmdir(path);
        }
        if (d)
                closedir(d);
        (void) rmdir(dir);
}

static void fixture_remove_state(Fixture *f) {
        char state[96];

        snprintf(state, sizeof(state), "%s/state", f->dir);
        (void) umount2(state, MNT_DETACH);
        remove_dir(state);
}

static void fixture_free(Fixture *f) {
        static const char *const files[] = { "bus", "bus.conf", "tdpd.conf", "data/calibration" };
        char path[128];

        current = NULL;
        sd_bus_flush_close_unref(f->bus);
        reap(f->bus_pid, SIGTERM);
        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
                snprintf(path, sizeof(path), "%s/%s", f->dir, files[i]);
                unlink(path);
        }
        fixture_remove_state(f);
        snprintf(path, sizeof(path), "%s/data/handoff", f->dir);
        (void) umount2(path, MNT_DETACH);
        remove_dir(path);
        snprintf(path, sizeof(path), "%s/data", f->dir);
        rmdir(path);
        rmdir(f->dir);
        free(f);
}

void fixture_stop(Fixture *f) {
        int status = 0;

        if (f->tdpd_pid > 0) {
                kill(f->tdpd_pid, SIGTERM);
                while (waitpid(f->tdpd_pid, &status, 0) < 0 && errno == EINTR)
                        ;
        }
        fixture_free(f);
        /* A sanitizer's finding at the end is a failure too. */
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
}

int fixture_teardown(void **state) {
        if (current) {
                fixture_kill_tdpd(current, SIGKILL);
                fixture_free(current);
        }
        store_end();
        machine_restore();
        return 0;
}

sd_bus_message *call(sd_bus *bus, sd_bus_error *error, const char *path, const char *interface,
                     const char *member, const char *types, ...) {
        sd_bus_message *m = NULL, *reply = NULL;
        va_list ap;
        int r;

        assert_true(sd_bus_message_new_method_call(bus, &m, "org.tdpd1", path, interface, member) >= 0);
        va_start(ap, types);
        r = types ? sd_bus_message_appendv(m, types, ap) : 0;
        va_end(ap);
        assert_true(r >= 0);
        r = sd_bus_call(bus, m, 0, error, &reply);
        sd_bus_message_unref(m);
        return r < 0 ? NULL : reply;
}

void assert_error_is(sd_bus_error *e, const char *name, const char *part) {
        assert_true(sd_bus_error_is_set(e));
        if (strcmp(e->name, name) != 0 || !strstr(e->message, part))
                fail_msg("expected %s with \"%s\", got %s: %s", name, part, e->name, e->message);
        sd_bus_error_free(e);
}

Reservation reserve(Fixture *f, const char *name, uint64_t bytes, uint64_t page_size) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *vm, *job;
        sd_bus_message *m;
        Reservation r;

        m = manager_call(f, &error, "Reserve", "sta{sv}", name, bytes, 2, "page-size", "t", page_size,
                         "nodes", "s", "0");
        if (!m)
                fail_msg("Reserve: %s: %s", error.name, error.message);
        assert_true(sd_bus_message_read(m, "oo", &vm, &job) > 0);
        snprintf(r.vm, sizeof(r.vm), "%s", vm);
        snprintf(r.job, sizeof(r.job), "%s", job);
        sd_bus_message_unref(m);
        return r;
}

void release(Fixture *f, const char *vm) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = manager_call(f, &error, "Release", "o", vm);

        if (!m)
                fail_msg("Release: %s: %s", error.name, error.message);
        sd_bus_message_unref(m);
}

int get_memory(Fixture *f, const char *vm, uint64_t expected) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = call(f->bus, &error, vm, "org.tdpd1.VM", "GetMemory", NULL);
        const char *name;
        struct stat st;
        uint64_t bytes;
        uint32_t node;
        int fd;

        if (!m)
                fail_msg("GetMemory of %s: %s", vm, error.message);
        assert_true(sd_bus_message_read(m, "a(stuh)", 1, &name, &bytes, &node, &fd) > 0);
        assert_string_equal(name, "node0");
        assert_int_equal(node, 0);
        fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        assert_true(fd >= 0);
        sd_bus_message_unref(m);
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_size, bytes);
        assert_int_equal((uint64_t) st.st_blocks * 512, bytes);
        assert_int_equal(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        if (expected > 0)
                assert_int_equal(bytes, expected);
        return fd;
}

const JobEnd *wait_job(Fixture *f, const char *job) {
        uint64_t until = now_usec() + JOB_USEC;

        for (;;) {
                for (size_t i = 0; i < f->n_ends; i++)
                        if (strcmp(f->ends[i].job, job) == 0)
                                return &f->ends[i];
                if (now_usec() > until)
                        fail_msg("job %s does not end", job);
                if (sd_bus_process(f->bus, NULL) == 0)
                        assert_true(sd_bus_wait(f->bus, 100000) >= 0);
        }
}

char *vm_state(Fixture *f, const char *vm) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        char *state = NULL;

        if (sd_bus_get_property_string(f->bus, "org.tdpd1", vm, "org.tdpd1.VM", "State", &error, &state) < 0)
                fail_msg("State of %s: %s", vm, error.message);
        return state;
}

size_t count_vms(Fixture *f) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = manager_call(f, &error, "ListVMs", NULL);
        const char *name, *state, *path;
        uint64_t bytes;
        size_t n = 0;
        uint32_t pid;

        assert_non_null(m);
        assert_true(sd_bus_message_enter_container(m, 'a', "(ssout)") > 0);
        while (sd_bus_message_read(m, "(ssout)", &name, &state, &path, &pid, &bytes) > 0)
                n++;
        sd_bus_message_unref(m);
        return n;
}

void wait_vms(Fixture *f, size_t n) {
        uint64_t until = now_usec() + JOB_USEC;

        while (count_vms(f) != n) {
                assert_true(now_usec() < until);
                usleep(1000);
        }
}

void read_available(Fixture *f, const char *node, uint64_t size, uint64_t *ret, uint64_t *ret_for_others) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = NULL;
        uint64_t s, n, others;

        *ret = *ret_for_others = UINT64_MAX;
        if (sd_bus_get_property(f->bus, "org.tdpd1", node, "org.tdpd1.Node", "Available", &error, &m,
                                "a(ttt)") < 0)
                fail_msg("Available: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(ttt)") > 0);
        while (sd_bus_message_read(m, "(ttt)", &s, &n, &others) > 0)
                if (s == size) {
                        *ret = n;
                        *ret_for_others = others;
                }
        sd_bus_message_unref(m);
}
