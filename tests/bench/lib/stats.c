/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* KVM's own binary statistics. */

#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "bench.h"

/* One value, of a VM or of a vCPU. */
static uint64_t read_stat(int fd, const char *name) {
        struct kvm_stats_header header;
        struct kvm_stats_desc *desc;
        uint64_t value;
        bool found = false;
        int stats_fd = ioctl(fd, KVM_GET_STATS_FD, NULL);

        if (stats_fd < 0)
                die("KVM_GET_STATS_FD");
        if (pread(stats_fd, &header, sizeof(header), 0) != sizeof(header))
                die("header of KVM's statistics");

        desc = malloc(sizeof(*desc) + header.name_size);
        if (!desc)
                die("malloc");
        for (unsigned i = 0; i < header.num_desc && !found; i++) {
                size_t size = sizeof(*desc) + header.name_size;

                if (pread(stats_fd, desc, size, header.desc_offset + i * size) != (ssize_t) size)
                        die("descriptor of KVM's statistics");
                if (strcmp(desc->name, name) != 0)
                        continue;
                if (pread(stats_fd, &value, sizeof(value), header.data_offset + desc->offset) !=
                    sizeof(value))
                        die("value of KVM's statistics");
                found = true;
        }
        free(desc);
        close(stats_fd);
        if (!found)
                die_text("KVM has no statistic \"%s\"", name);

        return value;
}

uint64_t guest_leaves(Guest *g, int level) {
        static const char *const names[] = {
                [LEVEL_4K] = "pages_4k",
                [LEVEL_2M] = "pages_2m",
                [LEVEL_1G] = "pages_1g",
        };

        return read_stat(g->vm_fd, names[level]);
}

uint64_t guest_faults(Guest *g, unsigned vcpu) {
        return read_stat(g->vcpu_fd[vcpu], "pf_taken");
}

uint64_t guest_exits(Guest *g, unsigned vcpu) {
        return read_stat(g->vcpu_fd[vcpu], "exits");
}
