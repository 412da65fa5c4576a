/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the tests need of the machine that they run on: huge pages and KVM. */
#include "fixture.h"
#include "kvm-preload.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define POOL    "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/"
#define POOL_1G "/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages"

static uint64_t grown_by;
static bool grown_1g;
static int lock_fd = -1;
static int vm_fd = -1;
static pid_t vmms[8];
static size_t n_vmms;

uint64_t pool_read(const char *file) {
        char path[128];
        uint64_t v;
        FILE *f;

        snprintf(path, sizeof(path), POOL "%s", file);
        f = fopen(path, "re");
        if (!f) {
                print_message("this machine has no 2 MiB pool on node 0\n");
                skip();
        }
        assert_int_equal(fscanf(f, "%" SCNu64, &v), 1);
        fclose(f);
        return v;
}

/* Others may have reserved some of what is free. */
static uint64_t pool_available(void) {
        uint64_t reserved = 0, avail = pool_read("free_hugepages");
        FILE *f = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "re");

        assert_non_null(f);
        assert_int_equal(fscanf(f, "%" SCNu64, &reserved), 1);
        fclose(f);
        return avail > reserved ? avail - reserved : 0;
}

static bool pool_write(uint64_t pages) {
        FILE *f = fopen(POOL "nr_hugepages", "we");
        bool good;

        if (!f)
                return false;
        good = fprintf(f, "%" PRIu64, pages) > 0;
        return fclose(f) == 0 && good;
}

/* Tests that change the pool wait for each other, so that each finds what it counts on. */
static void lock_pools(void) {
        require_root();
        lock_fd = open("/tmp/tdpd-test-pool.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_true(lock_fd >= 0);
        assert_int_equal(flock(lock_fd, LOCK_EX), 0);
}

static void unlock_pools(void) {
        close(lock_fd);
        lock_fd = -1;
}

uint64_t pool_grow(uint64_t pages) {
        uint64_t before;

        lock_pools();
        before = pool_read("nr_hugepages");
        if (!pool_write(before + pages) || pool_read("nr_hugepages") != before + pages) {
                (void) pool_write(before);
                unlock_pools();
                print_message("nr_hugepages of node 0 cannot be raised by %" PRIu64 "\n", pages);
                skip();
        }
        grown_by = pages;
        return pool_available();
}

static uint64_t read_1g(void) {
        uint64_t v = UINT64_MAX;
        FILE *f = fopen(POOL_1G, "re");

        if (f) {
                assert_int_equal(fscanf(f, "%" SCNu64, &v), 1);
                fclose(f);
        }
        return v;
}

static bool write_1g(uint64_t pages) {
        FILE *f = fopen(POOL_1G, "we");
        bool good;

        if (!f)
                return false;
        good = fprintf(f, "%" PRIu64, pages) > 0;
        return fclose(f) == 0 && good && read_1g() == pages;
}

void pool_grow_1g(void) {
        lock_pools();
        if (read_1g() == 0)
                grown_1g = write_1g(1);
        if (grown_1g)
                return;
        (void) write_1g(0);
        unlock_pools();
        print_message("there are pages of 1 GiB already, or there is no room for one\n");
        skip();
}

void pool_grow_again(uint64_t by_tdpd, uint64_t pages) {
        uint64_t before = pool_read("nr_hugepages");

        grown_by += by_tdpd + pages;
        if (!pool_write(before + pages) || pool_read("nr_hugepages") != before + pages)
                fail_msg("nr_hugepages of node 0 cannot be raised again, by %" PRIu64, pages);
}

void pool_shrink(uint64_t pages) {
        assert_true(pages <= grown_by);
        (void) pool_write(pool_read("nr_hugepages") - pages);
        grown_by -= pages;
}

void machine_restore(void) {
        uint64_t pages;

        for (size_t i = 0; i < n_vmms; i++)
                if (vmms[i] > 0) {
                        kill(vmms[i], SIGKILL);
                        waitpid(vmms[i], NULL, 0);
                }
        n_vmms = 0;
        vm_fd = vm_fd >= 0 ? close(vm_fd), -1 : -1;

        if (lock_fd < 0)
                return;
        /* A test may have made it smaller than that. */
        pages = pool_read("nr_hugepages");
        (void) pool_write(pages > grown_by ? pages - grown_by : 0);
        grown_by = 0;
        if (grown_1g)
                (void) write_1g(0);
        grown_1g = false;
        unlock_pools();
}

void assert_pool_free(uint64_t pages) {
        uint64_t until = now_usec() + 2000000;

        while (pool_read("free_hugepages") != pages && now_usec() < until)
                usleep(10000);
        assert_int_equal(pool_read("free_hugepages"), pages);
}

bool machine_has_kvm(void) {
        return access("/dev/kvm", F_OK) == 0;
}

void require_kvm(void) {
        if (machine_has_kvm())
                return;
        print_message("this machine has no KVM\n");
        skip();
}

/* Where there is no KVM, something that tdpd takes for a VM there (kvm-preload). */
static int make_vm(void) {
        int kvm, vm;

        if (!machine_has_kvm()) {
                vm = memfd_create(KVM_STANDIN, MFD_CLOEXEC);
                return vm < 0 ? -errno : vm;
        }
        kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
        if (kvm < 0)
                return -errno;
        vm = ioctl(kvm, KVM_CREATE_VM, 0);
        if (vm < 0)
                vm = -errno;
        close(kvm);
        return vm;
}

static int need_vm(void) {
        int vm = make_vm();

        if (vm < 0) {
                print_message("KVM makes no VM here: %s\n", strerror(-vm));
                skip();
        }
        return vm;
}

int require_kvm_vm(void) {
        assert_int_equal(vm_fd, -1);
        vm_fd = need_vm();
        return vm_fd;
}

pid_t spawn_vmm(unsigned n_vms, uid_t uid) {
        int ready[2], vms[4];
        pid_t pid;
        char c;

        /* tdpd takes descriptors out of it, and some kernels let only root do that to one that is not a
         * child. */
        require_root();
        assert_true(n_vms <= 4);
        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        for (unsigned i = 0; i < n_vms; i++)
                vms[i] = need_vm();

        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (uid != 0 && (setgroups(0, NULL) < 0 || setgid(uid) < 0 || setuid(uid) < 0))
                        _exit(1);
                /* A second descriptor of the same VM must not count as a second VM. */
                if (n_vms > 0 && dup(vms[0]) < 0)
                        _exit(1);
                if (write(ready[1], "x", 1) != 1)
                        _exit(1);
                for (;;)
                        pause();
        }
        for (unsigned i = 0; i < n_vms; i++)
                close(vms[i]);
        assert_true(n_vmms < sizeof(vmms) / sizeof(vmms[0]));
        vmms[n_vmms++] = pid;
        close(ready[1]);
        assert_int_equal(read(ready[0], &c, 1), 1);
        close(ready[0]);
        return pid;
}

#define READY "TDPD_TEST_VMM_READY"

/* This very program is the VMM: what others see of a process is what it was executed with. */
void vmm_main(int argc, char *argv[]) {
        const char *ready = getenv(READY);

        if (!ready)
                return;
        if (write(atoi(ready), "x", 1) != 1)
                _exit(1);
        for (;;)
                pause();
}

pid_t spawn_named_vmm(const char *const *argv, int fd) {
        int ready[2], vm;
        char env[64], c;
        pid_t pid;

        require_root();
        close(need_vm());
        assert_int_equal(pipe2(ready, 0), 0);
        assert_int_equal(fcntl(ready[0], F_SETFD, FD_CLOEXEC), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                /* As a VMM does it: the kernel announces who makes it. */
                vm = make_vm();
                if (vm < 0 || fcntl(vm, F_SETFD, 0) < 0 || (fd >= 0 && fcntl(fd, F_SETFD, 0) < 0))
                        _exit(1);
                snprintf(env, sizeof(env), READY "=%i", ready[1]);
                execve("/proc/self/exe", (char *const *) argv, (char *[]){ env, NULL });
                _exit(1);
        }
        assert_true(n_vmms < sizeof(vmms) / sizeof(vmms[0]));
        vmms[n_vmms++] = pid;
        close(ready[1]);
        if (read(ready[0], &c, 1) != 1)
                fail_msg("the VMM has not come up");
        close(ready[0]);
        return pid;
}

void reap(pid_t pid, int sig) {
        for (size_t i = 0; i < n_vmms; i++)
                if (vmms[i] == pid)
                        vmms[i] = 0;
        if (pid <= 0)
                return;
        kill(pid, sig);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
}

void make_read_only(const char *mount_point) {
        int r = -1;

        for (unsigned i = 0; i < 1000; i++) {
                r = mount(NULL, mount_point, NULL, MS_REMOUNT | MS_RDONLY, NULL);
                if (r >= 0 || errno != EBUSY)
                        break;
                usleep(10000);
        }
        assert_int_equal(r, 0);
}
