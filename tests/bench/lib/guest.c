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

/*
 * Flat 32-bit code without paging: runs on any TDP hardware and needs no page tables of its own. It lies
 * behind the beginning of a page, which the guest overwrites, in pieces of equal room.
 */
#define CODE_GPA  0x1010U
#define CODE_ROOM 32U

static const uint8_t guest_code[][CODE_ROOM] = {
        /* Writes to every ecx-th byte below edx, esi times. */
        [GUEST_TOUCH] = {
                0x31, 0xdb,                         /* 1: xor ebx, ebx */
                0x88, 0x03,                         /* 2: mov [ebx], al */
                0x01, 0xcb,                         /*    add ebx, ecx */
                0x39, 0xd3,                         /*    cmp ebx, edx */
                0x72, 0xf8,                         /*    jb 2b */
                0x4e,                               /*    dec esi */
                0x75, 0xf3,                         /*    jnz 1b */
                0xf4,                               /*    hlt */
        },
        [GUEST_CPUID] = {
                0x31, 0xc0,                         /* 1: xor eax, eax */
                0x0f, 0xa2,                         /*    cpuid */
                0x4e,                               /*    dec esi */
                0x75, 0xf9,                         /*    jnz 1b */
                0xf4,                               /*    hlt */
        },
        /* To port dx. */
        [GUEST_PIO] = {
                0xee,                               /* 1: out dx, al */
                0x4e,                               /*    dec esi */
                0x75, 0xfc,                         /*    jnz 1b */
                0xf4,                               /*    hlt */
        },
        /* To address edx. */
        [GUEST_MMIO] = {
                0x88, 0x02,                         /* 1: mov [edx], al */
                0x4e,                               /*    dec esi */
                0x75, 0xfb,                         /*    jnz 1b */
                0xf4,                               /*    hlt */
        },
};

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

void guest_set_slot(Guest *g, unsigned id, uint64_t gpa, uint64_t size, void *memory, unsigned flags) {
        struct kvm_userspace_memory_region region = {
                .slot = id,
                .flags = flags,
                .guest_phys_addr = gpa,
                .memory_size = size,
                .userspace_addr = (uintptr_t) memory,
        };

        if (ioctl(g->vm_fd, KVM_SET_USER_MEMORY_REGION, &region) < 0)
                die("KVM_SET_USER_MEMORY_REGION");
}

void guest_new(Guest *ret, int level, uint64_t size, unsigned n_vcpus) {
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

        guest_set_slot(ret, 0, 0, size, ret->memory, 0);

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
        memcpy((uint8_t *) p + CODE_GPA, guest_code, sizeof(guest_code));
        if (elsewhere)
                munmap(p, g->size);
}

uint64_t guest_run(Guest *g, unsigned vcpu, GuestCode code, const struct kvm_regs *arguments) {
        struct kvm_regs regs = *arguments;
        uint64_t exits = 0;

        regs.rip = CODE_GPA + code * CODE_ROOM;
        regs.rflags = 2;
        if (ioctl(g->vcpu_fd[vcpu], KVM_SET_REGS, &regs) < 0)
                die("KVM_SET_REGS");
        for (;;) {
                if (ioctl(g->vcpu_fd[vcpu], KVM_RUN, 0) < 0) {
                        if (errno != EINTR && errno != EAGAIN)
                                die("KVM_RUN");
                        continue;
                }
                switch (g->run[vcpu]->exit_reason) {
                case KVM_EXIT_HLT:
                        return exits;
                case KVM_EXIT_IO:
                case KVM_EXIT_MMIO:
                        exits++;
                        break;
                default:
                        die_text("the guest ended by exit reason %u, and not by its HLT",
                                 g->run[vcpu]->exit_reason);
                }
        }
}

void guest_touch_every(Guest *g, unsigned vcpu, uint64_t step) {
        struct kvm_regs arguments = { .rcx = step, .rdx = g->size, .rsi = 1 };

        guest_run(g, vcpu, GUEST_TOUCH, &arguments);
}

void guest_touch(Guest *g, unsigned vcpu) {
        guest_touch_every(g, vcpu, PAGE_SIZE);
}

void guest_touch_each(Guest *g, unsigned vcpu, int level) {
        guest_touch_every(g, vcpu, level_size(level));
}
