/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A real tdpd on a private bus, one for each test. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>
#include <systemd/sd-bus.h>

#define MANAGER "/org/tdpd1"
#define ERR(x)  "org.tdpd1.Error." x
#define MIB     (UINT64_C(1) << 20)
#define HUGE_2M (2 * MIB)

typedef struct JobEnd {
        char job[64];
        char result[16];
        char error[64];
        char message[512];
} JobEnd;

typedef struct Fixture {
        char dir[64];
        char address[96];
        pid_t bus_pid;
        pid_t tdpd_pid;
        char arg[160];
        sd_bus *bus;
        JobEnd ends[64];
        size_t n_ends;
        unsigned vms_added, vms_removed;
} Fixture;

/* "config" is the text of a tdpd.conf, "arg" one more argument for tdpd. NULL means none. */
Fixture *fixture_start(const char *config, const char *arg);
/* Fails the test if tdpd does not end well. */
void fixture_stop(Fixture *f);
/* For every test: clears away what a failed one has left. */
int fixture_teardown(void **state);
void fixture_kill_tdpd(Fixture *f, int sig);
/* Another one, after the one before has ended. */
void fixture_restart(Fixture *f);
/* With what keeps descriptors and records for the next tdpd, as root; and that next one. */
Fixture *fixture_start_kept(const char *config);
void fixture_end_and_restart(Fixture *f, int sig);
/* false: it has ended instead of serving, with that wait status. */
bool fixture_try_restart(Fixture *f, int *ret_status);
/* With the files in it, and empty folders. */
void remove_dir(const char *dir);
sd_bus *fixture_connect(const char *address);

/* Calls on the given connection and path of tdpd; the reply, or NULL with "error" set. */
sd_bus_message *call(sd_bus *bus, sd_bus_error *error, const char *path, const char *interface,
                     const char *member, const char *types, ...);
#define manager_call(f, error, member, ...)                                                                 \
        call((f)->bus, error, MANAGER, "org.tdpd1.Manager", member, __VA_ARGS__)

/* Fails the test unless the call fails with this error; "part" must be in its text. */
#define assert_call_fails(f, name, part, member, ...)                                                       \
        do {                                                                                                \
                sd_bus_error _e = SD_BUS_ERROR_NULL;                                                        \
                sd_bus_message *_m = manager_call(f, &_e, member, __VA_ARGS__);                             \
                assert_null(_m);                                                                            \
                assert_error_is(&_e, name, part);                                                           \
        } while (0)
void assert_error_is(sd_bus_error *e, const char *name, const char *part);

/* Reserve on node 0, and give the paths; the call must succeed. */
typedef struct Reservation {
        char vm[128];
        char job[64];
} Reservation;
Reservation reserve(Fixture *f, const char *name, uint64_t bytes, uint64_t page_size);
void release(Fixture *f, const char *vm);
/* The memfd of a VM that has one, to be closed: sealed, populated, and of so many bytes (0: any). */
int get_memory(Fixture *f, const char *vm, uint64_t expected);

const JobEnd *wait_job(Fixture *f, const char *job);
char *vm_state(Fixture *f, const char *vm);
size_t count_vms(Fixture *f);
/* Until there are so many; for those that go once their threads have ended. */
void wait_vms(Fixture *f, size_t n);

/* Pages that a VM could have on a node, by tdpd, and those that the configuration keeps for others. */
void read_available(Fixture *f, const char *node, uint64_t size, uint64_t *ret, uint64_t *ret_for_others);

/* The 2M pool of node 0 of this very machine. */
uint64_t pool_read(const char *file);
/* Adds pages until the test's end, or skips the test if that cannot be done. Pages that can be had then. */
uint64_t pool_grow(uint64_t pages);
/* tdpd has added "by_tdpd" pages since, which go at the end as well; and here are "pages" more. */
void pool_grow_again(uint64_t by_tdpd, uint64_t pages);
/* One of 1 GiB, until the test's end, or skips the test. */
void pool_grow_1g(void);
/* Takes some of these away: what is in use becomes surplus. */
void pool_shrink(uint64_t pages);
/* Waits a little: the kernel frees some pages late. */
void assert_pool_free(uint64_t pages);

uint64_t now_usec(void);
void require_root(void);
bool machine_has_kvm(void);
/* For what only KVM itself does, or a skip. */
void require_kvm(void);
/* A VM of this machine's KVM, or what passes for one where there is none; or a skip. */
int require_kvm_vm(void);
/* A process that has made n VMs and waits. */
pid_t spawn_vmm(unsigned n_vms, uid_t uid);
/* The same with one VM, and with these arguments to be seen by others, the last one NULL.  What it is given
 * besides is one more descriptor, or -1.  A test that uses it calls vmm_main() first of all. */
pid_t spawn_named_vmm(const char *const *argv, int fd);
void vmm_main(int argc, char *argv[]);
void reap(pid_t pid, int sig);
/* A file system that tdpd may still be writing to. */
void make_read_only(const char *mount_point);
/* Gives back whatever the above has made and is still there. */
void machine_restore(void);
