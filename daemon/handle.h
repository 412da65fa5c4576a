/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The kernel's object: the only file that talks to /dev/kvm-gtdp and the handles that come from it. */

#include <linux/kvm_gtdp.h>
#include <sys/types.h>

#include "macro.h"

#define KVM_DEVICE_DEFAULT "/dev/kvm-gtdp"

/* Facts of the host.  -ENOENT without the patched modules, -EPROTO if they speak another version. */
int handle_get_info(const char *device, struct kvm_gtdp_info *ret);
const char *handle_mode_to_string(uint32_t mode);
/* Names of the features, NULL-terminated, not to be freed; the array is. */
int handle_features(uint64_t features, const char ***ret);

/* A new handle for the VM behind vm_fd. */
int handle_attach(const char *device, int vm_fd, bool auto_slots);
int handle_get_slots(int handle, struct kvm_gtdp_slot **ret, size_t *ret_n);
int handle_get_stats(int handle, struct kvm_gtdp_stats *ret);

typedef enum HandleOp {
        HANDLE_BUILD,
        HANDLE_HEAL, /* a build of what is there, which never faults memory in */
        HANDLE_RELEASE,
        HANDLE_SPLIT,
        HANDLE_COLLAPSE,
        _HANDLE_OP_MAX,
} HandleOp;

/* One call: gpa and size advance past what has been done, on errors too. */
int handle_range(int handle, HandleOp op, uint64_t *gpa, uint64_t *size, uint32_t max_level);

/* What has happened since the last call, at most n: 0 if that is nothing.  -ESRCH once the VM has gone, and
 * -ENOTTY if the kernel has no events. */
ssize_t handle_read_events(int handle, struct kvm_gtdp_event *ret, size_t n);

const char *handle_hole_reason_to_string(unsigned reason); /* NULL if there is none of this number */
