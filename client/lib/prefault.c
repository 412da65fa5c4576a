/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What a VMM can do from inside on a kernel without tdpd's patch. */

#include <linux/ioctl.h>
#include <linux/types.h>
#include <string.h>
#include <sys/ioctl.h>

#include "libtdp-private.h"

/* Since Linux 6.11; named apart, so that it builds with older and newer headers alike. */
struct pre_fault_memory {
        __u64 gpa;
        __u64 size;
        __u64 flags;
        __u64 padding[5];
};

#define PRE_FAULT_MEMORY _IOWR(0xAE, 0xd5, struct pre_fault_memory)

#define ALIGNMENT UINT64_C(4096)

/* EAGAIN: a memory slot is being changed. 2 s at most without any progress. */
#define AGAIN_TRIES 1000U
#define AGAIN_USEC  2000U

static int fail(struct tdp_ctx *ctx, int error, const struct pre_fault_memory *range) {
        switch (error) {
        case ENOTTY:
                return ctx_fail(ctx, -EOPNOTSUPP, NULL,
                                "This kernel has no KVM_PRE_FAULT_MEMORY (it came with 6.11), or "
                                "the descriptor is not a vCPU");
        case EOPNOTSUPP:
                return ctx_fail(ctx, -EOPNOTSUPP, NULL,
                                "KVM cannot pre-fault memory of this VM: it uses shadow paging or a "
                                "confidential guest's memory");
        case EAGAIN:
                return ctx_fail(ctx, -EAGAIN, NULL,
                                "Memory slots at 0x%llx keep changing: map them when the machine is complete",
                                (unsigned long long) range->gpa);
        default:
                return ctx_fail(ctx, -error, NULL, "KVM_PRE_FAULT_MEMORY at 0x%llx, 0x%llx bytes left: %s",
                                (unsigned long long) range->gpa, (unsigned long long) range->size,
                                strerror(error));
        }
}

TDP_EXPORT int tdp_prefault_vcpu(struct tdp_ctx *ctx, int vcpu_fd, uint64_t gpa, uint64_t size,
                                 uint64_t *ret_done) {
        struct pre_fault_memory range = { .gpa = gpa, .size = size };
        int r = TDP_MAPPED_ONCE;
        unsigned again = 0;

        if (size == 0 || gpa % ALIGNMENT != 0 || size % ALIGNMENT != 0 || gpa + size < gpa)
                return ctx_fail(ctx, -EINVAL, NULL,
                                "Range 0x%llx+0x%llx is empty, not a multiple of 4 KiB, or overflows",
                                (unsigned long long) gpa, (unsigned long long) size);

        /* The kernel advances gpa and size past what is done, and may stop early without an error. */
        while (range.size > 0) {
                uint64_t left = range.size;

                if (ioctl(vcpu_fd, PRE_FAULT_MEMORY, &range) < 0) {
                        if (errno == EAGAIN) {
                                again = range.size < left ? 0 : again + 1;
                                if (again == 0)
                                        continue;
                                if (again < AGAIN_TRIES) {
                                        (void) usleep(AGAIN_USEC);
                                        continue;
                                }
                        }
                        r = fail(ctx, errno, &range);
                        break;
                }
                if (range.size >= left) {
                        r = fail(ctx, EIO, &range);
                        break;
                }
                again = 0;
        }

        if (ret_done)
                *ret_done = size - range.size;
        return r;
}

TDP_EXPORT const char *tdp_mapping_to_string(enum tdp_mapping mapping) {
        switch (mapping) {
        case TDP_MAPPED_ONCE:
                return "mapped once, not held";
        case TDP_MAPPED_AND_HELD:
                return "mapped and held";
        default:
                return "not mapped";
        }
}
