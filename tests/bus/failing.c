/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "failing.h"
#include "preload.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static FailControl *control;

static void make_control(void) {
        int fd = memfd_create("fail", MFD_CLOEXEC);
        char path[64];

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, sizeof(FailControl)), 0);
        control = mmap(NULL, sizeof(FailControl), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(control != MAP_FAILED);
        snprintf(path, sizeof(path), "/proc/%i/fd/%i", (int) getpid(), fd);
        assert_int_equal(setenv(FAIL_ENV, path, 1), 0);
}

/* For what is started from here on. */
static void preload(void) {
        preload_add("FAIL_PRELOAD");
        control->loaded = false;
}

Fixture *failing_start(const char *config, const char *arg) {
        Fixture *f;

        make_control();
        preload();
        f = fixture_start(config, arg);
        preload_none();
        assert_true(control->loaded);
        return f;
}

bool failing_restart(Fixture *f, int *ret_status) {
        bool serves;

        assert_non_null(control);
        preload();
        serves = fixture_try_restart(f, ret_status);
        preload_none();
        assert_true(control->loaded);
        return serves;
}

void failing_arm(const char *call_name, int error, unsigned n, bool libraries) {
        if (!control)
                make_control();
        snprintf(control->call, sizeof(control->call), "%s", call_name);
        control->error = error;
        control->libraries = libraries;
        control->countdown = n;
        control->fired = false;
        control->armed = true;
}

bool failing_disarm(void) {
        control->armed = false;
        return control->fired;
}

static unsigned count_fds(Fixture *f) {
        char path[64];
        unsigned n = 0;
        DIR *d;

        snprintf(path, sizeof(path), "/proc/%i/fd", (int) f->tdpd_pid);
        d = opendir(path);
        assert_non_null(d);
        while (readdir(d))
                n++;
        closedir(d);
        return n;
}

/* The least of some looks: tdpd opens files of sysfs now and then, for a moment. */
unsigned failing_count_fds(Fixture *f) {
        unsigned least = count_fds(f);

        for (unsigned i = 0; i < 20; i++) {
                unsigned n = count_fds(f);

                least = n < least ? n : least;
                usleep(1000);
        }
        return least;
}

void failing_assert_fds(Fixture *f, unsigned expected, const char *what) {
        uint64_t until = now_usec() + 2000000;
        unsigned n;

        while ((n = count_fds(f)) != expected && now_usec() < until)
                usleep(1000);
        if (n != expected)
                fail_msg("%s: tdpd has %u descriptors open instead of %u", what, n, expected);
}

bool failing_has_ended(Fixture *f, const char *what) {
        uint64_t until = now_usec() + 5000000;
        int status;

        /* Whoever has left the bus is about to end. */
        while (waitpid(f->tdpd_pid, &status, WNOHANG) != f->tdpd_pid) {
                if (sd_bus_get_name_creds(f->bus, "org.tdpd1", 0, NULL) >= 0)
                        return false;
                if (now_usec() > until)
                        fail_msg("%s: tdpd has left the bus and does not end", what);
                usleep(1000);
        }
        f->tdpd_pid = 0;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_FAILURE)
                fail_msg("%s: tdpd ended with wait status 0x%x", what, (unsigned) status);
        return true;
}
