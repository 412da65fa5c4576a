/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#include "handle.h"

#define ROUNDS     3U
#define LEAVES_MAX 4096U
#define CODE_GPA   UINT64_C(0x1000)
#define CODE_BYTES KIB(8)
/* Where leaves of 1G fit, and the guest's 32 bits reach. */
#define DATA_GPA GIB(1)
#define DATA_MAX GIB(2)

/* Flat 32-bit code without paging needs no tables of its own: writes to each edi-th byte from esi on, ecx
 * times. */
static const uint8_t guest_code[] = {
        0x88, 0x06, /* 1: mov [esi], al */
        0x01, 0xfe, /*    add esi, edi */
        0x49,       /*    dec ecx */
        0x75, 0xf9, /*    jnz 1b */
        0xf4,       /*    hlt */
};

typedef struct Guest {
        int vm, vcpu;
        struct kvm_run *run;
        size_t run_size;
        void *code;
} Guest;

static uint64_t now_ns(void) {
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}

static void guest_done(Guest *g) {
        if (g->run)
                munmap(g->run, g->run_size);
        if (g->code)
                munmap(g->code, CODE_BYTES);
        g->vcpu = safe_close(g->vcpu);
        g->vm = safe_close(g->vm);
}

static int set_slot(int vm, uint32_t id, uint64_t gpa, uint64_t size, void *memory) {
        struct kvm_userspace_memory_region region = {
                .slot = id,
                .guest_phys_addr = gpa,
                .memory_size = size,
                .userspace_addr = (uintptr_t) memory,
        };

        return ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) < 0 ? -errno : 0;
}

static int set_mode(int vcpu) {
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

        if (ioctl(vcpu, KVM_GET_SREGS, &sregs) < 0)
                return -errno;
        data.type = 3;
        data.selector = 16;
        sregs.cs = code;
        sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = data;
        sregs.cr0 |= 1;
        return ioctl(vcpu, KVM_SET_SREGS, &sregs) < 0 ? -errno : 0;
}

static int guest_new(int kvm, void *memory, uint64_t size, Guest *ret) {
        _cleanup_(guest_done) Guest g = { .vm = -1, .vcpu = -1 };
        void *p;
        int r;

        g.vm = ioctl(kvm, KVM_CREATE_VM, 0);
        if (g.vm < 0)
                return -errno;
        p = mmap(NULL, CODE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
                return -errno;
        g.code = p;
        memcpy(g.code, guest_code, sizeof(guest_code));
        if ((r = set_slot(g.vm, 0, CODE_GPA, CODE_BYTES, g.code)) < 0 ||
            (r = set_slot(g.vm, 1, DATA_GPA, size, memory)) < 0)
                return r;

        g.vcpu = ioctl(g.vm, KVM_CREATE_VCPU, 0);
        if (g.vcpu < 0)
                return -errno;
        r = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
        if (r < 0)
                return -errno;
        g.run_size = (size_t) r;
        p = mmap(NULL, g.run_size, PROT_READ | PROT_WRITE, MAP_SHARED, g.vcpu, 0);
        if (p == MAP_FAILED)
                return -errno;
        g.run = p;
        r = set_mode(g.vcpu);
        if (r < 0)
                return r;

        *ret = g;
        g = (Guest){ .vm = -1, .vcpu = -1 };
        return 0;
}

static bool is_canceled(const ProbeRequest *q) {
        return q->is_canceled(q->userdata);
}

/* Has the guest write to n pages, and takes the time. */
static int guest_touch(const ProbeRequest *q, Guest *g, uint64_t gpa, uint64_t step, uint64_t n,
                       uint64_t *ret_ns) {
        struct kvm_regs regs = { .rip = CODE_GPA, .rflags = 2, .rsi = gpa, .rdi = step, .rcx = n };
        uint64_t start;

        if (ioctl(g->vcpu, KVM_SET_REGS, &regs) < 0)
                return -errno;
        start = now_ns();
        while (ioctl(g->vcpu, KVM_RUN, 0) < 0) {
                if (is_canceled(q))
                        return -ECANCELED;
                if (errno != EINTR && errno != EAGAIN)
                        return -errno;
        }
        *ret_ns = now_ns() - start;
        /* It can do nothing else, unless the host cannot run it. */
        return g->run->exit_reason == KVM_EXIT_HLT ? 0 : -EIO;
}

/* What is not the faults (the exit, the guest's own instructions) is in both passes. */
static int measure_faults(const ProbeRequest *q, int kvm, void *memory, uint64_t n, uint64_t *ret) {
        _cleanup_(guest_done) Guest g = { .vm = -1, .vcpu = -1 };
        uint64_t first, again;
        int r;

        if ((r = guest_new(kvm, memory, n * q->page_size, &g)) < 0 ||
            (r = guest_touch(q, &g, CODE_GPA + KIB(4), 0, 1, &first)) < 0 ||
            (r = guest_touch(q, &g, DATA_GPA, q->page_size, n, &first)) < 0 ||
            (r = guest_touch(q, &g, DATA_GPA, q->page_size, n, &again)) < 0)
                return r;
        *ret = first > again ? (first - again) / n : 0;
        return 0;
}

static int measure_build(const ProbeRequest *q, int kvm, void *memory, uint64_t n, uint32_t level,
                         uint64_t *ret) {
        _cleanup_(guest_done) Guest g = { .vm = -1, .vcpu = -1 };
        uint64_t gpa = DATA_GPA, size = n * q->page_size, start;
        _cleanup_close_ int handle = -1;
        struct kvm_gtdp_stats stats;
        int r;

        r = guest_new(kvm, memory, size, &g);
        if (r < 0)
                return r;
        handle = handle_attach(q->device, g.vm, false);
        if (handle < 0)
                return handle;
        start = now_ns();
        while (size > 0) {
                r = handle_range(handle, HANDLE_BUILD, &gpa, &size, 0);
                if (is_canceled(q))
                        return -ECANCELED;
                if (r < 0 && r != -EAGAIN && r != -EINTR)
                        return r;
        }
        *ret = (now_ns() - start) / n;
        r = handle_get_stats(handle, &stats);
        if (r < 0)
                return r;
        /* The host may be unable to make leaves of that size. */
        return stats.leaves[level] == n ? 0 : -EOPNOTSUPP;
}

static int compare(const void *a, const void *b) {
        uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;

        return x < y ? -1 : x > y;
}

/* Of an odd number of rounds: one interrupt is a lot among few leaves.  At least a nanosecond. */
static uint64_t median(uint64_t *ns) {
        qsort(ns, ROUNDS, sizeof(*ns), compare);
        return MAX_OF(ns[ROUNDS / 2], UINT64_C(1));
}

static int measure(const ProbeRequest *q, int kvm, void *memory, ProbeResult *ret) {
        uint64_t n = MIN_OF(MIN_OF(q->bytes, DATA_MAX) / q->page_size, LEAVES_MAX), ns[ROUNDS];
        uint32_t level = q->page_size == KIB(4) ? 1 : q->page_size == MIB(2) ? 2 : 3;
        int r = 0;

        for (unsigned i = 0; i < ROUNDS && r >= 0; i++)
                r = measure_faults(q, kvm, memory, n, &ns[i]);
        if (r == -ECANCELED)
                return r;
        if (r < 0) {
                snprintf(ret->missing, sizeof(ret->missing), "KVM cannot run a scratch VM here: %s",
                         r == -EIO ? "its vCPU does not get on" : strerror(-r));
                return 0;
        }
        ret->fault_ns = median(ns);

        for (unsigned i = 0; i < ROUNDS && r >= 0; i++)
                r = measure_build(q, kvm, memory, n, level, &ns[i]);
        if (r == -ECANCELED)
                return r;
        if (r < 0)
                snprintf(ret->missing, sizeof(ret->missing), "no build could be measured: %s",
                         r == -ENOENT                       ? "there is no /dev/kvm-gtdp"
                         : r == -EOPNOTSUPP || r == -EINVAL ? "KVM makes no leaves of that size here"
                                                            : strerror(-r));
        else
                ret->build_ns = median(ns);
        return 0;
}

int probe_run(const ProbeRequest *q, ProbeResult *ret) {
        uint64_t bytes = MIN_OF(q->bytes, DATA_MAX);
        _cleanup_close_ int kvm = -1;
        ProbeResult result = {};
        void *memory;
        int r;

        kvm = open(q->kvm, O_RDWR | O_CLOEXEC);
        if (kvm < 0) {
                snprintf(result.missing, sizeof(result.missing), "%s cannot be opened: %s", q->kvm,
                         strerror(errno));
                *ret = result;
                return 0;
        }
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, q->memory_fd, 0);
        if (memory == MAP_FAILED)
                return -errno;
        /* What the fault finds is what it finds of a VM whose memory is there. */
        r = madvise(memory, bytes, MADV_POPULATE_WRITE) < 0 ? -errno : 0;
        if (r == -EINTR && is_canceled(q))
                r = -ECANCELED;
        if (r >= 0)
                r = measure(q, kvm, memory, &result);
        munmap(memory, bytes);
        if (r < 0)
                return r;
        *ret = result;
        return 0;
}
