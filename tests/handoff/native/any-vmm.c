/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stands in for daemon/discover.c where there is no KVM: each process that lives is a VMM. What the
 * descriptor is about is for the stand-in of handle.c, which does not look at it.
 */
#include "discover.h"

#include <errno.h>
#include <fcntl.h>

#include "bus-error.h"
#include "process.h"

int discover_fd_is_vm(int fd) {
        return fcntl(fd, F_GETFD) >= 0;
}

int discover_vm_fd(pid_t pid, int pidfd, int *ret_fd, sd_bus_error *error) {
        int fd;

        if (!process_is_alive(pidfd))
                return sd_bus_error_setf(error, TDP_ERROR_NO_SUCH_PROCESS, "process %i is not there",
                                         (int) pid);
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}
