/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "handle.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>

static const char *const hole_reasons[KVM_GTDP_HOLE_REASONS] = {
        [KVM_GTDP_HOLE_NOTIFIER] = "notifier",   [KVM_GTDP_HOLE_SLOT] = "slot",
        [KVM_GTDP_HOLE_DIRTY_LOG] = "dirty-log", [KVM_GTDP_HOLE_NX_HUGE] = "nx-huge",
        [KVM_GTDP_HOLE_REQUEST] = "request",     [KVM_GTDP_HOLE_OTHER] = "other",
};

static const char *const feature_names[] = {
        "ad-bits", "pml", "nested", "apicv", "nx-huge-pages", "force", "nested-apicv", "events", "split",
};

/* The device is opened for each use: a descriptor that is kept would pin the modules. */
static int device_open(const char *device) {
        int fd = open(device, O_RDWR | O_CLOEXEC | O_NOCTTY);

        if (fd < 0)
                return errno == ENXIO || errno == ENODEV || errno == ENOTDIR ? -ENOENT : -errno;
        return fd;
}

int handle_get_info(const char *device, struct kvm_gtdp_info *ret) {
        _cleanup_close_ int fd = -1;
        struct kvm_gtdp_info info = {};

        fd = device_open(device);
        if (fd < 0)
                return fd;
        if (ioctl(fd, KVM_GTDP_GET_INFO, &info) < 0)
                return errno == ENOTTY ? -EPROTO : -errno;
        if (info.abi_version != KVM_GTDP_ABI_VERSION)
                return -EPROTO;
        *ret = info;
        return 0;
}

const char *handle_mode_to_string(uint32_t mode) {
        switch (mode) {
        case KVM_GTDP_MODE_SHADOW:
                return "shadow";
        case KVM_GTDP_MODE_EPT:
                return "ept";
        case KVM_GTDP_MODE_NPT:
                return "npt";
        default:
                return "unknown";
        }
}

int handle_features(uint64_t features, const char ***ret) {
        const char **names;
        size_t n = 0;

        names = calloc(ELEMENTSOF(feature_names) + 1, sizeof(*names));
        if (!names)
                return -ENOMEM;
        for (size_t i = 0; i < ELEMENTSOF(feature_names); i++)
                if (features & UINT64_C(1) << i)
                        names[n++] = feature_names[i];
        *ret = names;
        return 0;
}

int handle_attach(const char *device, int vm_fd, bool auto_slots) {
        _cleanup_close_ int fd = -1;
        struct kvm_gtdp_attach attach = {
                .vm_fd = vm_fd,
                .flags = auto_slots ? KVM_GTDP_ATTACH_AUTO : 0,
        };
        int handle;

        fd = device_open(device);
        if (fd < 0)
                return fd;
        handle = ioctl(fd, KVM_GTDP_ATTACH, &attach);
        if (handle < 0)
                return -errno;
        /* The event loop reads events, and must not wait for them. */
        if (fcntl(handle, F_SETFL, fcntl(handle, F_GETFL) | O_NONBLOCK) < 0) {
                int r = -errno;

                safe_close(handle);
                return r;
        }
        return handle;
}

int handle_get_slots(int handle, struct kvm_gtdp_slot **ret, size_t *ret_n) {
        _cleanup_free_ struct kvm_gtdp_slot *slots = NULL;
        uint32_t room = 64;

        /* The VMM may add slots between two calls, but not for ever. */
        for (unsigned i = 0; i < 16; i++) {
                struct kvm_gtdp_slots arg = { .count = room };

                free(slots);
                slots = calloc(room, sizeof(*slots));
                if (!slots)
                        return -ENOMEM;
                arg.slots = (uint64_t) (uintptr_t) slots;
                if (ioctl(handle, KVM_GTDP_GET_SLOTS, &arg) >= 0) {
                        *ret = TAKE_PTR(slots);
                        *ret_n = arg.count;
                        return 0;
                }
                if (errno != E2BIG)
                        return -errno;
                room = arg.count + 16;
        }
        return -E2BIG;
}

int handle_get_stats(int handle, struct kvm_gtdp_stats *ret) {
        struct kvm_gtdp_stats stats = {};

        if (ioctl(handle, KVM_GTDP_STATS, &stats) < 0)
                return -errno;
        *ret = stats;
        return 0;
}

static const struct {
        unsigned long request;
        uint32_t flags;
} ops[_HANDLE_OP_MAX] = {
        [HANDLE_BUILD] = { KVM_GTDP_BUILD, 0 },
        [HANDLE_HEAL] = { KVM_GTDP_BUILD, KVM_GTDP_BUILD_PRESENT },
        [HANDLE_RELEASE] = { KVM_GTDP_RELEASE, 0 },
        [HANDLE_SPLIT] = { KVM_GTDP_SPLIT, 0 },
        [HANDLE_COLLAPSE] = { KVM_GTDP_COLLAPSE, 0 },
};

int handle_range(int handle, HandleOp op, uint64_t *gpa, uint64_t *size, uint32_t max_level) {
        struct kvm_gtdp_range range = {
                .gpa = *gpa,
                .size = *size,
                .flags = ops[op].flags,
                .max_level = max_level,
        };
        int r = ioctl(handle, ops[op].request, &range) < 0 ? -errno : 0;

        *gpa = range.gpa;
        *size = range.size;
        return r;
}

ssize_t handle_read_events(int handle, struct kvm_gtdp_event *ret, size_t n) {
        ssize_t k = read(handle, ret, n * sizeof(*ret));

        if (k < 0)
                /* A file without a read() says EINVAL. */
                return errno == EAGAIN || errno == EINTR ? 0 : errno == EINVAL ? -ENOTTY : -errno;
        if (k == 0)
                return -ESRCH;
        return k / (ssize_t) sizeof(*ret);
}

const char *handle_hole_reason_to_string(unsigned reason) {
        return reason < ELEMENTSOF(hole_reasons) ? hole_reasons[reason] : NULL;
}
