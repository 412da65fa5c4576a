/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "discover.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>

#include "bus-error.h"
#include "process.h"

#define VM_LINK "anon_inode:kvm-vm"

static int link_is_vm(int dir, const char *name) {
        char target[64];
        ssize_t n;

        n = readlinkat(dir, name, target, sizeof(target) - 1);
        if (n < 0)
                return -errno;
        target[n] = '\0';
        return streq(target, VM_LINK);
}

int discover_fd_is_vm(int fd) {
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/fd/%i", fd);
        return link_is_vm(-1, path);
}

/* Two descriptors of one open file, like after dup().  If the kernel cannot tell, they count as two VMs. */
static bool same_file(int a, int b) {
        return syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, a, b) == 0;
}

static int gone(pid_t pid, sd_bus_error *error) {
        return sd_bus_error_setf(error, TDP_ERROR_NO_SUCH_PROCESS,
                                 "process %i is not there: check the pid of the running VMM", (int) pid);
}

static int not_permitted(pid_t pid, int r, sd_bus_error *error) {
        return sd_bus_error_setf(
                        error, TDP_ERROR_NOT_PERMITTED,
                        "the descriptors of process %i cannot be had (%s): tdpd needs CAP_SYS_PTRACE",
                        (int) pid, strerror(-r));
}

int discover_vm_fd(pid_t pid, int pidfd, int *ret_fd, sd_bus_error *error) {
        _cleanup_closedir_ DIR *d = NULL;
        _cleanup_close_ int found = -1;
        char path[64];
        struct dirent *de;

        snprintf(path, sizeof(path), "/proc/%i/fd", (int) pid);
        d = opendir(path);
        if (!d)
                return errno == ENOENT ? gone(pid, error) : not_permitted(pid, -errno, error);

        while ((de = readdir(d))) {
                _cleanup_close_ int fd = -1;
                char *end;
                long n;

                n = strtol(de->d_name, &end, 10);
                if (*end != '\0' || end == de->d_name || n < 0 || n > INT_MAX)
                        continue;
                if (link_is_vm(dirfd(d), de->d_name) <= 0) /* or just closed */
                        continue;

                fd = pidfd_getfd(pidfd, (int) n, 0); /* close-on-exec by itself */
                if (fd < 0) {
                        if (errno == EBADF)
                                continue;
                        return errno == ESRCH ? gone(pid, error) : not_permitted(pid, -errno, error);
                }
                /* The number may have been used again since the link was read. */
                if (discover_fd_is_vm(fd) <= 0 || (found >= 0 && same_file(found, fd)))
                        continue;
                if (found >= 0)
                        return sd_bus_error_setf(
                                        error, TDP_ERROR_SEVERAL_VMS,
                                        "process %i has several VMs: pass the fd of the one you mean with "
                                        "Attach instead",
                                        (int) pid);
                found = TAKE_FD(fd);
        }

        /* Otherwise /proc may have shown us another process that got the same pid. */
        if (!process_is_alive(pidfd))
                return gone(pid, error);
        if (found < 0)
                return sd_bus_error_setf(
                                error, TDP_ERROR_NOT_VMM,
                                "process %i has no KVM VM: give the pid of the VMM itself, once it has made "
                                "its VM",
                                (int) pid);

        *ret_fd = TAKE_FD(found);
        return 0;
}
