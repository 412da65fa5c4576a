/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stands in for daemon/handle.c, so that the daemon's side of attach and build runs on machines whose kernel
 * has no /dev/kvm-gtdp.  What the kernel would do is chosen with --device=standin:SCENARIO.  What a kernel
 * really does is tested on the emulated hosts.
 */
#include "handle.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define SLOTS_BYTES (MIB(512) + MIB(256))

static const struct kvm_gtdp_slot slots[] = {
        { .gpa = 0, .size = MIB(512), .id = 0, .page_size = MIB(2) },
        { .gpa = MIB(1023), .size = MIB(1), .id = 1, .page_size = KIB(4), .flags = KVM_GTDP_SLOT_READONLY },
        { .gpa = GIB(4), .size = MIB(256), .id = 2, .page_size = KIB(4) },
};

static char scenario[128];
static _Atomic uint64_t built;
static int hold = -1; /* the other end of the handle: closing it is the VM's end */

static bool scenario_is(const char *s) {
        return streq(scenario, s);
}

int handle_get_info(const char *device, struct kvm_gtdp_info *ret) {
        if (sscanf(device, "standin:%127s", scenario) != 1)
                return -ENOENT;
        if (scenario_is("other-version"))
                return -EPROTO;
        *ret = (struct kvm_gtdp_info){
                .abi_version = KVM_GTDP_ABI_VERSION,
                .mode = scenario_is("shadow") ? KVM_GTDP_MODE_SHADOW : KVM_GTDP_MODE_NPT,
                .features = KVM_GTDP_FEAT_AD_BITS | KVM_GTDP_FEAT_NESTED,
                .root_level = 4,
                .max_leaf_level = 3,
        };
        return 0;
}

const char *handle_mode_to_string(uint32_t mode) {
        return mode == KVM_GTDP_MODE_NPT ? "npt" : "shadow";
}

int handle_features(uint64_t features, const char ***ret) {
        *ret = calloc(3, sizeof(char *));
        if (!*ret)
                return -ENOMEM;
        (*ret)[0] = "ad-bits";
        (*ret)[1] = "nested";
        return 0;
}

static void *vm_goes(void *arg) {
        usleep(300000);
        close(hold);
        return NULL;
}

int handle_attach(const char *device, int vm_fd, bool auto_slots) {
        pthread_t thread;
        int fds[2];

        if (scenario_is("taken"))
                return -EBUSY;
        if (scenario_is("confidential"))
                return -EOPNOTSUPP;
        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        if (hold >= 0)
                close(hold);
        hold = fds[1];
        built = 0;
        if (scenario_is("vm-goes") && pthread_create(&thread, NULL, vm_goes, NULL) == 0)
                pthread_detach(thread);
        return fds[0];
}

int handle_get_slots(int handle, struct kvm_gtdp_slot **ret, size_t *ret_n) {
        struct kvm_gtdp_slot *copy = calloc(ELEMENTSOF(slots), sizeof(*copy));

        if (!copy)
                return -ENOMEM;
        memcpy(copy, slots, sizeof(slots));
        if (scenario_is("grows") && built >= SLOTS_BYTES)
                copy[2].size = MIB(512);
        *ret = copy;
        *ret_n = ELEMENTSOF(slots);
        return 0;
}

int handle_get_stats(int handle, struct kvm_gtdp_stats *ret) {
        bool hole = strncmp(scenario, "hole:", 5) == 0 && access(scenario + 5, F_OK) == 0;

        *ret = (struct kvm_gtdp_stats){
                .built_bytes = built,
                .mapped_bytes = built - (hole ? 4096 : 0),
                .hole_bytes = hole ? 4096 : 0,
                .pinned_bytes = built,
                .build_ns = 5000,
                .faults = 3,
                .faults_other = 7,
                .leaves = { 0, 1, 2, 3 },
                .lost_bytes = { [KVM_GTDP_HOLE_SLOT] = 8192 },
                .table_pages = { [1] = 11 },
        };
        return 0;
}

static int advance(uint64_t *gpa, uint64_t *size, uint64_t by) {
        built += by;
        *gpa += by;
        *size -= by;
        return 0;
}

int handle_build(int handle, uint64_t *gpa, uint64_t *size, uint32_t max_level) {
        uint64_t half = *size / 2;

        /* What tdpd must never ask for. */
        if (*size == 0 || *gpa % 4096 || (*gpa >= MIB(1023) && *gpa < MIB(1024)))
                abort();

        if (scenario_is("nothing-built")) {
                *gpa += *size;
                *size = 0;
                return 0;
        }
        if (scenario_is("never-ends") || (scenario_is("second-never-ends") && built >= SLOTS_BYTES)) {
                (void) poll(NULL, 0, 10000);
                return -EINTR;
        }
        if (scenario_is("always-again"))
                return -EAGAIN;
        if (scenario_is("again") && half >= 4096) { /* in small steps, as errors and as signals */
                advance(gpa, size, half);
                return half % MIB(2) ? -EAGAIN : -EINTR;
        }
        if (scenario_is("fault") && *gpa >= MIB(256)) {
                advance(gpa, size, 4096);
                return -EFAULT;
        }
        if (scenario_is("no-memory") && *gpa >= GIB(4))
                return -ENOMEM;
        if (scenario_is("slot-vanishes") && *gpa >= GIB(4))
                return -ENOENT;
        usleep(1000);
        return advance(gpa, size, *size);
}

const char *handle_hole_reason_to_string(unsigned reason) {
        return reason == KVM_GTDP_HOLE_SLOT ? "slot" : NULL;
}
