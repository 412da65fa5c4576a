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

int gtdp_attach(Guest *g) {
        struct kvm_gtdp_attach attach = { .vm_fd = g->vm_fd };
        int dev_fd = open("/dev/kvm-gtdp", O_RDWR | O_CLOEXEC), handle_fd;

        if (dev_fd < 0)
                die("/dev/kvm-gtdp");
        handle_fd = ioctl(dev_fd, KVM_GTDP_ATTACH, &attach);
        if (handle_fd < 0)
                die("KVM_GTDP_ATTACH");
        close(dev_fd);
        return handle_fd;
}

/* A call that works on all of the memory, in as many steps as it wants. */
static uint64_t work_on(int handle_fd, unsigned long request, const char *name, uint64_t size,
                        int max_level) {
        struct kvm_gtdp_range range = { .size = size, .max_level = (uint32_t) max_level };
        uint64_t start = ticks();

        while (range.size > 0)
                if (ioctl(handle_fd, request, &range) < 0 && errno != EINTR && errno != EAGAIN)
                        die(name);

        return ticks() - start;
}

uint64_t gtdp_build(int handle_fd, Guest *g, int max_level) {
        return work_on(handle_fd, KVM_GTDP_BUILD, "KVM_GTDP_BUILD", g->size, max_level);
}

uint64_t gtdp_split(int handle_fd, Guest *g) {
        return work_on(handle_fd, KVM_GTDP_SPLIT, "KVM_GTDP_SPLIT", g->size, LEVEL_4K);
}

/* From a process that has not the VM's memory mapped, as tdpd does for an unmodified VMM. */
uint64_t gtdp_build_foreign(int handle_fd, Guest *g) {
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
                result = gtdp_build(handle_fd, g, 0);
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

static void get_stats(int handle_fd, struct kvm_gtdp_stats *ret) {
        if (ioctl(handle_fd, KVM_GTDP_STATS, ret) < 0)
                die("KVM_GTDP_STATS");
}

uint64_t gtdp_leaves(int handle_fd, int level) {
        struct kvm_gtdp_stats stats;

        get_stats(handle_fd, &stats);
        return stats.leaves[level];
}

uint64_t gtdp_lost(int handle_fd) {
        struct kvm_gtdp_stats stats;
        uint64_t bytes = 0;

        get_stats(handle_fd, &stats);
        for (unsigned i = 0; i < KVM_GTDP_HOLE_REASONS; i++)
                bytes += stats.lost_bytes[i];
        return bytes;
}
