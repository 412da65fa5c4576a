/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The ways to have a VM's memory mapped before its guest needs it. */

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm_gtdp.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

/* Newer than the headers of Debian 12. */
#ifndef KVM_PRE_FAULT_MEMORY
struct kvm_pre_fault_memory {
        __u64 gpa;
        __u64 size;
        __u64 flags;
        __u64 padding[5];
};
#define KVM_PRE_FAULT_MEMORY     _IOWR(KVMIO, 0xd5, struct kvm_pre_fault_memory)
#define KVM_CAP_PRE_FAULT_MEMORY 236
#endif

bool have_pre_fault(void) {
        int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
        bool have = fd >= 0 && ioctl(fd, KVM_CHECK_EXTENSION, KVM_CAP_PRE_FAULT_MEMORY) > 0;

        if (fd >= 0)
                close(fd);
        return have;
}

bool have_gtdp(void) {
        return access("/dev/kvm-gtdp", R_OK | W_OK) == 0;
}

uint64_t build_pre_fault(Guest *g) {
        struct kvm_pre_fault_memory range = { .size = g->size };
        uint64_t start = ticks();

        while (range.size > 0)
                if (ioctl(g->vcpu_fd[0], KVM_PRE_FAULT_MEMORY, &range) < 0 && errno != EINTR &&
                    errno != EAGAIN)
                        die("KVM_PRE_FAULT_MEMORY");

        return ticks() - start;
}

static uint64_t build(int handle_fd, uint64_t size) {
        struct kvm_gtdp_range range = { .size = size };
        uint64_t start = ticks();

        while (range.size > 0)
                if (ioctl(handle_fd, KVM_GTDP_BUILD, &range) < 0 && errno != EINTR && errno != EAGAIN)
                        die("KVM_GTDP_BUILD");

        return ticks() - start;
}

/* From a process that has not the VM's memory mapped, as tdpd does for an unmodified VMM. */
static uint64_t build_foreign(int handle_fd, Guest *g) {
        uint64_t result;
        int status, fds[2];
        pid_t pid;

        if (pipe2(fds, O_CLOEXEC) < 0)
                die("pipe2");
        pid = fork();
        if (pid < 0)
                die("fork");
        if (pid == 0) {
                if (munmap(g->memory, g->size) < 0)
                        die("munmap");
                result = build(handle_fd, g->size);
                if (write(fds[1], &result, sizeof(result)) != sizeof(result))
                        die("pipe");
                _exit(EXIT_SUCCESS);
        }

        close(fds[1]);
        if (read(fds[0], &result, sizeof(result)) != sizeof(result))
                die_text("the building process has failed");
        close(fds[0]);
        if (waitpid(pid, &status, 0) != pid || status != 0)
                die_text("the building process has failed, status 0x%x", (unsigned) status);

        return result;
}

uint64_t build_gtdp(Guest *g, bool foreign, int *ret_handle_fd) {
        struct kvm_gtdp_attach attach = { .vm_fd = g->vm_fd };
        int dev_fd = open("/dev/kvm-gtdp", O_RDWR | O_CLOEXEC), handle_fd;

        if (dev_fd < 0)
                die("/dev/kvm-gtdp");
        handle_fd = ioctl(dev_fd, KVM_GTDP_ATTACH, &attach);
        if (handle_fd < 0)
                die("KVM_GTDP_ATTACH");
        close(dev_fd);

        *ret_handle_fd = handle_fd;
        return foreign ? build_foreign(handle_fd, g) : build(handle_fd, g->size);
}

uint64_t gtdp_leaves(int handle_fd, int level) {
        struct kvm_gtdp_stats stats;

        if (ioctl(handle_fd, KVM_GTDP_STATS, &stats) < 0)
                die("KVM_GTDP_STATS");
        return stats.leaves[level];
}
