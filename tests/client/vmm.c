/* SPDX-License-Identifier: LGPL-2.1-or-later */

/*
 * A VMM that links libtdp, as small as can be: a VM with 4 MiB of memory and one vCPU that never runs.
 *
 *   vmm prefault       has KVM map the memory, prints what came of it
 *   vmm attach NAME    hands its VM to tdpd by descriptor, decision "never", prints the VM's state
 *
 * 77: there is no KVM here.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "tdp/tdp.h"

#define SIZE (UINT64_C(4) << 20)

static int vm_fd, vcpu_fd;

static int make_vm(void) {
        struct kvm_userspace_memory_region slot = { .memory_size = SIZE };
        void *memory;
        int kvm;

        kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
        if (kvm < 0)
                return -errno;
        vm_fd = ioctl(kvm, KVM_CREATE_VM, 0UL);
        if (vm_fd < 0)
                return -errno;
        memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
                return -errno;
        slot.userspace_addr = (uintptr_t) memory;
        if (ioctl(vm_fd, KVM_SET_USER_MEMORY_REGION, &slot) < 0)
                return -errno;
        vcpu_fd = ioctl(vm_fd, KVM_CREATE_VCPU, 0UL);
        return vcpu_fd < 0 ? -errno : 0;
}

static int fail(struct tdp_ctx *ctx, int r) {
        printf("%s: %s (%s)\n", strerror(-r), tdp_error_message(ctx), tdp_error_name(ctx) ?: "local");
        return 1;
}

static int prefault(struct tdp_ctx *ctx) {
        uint64_t done = 0;
        int r;

        r = tdp_prefault_vcpu(ctx, vcpu_fd, 0, SIZE, &done);
        if (r < 0)
                return fail(ctx, r);
        printf("%s: %" PRIu64 "\n", tdp_mapping_to_string(r), done);

        /* Nothing is behind the end of the slot; what was done before it is told. */
        r = tdp_prefault_vcpu(ctx, vcpu_fd, SIZE - 4096, 8192, &done);
        printf("behind the end: %s: %" PRIu64 "\n", strerror(-r), done);
        return 0;
}

static int attach(struct tdp_ctx *ctx, const char *name) {
        struct tdp_options *options;
        struct tdp_vm *vm;
        struct tdp_job *job;
        int r;

        r = tdp_options_new(&options);
        if (r >= 0)
                r = tdp_options_set_string(options, "decision", "never");
        if (r >= 0)
                r = tdp_attach(ctx, name, vm_fd, 0, options, &vm, &job);
        if (r < 0)
                return fail(ctx, r);

        r = tdp_job_wait(job, NULL, NULL);
        if (r >= 0)
                r = tdp_vm_refresh(vm);
        if (r < 0)
                return fail(ctx, r);
        printf("%s %" PRIu32 "\n", tdp_vm_get_state(vm), tdp_vm_get_pid(vm));
        tdp_job_free(job);
        tdp_vm_free(vm);
        tdp_options_free(options);
        return 0;
}

int main(int argc, char **argv) {
        struct tdp_ctx *ctx;
        int r;

        if (argc < 2)
                return 2;
        r = make_vm();
        if (r < 0) {
                printf("No VM can be made: %s\n", strerror(-r));
                return 77;
        }

        if (tdp_new(&ctx) < 0)
                return 2;
        r = argc > 2 ? attach(ctx, argv[2]) : prefault(ctx);
        tdp_unref(ctx);
        return r;
}
