/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A VM with one memory slot, whose guest does nothing but write to it. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"

/* Not at the very beginning of a page: the guest overwrites that. */
#define CODE_GPA 0x1010U

#define PAGE_SIZE 4096U

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

uint64_t level_size(int level) {
        return UINT64_C(1) << (12 + 9 * (level - 1));
}

static bool read_number(const char *path, uint64_t *ret) {
        FILE *f = fopen(path, "re");
        bool ok = f && fscanf(f, "%lu", ret) == 1;

        if (f)
                fclose(f);
        return ok;
}

uint64_t free_pages(int level) {
        uint64_t n_free, n_reserved;
        char path[128];

        snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%lukB/free_hugepages",
                 level_size(level) / 1024);
        if (!read_number(path, &n_free))
                return 0;
        snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%lukB/resv_hugepages",
                 level_size(level) / 1024);
        if (!read_number(path, &n_reserved))
                return 0;

        return n_free - n_reserved;
}

/* Flat 32-bit code without paging: runs on any TDP hardware and needs no page tables of its own. */
static void write_code(void *memory, uint32_t size) {
        uint8_t code[] = {
                0x31, 0xdb,                   /*    xor ebx, ebx */
                0x88, 0x03,                   /* 1: mov [ebx], al */
                0x81, 0xc3, 0x00, 0x10, 0, 0, /*    add ebx, 4096 */
                0x81, 0xfb, 0,    0,    0, 0, /*    cmp ebx, size */
                0x72, 0xf0,                   /*    jb 1b */
                0xf4,                         /*    hlt */
        };

        memcpy(code + 12, &size, sizeof(size));
        memcpy((uint8_t *) memory + CODE_GPA, code, sizeof(code));
}

static void add_vcpu(Guest *g) {
        struct kvm_segment code = {
                .limit = UINT32_MAX,
                .selector = 8,
                .type = 11,
                .present = 1,
                .db = 1,
                .s = 1,
                .g = 1,
        };
        struct kvm_segment data = code;
        struct kvm_sregs sregs;
        unsigned i = g->n_vcpus;
        int r;

        g->vcpu_fd[i] = ioctl(g->vm_fd, KVM_CREATE_VCPU, i);
        if (g->vcpu_fd[i] < 0)
                die("KVM_CREATE_VCPU");

        r = ioctl(g->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
        if (r < 0)
                die("KVM_GET_VCPU_MMAP_SIZE");
        g->run_size = (size_t) r;
        g->run[i] = mmap(NULL, g->run_size, PROT_READ | PROT_WRITE, MAP_SHARED, g->vcpu_fd[i], 0);
        if (g->run[i] == MAP_FAILED)
                die("mmap of struct kvm_run");

        if (ioctl(g->vcpu_fd[i], KVM_GET_SREGS, &sregs) < 0)
                die("KVM_GET_SREGS");
        data.type = 3;
        data.selector = 16;
        sregs.cs = code;
        sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = data;
        sregs.cr0 |= 1;
        if (ioctl(g->vcpu_fd[i], KVM_SET_SREGS, &sregs) < 0)
                die("KVM_SET_SREGS");
        g->n_vcpus++;
}

void guest_new(Guest *ret, int level, uint64_t size, unsigned n_vcpus) {
        struct kvm_userspace_memory_region region = { .memory_size = size };
        unsigned flags = MFD_CLOEXEC;
        int fd;

        *ret = (Guest){ .size = size };

        ret->kvm_fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
        if (ret->kvm_fd < 0)
                die("/dev/kvm");
        ret->vm_fd = ioctl(ret->kvm_fd, KVM_CREATE_VM, 0);
        if (ret->vm_fd < 0)
                die("KVM_CREATE_VM");

        if (level > LEVEL_4K)
                flags |= MFD_HUGETLB | (unsigned) (12 + 9 * (level - 1)) << 26;
        fd = memfd_create("guest", flags);
        if (fd < 0 || ftruncate(fd, (off_t) size) < 0)
                die("memory of the guest");
        ret->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (ret->memory == MAP_FAILED)
                die("mmap of the guest's memory");
        ret->memory_fd = fd;

        region.userspace_addr = (uintptr_t) ret->memory;
        if (ioctl(ret->vm_fd, KVM_SET_USER_MEMORY_REGION, &region) < 0)
                die("KVM_SET_USER_MEMORY_REGION");

        /* Without an interrupt controller all of them are runnable from the start. */
        while (ret->n_vcpus < n_vcpus)
                add_vcpu(ret);
}

void guest_free(Guest *g) {
        for (unsigned i = 0; i < g->n_vcpus; i++) {
                munmap(g->run[i], g->run_size);
                close(g->vcpu_fd[i]);
        }
        close(g->vm_fd);
        close(g->kvm_fd);
        munmap(g->memory, g->size);
        close(g->memory_fd);
}

void guest_populate(Guest *g, bool elsewhere) {
        void *p = g->memory;

        if (elsewhere) {
                p = mmap(NULL, g->size, PROT_READ | PROT_WRITE, MAP_SHARED, g->memory_fd, 0);
                if (p == MAP_FAILED)
                        die("mmap of the guest's memory");
        }
        if (madvise(p, g->size, MADV_POPULATE_WRITE) < 0)
                die("MADV_POPULATE_WRITE");
        write_code(p, (uint32_t) g->size);
        if (elsewhere)
                munmap(p, g->size);
}

void guest_touch(Guest *g, unsigned vcpu) {
        struct kvm_regs regs = { .rip = CODE_GPA, .rflags = 2 };

        if (ioctl(g->vcpu_fd[vcpu], KVM_SET_REGS, &regs) < 0)
                die("KVM_SET_REGS");
        while (ioctl(g->vcpu_fd[vcpu], KVM_RUN, 0) < 0)
                if (errno != EINTR && errno != EAGAIN)
                        die("KVM_RUN");
        if (g->run[vcpu]->exit_reason != KVM_EXIT_HLT)
                die_text("the guest ended by exit reason %u, and not by its HLT", g->run[vcpu]->exit_reason);
}

/* One value of KVM's binary statistics, of a VM or of a vCPU. */
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
