/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tdpd is killed again and again, at random moments, while clients make, build and release VMs: what was
 * answered is true for the next tdpd, what was not answered is true or not, and nothing is left over.
 * Some of their memory is held on to by somebody else, and drains once they are released.
 * TDPD_TEST_KILLS and TDPD_TEST_SEED say how often, and which moments.
 */
#include "standin.h"
#include "store.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_VMS      32U
#define N_ATTACHED 4U /* the last ones, which bring their memory */

typedef enum Fate {
        GONE,
        THERE,
        UNKNOWN, /* the daemon died before it answered */
} Fate;

typedef struct ModelVM {
        char name[16];
        Fate fate;
        uint64_t bytes, page_size;
        ino_t inode; /* of its memory, once seen */
        int held;    /* memory that it has, or had, and that we hold on to; or -1 */
        ino_t held_inode;
        pid_t pid; /* of those that are attached to */
        bool busy; /* a call is on its way */
        Fate then; /* if that works */
} ModelVM;

static ModelVM vms[N_VMS];
static unsigned n_calls, n_answered;

static unsigned env(const char *name, unsigned otherwise) {
        const char *s = getenv(name);

        return s ? (unsigned) atoi(s) : otherwise;
}

static int on_answer(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const sd_bus_error *e = sd_bus_message_get_error(m);
        ModelVM *vm = userdata;

        vm->busy = false;
        n_calls--;
        if (!e) {
                vm->fate = vm->then;
                n_answered++;
        } else if (strcmp(e->name, SD_BUS_ERROR_NO_REPLY) == 0 ||
                   strcmp(e->name, SD_BUS_ERROR_SERVICE_UNKNOWN) == 0 ||
                   strcmp(e->name, SD_BUS_ERROR_NAME_HAS_NO_OWNER) == 0)
                vm->fate = UNKNOWN;
        else if (strcmp(e->name, ERR("NoSuchVM")) != 0 && strcmp(e->name, ERR("Busy")) != 0)
                fail_msg("%s: %s: %s", vm->name, e->name, e->message);
        return 0;
}

static void send_call(Fixture *f, ModelVM *vm, Fate then, const char *member, const char *types, ...) {
        sd_bus_message *m = NULL;
        va_list ap;

        assert_true(sd_bus_message_new_method_call(f->bus, &m, "org.tdpd1", MANAGER, "org.tdpd1.Manager",
                                                   member) >= 0);
        va_start(ap, types);
        assert_true(sd_bus_message_appendv(m, types, ap) >= 0);
        va_end(ap);
        assert_true(sd_bus_call_async(f->bus, NULL, m, on_answer, vm, 0) >= 0);
        sd_bus_message_unref(m);
        vm->busy = true;
        vm->then = then;
        n_calls++;
}

static void act(Fixture *f, ModelVM *vm) {
        char path[64];

        if (vm->busy)
                return;
        snprintf(path, sizeof(path), "/org/tdpd1/vm/%s", vm->name);
        if (vm->fate == THERE) {
                if (random() % 2)
                        send_call(f, vm, GONE, "Release", "o", path);
                return;
        }
        vm->inode = 0;
        if (vm->pid > 0)
                send_call(f, vm, THERE, "AttachPid", "sua{sv}", vm->name, (uint32_t) vm->pid, 1, "decision",
                          "s", "always");
        else
                send_call(f, vm, THERE, "Reserve", "sta{sv}", vm->name, vm->bytes, 2, "page-size", "t",
                          vm->page_size, "nodes", "s", "0");
}

static void process(Fixture *f, unsigned usec) {
        uint64_t until = now_usec() + usec;

        do {
                while (sd_bus_process(f->bus, NULL) > 0)
                        ;
                if (usec > 0 && now_usec() < until)
                        (void) sd_bus_wait(f->bus, until - now_usec());
        } while (now_usec() < until);
        f->n_ends = 0; /* nobody asks for them */
}

/* It ends only when it is killed. */
static void assert_alive(Fixture *f) {
        siginfo_t si = {};

        assert_int_equal(waitid(P_PID, (id_t) f->tdpd_pid, &si, WEXITED | WNOHANG | WNOWAIT), 0);
        if (si.si_pid != 0)
                fail_msg("tdpd has ended by itself: code %i, status %i", si.si_code, si.si_status);
}

static bool has_jobs(Fixture *f) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = manager_call(f, &error, "ListJobs", NULL);
        bool any;

        if (!m)
                fail_msg("ListJobs: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(uosso)") > 0);
        any = sd_bus_message_at_end(m, false) == 0;
        sd_bus_message_unref(m);
        return any;
}

/* Holds on to some of what it sees. */
static ino_t memory_inode(Fixture *f, const char *path, ModelVM *vm) {
        int fd = get_memory(f, path, vm->bytes);
        struct stat st;

        assert_int_equal(fstat(fd, &st), 0);
        if (vm->held < 0 && random() % 4 == 0) {
                vm->held = fd;
                vm->held_inode = st.st_ino;
        } else
                close(fd);
        return st.st_ino;
}

static bool drains(const ModelVM *vm) {
        return vm->held >= 0 && (vm->fate == GONE || vm->inode != vm->held_inode);
}

static void let_go(ModelVM *vm) {
        if (vm->held >= 0)
                close(vm->held);
        vm->held = -1;
}

/* Whether tdpd has listed so, and nothing else. */
static bool draining_is_listed(Fixture *f, bool say) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m;
        bool seen[N_VMS] = {}, same = true;
        const char *name;
        uint64_t bytes;

        if (sd_bus_get_property(f->bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "Draining", &error, &m,
                                "a(stau)") < 0)
                fail_msg("Draining: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(stau)") > 0);
        while (sd_bus_message_enter_container(m, 'r', "stau") > 0) {
                unsigned i;

                assert_true(sd_bus_message_read(m, "st", &name, &bytes) > 0);
                assert_true(sd_bus_message_skip(m, "au") > 0);
                assert_true(sd_bus_message_exit_container(m) > 0);
                i = (unsigned) atoi(name + 2);
                assert_true(i < N_VMS);
                if (say)
                        print_message("listed: %s, %llu bytes\n", name, (unsigned long long) bytes);
                same = same && drains(&vms[i]) && !seen[i] && bytes == vms[i].bytes;
                seen[i] = true;
        }
        sd_bus_message_unref(m);
        for (unsigned i = 0; i < N_VMS; i++) {
                if (say && drains(&vms[i]))
                        print_message("held: %s, %llu bytes\n", vms[i].name,
                                      (unsigned long long) vms[i].bytes);
                same = same && seen[i] == drains(&vms[i]);
        }
        return same;
}

/* What is gone may be listed a moment longer. */
static void wait_draining(Fixture *f) {
        for (uint64_t until = now_usec() + 20000000; !draining_is_listed(f, false); usleep(2000))
                if (now_usec() > until) {
                        (void) draining_is_listed(f, true);
                        fail_msg("tdpd lists other memory than what drains");
                }
}

static size_t count_records(Fixture *f, const char *folder, const char *suffix) {
        char path[96];
        struct dirent *de;
        size_t n = 0;
        DIR *d;

        snprintf(path, sizeof(path), "%s/%s", f->dir, folder);
        d = opendir(path);
        /* That of what drains is made when something does. */
        while (d && (de = readdir(d))) {
                /* All that is there, and nothing that has not been committed. */
                if (de->d_name[0] == '.' || strcmp(de->d_name, "draining") == 0)
                        continue;
                assert_non_null(strstr(de->d_name, suffix));
                n++;
        }
        if (d)
                closedir(d);
        return n;
}

/* The daemon's list against the model, and what both should cost against what is there. */
static void check(Fixture *f, uint64_t free_before) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *name, *state, *path;
        bool seen[N_VMS] = {};
        uint64_t bytes, pages = 0;
        sd_bus_message *m;
        uint32_t pid;
        size_t n = 0, n_draining = 0;

        for (uint64_t until = now_usec() + 20000000; has_jobs(f); usleep(2000))
                assert_true(now_usec() < until);
        m = manager_call(f, &error, "ListVMs", NULL);
        if (!m)
                fail_msg("ListVMs: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(ssout)") > 0);
        while (sd_bus_message_read(m, "(ssout)", &name, &state, &path, &pid, &bytes) > 0) {
                unsigned i = (unsigned) atoi(name + 2);
                ModelVM *vm = &vms[i];

                assert_true(i < N_VMS);
                assert_string_equal(vm->name, name);
                if (vm->fate == GONE)
                        fail_msg("%s is there (%s), and was released", name, state);
                vm->fate = THERE;
                seen[i] = true;
                n++;
                assert_int_equal(pid, vm->pid);
                if (vm->pid > 0) {
                        /* An attach that was not answered may have got to any point. */
                        assert_true(strcmp(state, "built") == 0 || strcmp(state, "attached") == 0 ||
                                    strcmp(state, "healing") == 0);
                        continue;
                }
                assert_string_equal(state, "populated");
                assert_int_equal(bytes, vm->bytes);
                if (vm->page_size == HUGE_2M)
                        pages += bytes / HUGE_2M;
                if (vm->inode == 0)
                        vm->inode = memory_inode(f, path, vm);
                else
                        assert_int_equal(memory_inode(f, path, vm), vm->inode);
        }
        sd_bus_message_unref(m);
        for (unsigned i = 0; i < N_VMS; i++) {
                if (vms[i].fate == THERE && !seen[i])
                        fail_msg("%s is lost", vms[i].name);
                if (!seen[i])
                        vms[i].fate = GONE;
                n_draining += drains(&vms[i]);
                if (drains(&vms[i]) && vms[i].page_size == HUGE_2M)
                        pages += vms[i].bytes / HUGE_2M;
        }
        wait_draining(f);
        assert_int_equal(store_count(), n);
        assert_int_equal(count_records(f, "state", ".vm"), n);
        assert_int_equal(count_records(f, "state/draining", ".drain"), n_draining);
        assert_pool_free(free_before - pages);
        if (sd_bus_get_property(f->bus, "org.tdpd1", MANAGER, "org.tdpd1.Manager", "Quarantine", &error, &m,
                                "a(sss)") < 0)
                fail_msg("Quarantine: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(sss)") > 0);
        assert_true(sd_bus_message_at_end(m, false) > 0);
        sd_bus_message_unref(m);
}

static Fixture *start(uint64_t *ret_free) {
        Fixture *f;

        srandom(env("TDPD_TEST_SEED", 1));
        memset(vms, 0, sizeof(vms));
        n_calls = n_answered = 0;
        require_root();
        (void) pool_grow(128);
        *ret_free = pool_read("free_hugepages");
        for (unsigned i = 0; i < N_VMS; i++) {
                snprintf(vms[i].name, sizeof(vms[i].name), "vm%u", i);
                vms[i].page_size = i % 2 ? HUGE_2M : 4096;
                vms[i].bytes = (1 + i % 4) * HUGE_2M + (i % 2 ? 0 : 4096 * i);
                vms[i].held = -1;
                if (i >= N_VMS - N_ATTACHED)
                        vms[i].pid = spawn_vmm(1, 0);
        }
        f = standin_start_kept("[Workers]\nThreads=2\n[Limits]\nMaxJobs=1000\nMaxVMs=1000\nMaxFDs=1000\n");
        return f;
}

static void finish(Fixture *f, uint64_t free_before) {
        for (unsigned i = 0; i < N_VMS; i++)
                if (vms[i].fate == THERE) {
                        char path[64];

                        snprintf(path, sizeof(path), "/org/tdpd1/vm/%.15s", vms[i].name);
                        release(f, path);
                }
        for (unsigned i = 0; i < N_VMS; i++) {
                vms[i].fate = GONE;
                let_go(&vms[i]);
        }
        assert_int_equal(count_vms(f), 0);
        wait_draining(f);
        assert_int_equal(store_count(), 0);
        assert_int_equal(count_records(f, "state", ".vm"), 0);
        assert_int_equal(count_records(f, "state/draining", ".drain"), 0);
        assert_pool_free(free_before);
        fixture_stop(f);
}

static void test_kills_under_load(void **state) {
        unsigned kills = env("TDPD_TEST_KILLS", 40);
        uint64_t free_before;
        Fixture *f = start(&free_before);

        for (unsigned i = 0; i < N_VMS; i++)
                act(f, &vms[i]);
        while (n_calls > 0)
                process(f, 1000);
        check(f, free_before);
        for (unsigned k = 0; k < kills; k++) {
                for (unsigned i = 0; i < N_VMS; i++)
                        if (random() % 3 > 0)
                                act(f, &vms[i]);
                process(f, (unsigned) random() % 60000);
                for (unsigned i = 0; i < N_VMS; i++)
                        if (random() % 8 == 0)
                                let_go(&vms[i]);
                if (random() % 2)
                        process(f, (unsigned) random() % 5000);
                assert_alive(f);
                fixture_kill_tdpd(f, SIGKILL);
                for (uint64_t until = now_usec() + 10000000; n_calls > 0; process(f, 500))
                        assert_true(now_usec() < until);
                fixture_restart(f);
                /* Sometimes also while it takes over. */
                if (random() % 4 == 0) {
                        fixture_kill_tdpd(f, SIGKILL);
                        fixture_restart(f);
                }
                check(f, free_before);
        }
        print_message("%u kills, %u calls answered\n", kills, n_answered);
        assert_true(n_answered > kills);
        finish(f, free_before);
}

/* One operation at a time, each waited for, and restarts between them: the list is the same after each. */
static void case_32_random_operations_and_restarts(void **state) {
        uint64_t free_before;
        Fixture *f = start(&free_before);

        for (unsigned k = 0; k < 60; k++) {
                if (random() % 4 > 0) {
                        act(f, &vms[random() % N_VMS]);
                        let_go(&vms[random() % N_VMS]);
                        while (n_calls > 0)
                                process(f, 500);
                        check(f, free_before);
                        continue;
                }
                fixture_kill_tdpd(f, random() % 2 ? SIGKILL : SIGTERM);
                fixture_restart(f);
                for (unsigned i = 0; i < N_VMS; i++)
                        assert_true(vms[i].fate != UNKNOWN);
                check(f, free_before);
        }
        finish(f, free_before);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_kills_under_load, standin_teardown),
                cmocka_unit_test_teardown(case_32_random_operations_and_restarts, standin_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
