/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stands in for daemon/handle.c, so that the daemon's side of attach and build runs on machines whose kernel
 * has no /dev/kvm-gtdp.  What the kernel would do is chosen with --device=standin:SCENARIO.  What a kernel
 * really does is tested on the emulated hosts.
 *
 * Scenario "dir:DIRECTORY" is told more by files in there, while it runs: events are read from the FIFO
 * "events" as the kernel writes them; each call is logged in "calls"; while there is a "gone", holes cannot
 * be healed, while there is a "block", calls other than builds do not return; "more" is a slot more,
 * "logging" dirty logging of the last slot, "auto-error" a slot that could not be built when it was added.
 *
 * Scenario "kept:DIRECTORY" is for more than one VM, and outlives the daemon: each handle is a FIFO in
 * there, and what was built a file beside it.  Builds do not end while there is a "slow".
 */
#include "handle.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#define SLOTS_BYTES (MIB(512) + MIB(256))

static const struct kvm_gtdp_slot slots[] = {
        { .gpa = 0, .size = MIB(512), .id = 0, .page_size = MIB(2) },
        { .gpa = MIB(1023), .size = MIB(1), .id = 1, .page_size = KIB(4), .flags = KVM_GTDP_SLOT_READONLY },
        { .gpa = GIB(4), .size = MIB(256), .id = 2, .page_size = KIB(4) },
};

static char scenario[128];
static _Atomic uint64_t built, holes;
static int hold = -1; /* the other end of the handle: closing it is the VM's end */

static bool scenario_is(const char *s) {
        return streq(scenario, s);
}

static bool is_kept(void) {
        return strncmp(scenario, "kept:", 5) == 0;
}

/* Of scenarios "dir:" and "kept:". */
static bool file_path(char path[static 192], const char *name) {
        if (strncmp(scenario, "dir:", 4) != 0 && !is_kept())
                return false;
        snprintf(path, 192, "%s/%s", strchr(scenario, ':') + 1, name);
        return true;
}

static bool file_exists(const char *name) {
        char path[192];

        return file_path(path, name) && access(path, F_OK) == 0;
}

/* A tdpd that just goes would leave nobody any wiser. */
static void check(bool good, const char *what) {
        if (good)
                return;
        fprintf(stderr, "stand-in: %s: %s\n", what, strerror(errno));
        abort();
}

static void log_call(HandleOp op, uint64_t gpa, uint64_t size, uint32_t max_level) {
        static const char *const names[] = { "build", "heal", "release", "split", "collapse" };
        char path[192];
        FILE *f;

        if (!file_path(path, "calls"))
                return;
        f = fopen(path, "ae");
        check(f, path);
        while (flock(fileno(f), LOCK_EX) < 0) /* whoever reads it empties it */
                check(errno == EINTR, path);  /* a cancel, which is not for this */
        fprintf(f, "%s 0x%llx+0x%llx %u\n", names[op], (unsigned long long) gpa, (unsigned long long) size,
                max_level);
        fclose(f);
}

int handle_get_info(const char *device, struct kvm_gtdp_info *ret) {
        if (sscanf(device, "standin:%127s", scenario) != 1)
                return -ENOENT;
        if (scenario_is("other-version"))
                return -EPROTO;
        *ret = (struct kvm_gtdp_info){
                .abi_version = KVM_GTDP_ABI_VERSION,
                .mode = scenario_is("shadow") ? KVM_GTDP_MODE_SHADOW : KVM_GTDP_MODE_NPT,
                .features = KVM_GTDP_FEAT_AD_BITS | KVM_GTDP_FEAT_NESTED |
                            (scenario_is("older") ? 0 : KVM_GTDP_FEAT_EVENTS | KVM_GTDP_FEAT_SPLIT) |
                            (scenario_is("nx") ? KVM_GTDP_FEAT_NX_HUGE : 0),
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

static FILE *open_built(int handle, const char *mode) {
        char path[192], name[40];
        struct stat st;

        check(fstat(handle, &st) == 0, "handle");
        snprintf(name, sizeof(name), "built-%llu", (unsigned long long) st.st_ino);
        (void) file_path(path, name);
        return fopen(path, mode);
}

static uint64_t get_built(int handle) {
        uint64_t sum = 0, v;
        FILE *f;

        if (!is_kept())
                return built;
        f = open_built(handle, "re");
        while (f && fread(&v, sizeof(v), 1, f) == 1)
                sum += v;
        if (f)
                fclose(f);
        return MIN_OF(sum, SLOTS_BYTES); /* built again is built once */
}

static void add_built(int handle, uint64_t by) {
        FILE *f;

        if (!is_kept()) {
                built += by;
                return;
        }
        f = open_built(handle, "ae");
        check(f && fwrite(&by, sizeof(by), 1, f) == 1 && fclose(f) == 0, "what has been built");
}

static int attach_kept(void) {
        static unsigned n;
        char path[192], name[40];
        int fd;

        snprintf(name, sizeof(name), "handle-%i-%u", (int) getpid(), n++);
        (void) file_path(path, name);
        if (mkfifo(path, 0600) < 0)
                return -errno;
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        return fd < 0 ? -errno : fd;
}

static void *vm_goes(void *arg) {
        usleep(300000);
        close(hold);
        return NULL;
}

int handle_attach(const char *device, int vm_fd, bool auto_slots) {
        char path[192];
        pthread_t thread;
        int fds[2];

        if (scenario_is("taken"))
                return -EBUSY;
        if (scenario_is("confidential"))
                return -EOPNOTSUPP;
        built = holes = 0;
        if (is_kept())
                return attach_kept();
        if (file_path(path, "events")) {
                int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

                return fd < 0 ? -errno : fd;
        }
        if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
                return -errno;
        if (hold >= 0)
                close(hold);
        hold = fds[1];
        if (scenario_is("vm-goes") && pthread_create(&thread, NULL, vm_goes, NULL) == 0)
                pthread_detach(thread);
        return fds[0];
}

int handle_get_slots(int handle, struct kvm_gtdp_slot **ret, size_t *ret_n) {
        struct kvm_gtdp_slot *copy = calloc(ELEMENTSOF(slots) + 1, sizeof(*copy));
        size_t n = ELEMENTSOF(slots);

        if (!copy)
                return -ENOMEM;
        memcpy(copy, slots, sizeof(slots));
        if (scenario_is("grows") && built >= SLOTS_BYTES)
                copy[2].size = MIB(512);
        if (file_exists("logging"))
                copy[2].flags = KVM_GTDP_SLOT_DIRTY_LOG;
        if (file_exists("more"))
                copy[n++] = (struct kvm_gtdp_slot){
                        .gpa = GIB(8), .size = MIB(128), .id = 3, .page_size = KIB(4)
                };
        *ret = copy;
        *ret_n = n;
        return 0;
}

int handle_get_stats(int handle, struct kvm_gtdp_stats *ret) {
        bool hole = strncmp(scenario, "hole:", 5) == 0 && access(scenario + 5, F_OK) == 0;
        uint64_t all = get_built(handle);

        *ret = (struct kvm_gtdp_stats){
                .built_bytes = all,
                .mapped_bytes = all - (hole ? 4096 : holes),
                .hole_bytes = hole ? 4096 : holes,
                .pinned_bytes = all,
                .build_ns = 5000,
                .kept_bytes = 12288,
                .split_leaves = 5,
                .collapsed_leaves = 6,
                .auto_builds = 8,
                .auto_errors = file_exists("auto-error"),
                .auto_last_error = -ENOMEM,
                .faults = 3,
                .faults_other = 7,
                .leaves = { 0, 1, 2, 3 },
                .lost_bytes = { [KVM_GTDP_HOLE_SLOT] = 8192 },
                .table_pages = { [1] = 11 },
        };
        return 0;
}

static int advance(int handle, uint64_t *gpa, uint64_t *size, uint64_t by) {
        add_built(handle, by);
        *gpa += by;
        *size -= by;
        return 0;
}

/* All but builds. */
static int other_op(HandleOp op, uint64_t *gpa, uint64_t *size) {
        if (file_exists("block") || scenario_is("others-never-end")) {
                (void) poll(NULL, 0, 10000);
                return -EINTR;
        }
        if (op == HANDLE_HEAL && !file_exists("gone"))
                holes = 0;
        usleep(1000);
        *gpa += *size;
        *size = 0;
        return 0;
}

int handle_range(int handle, HandleOp op, uint64_t *gpa, uint64_t *size, uint32_t max_level) {
        uint64_t half = *size / 2;

        errno = 0;
        check(*size > 0 && *gpa % 4096 == 0 && (*gpa < MIB(1023) || *gpa >= MIB(1024)),
              "what tdpd must never ask for");
        log_call(op, *gpa, *size, max_level);
        if (op != HANDLE_BUILD)
                return other_op(op, gpa, size);

        if (scenario_is("nothing-built")) {
                *gpa += *size;
                *size = 0;
                return 0;
        }
        if (scenario_is("never-ends") || (is_kept() && file_exists("slow")) ||
            (scenario_is("second-never-ends") && built >= SLOTS_BYTES)) {
                (void) poll(NULL, 0, 10000);
                return -EINTR;
        }
        if (scenario_is("always-again"))
                return -EAGAIN;
        if (scenario_is("again") && half >= 4096) { /* in small steps, as errors and as signals */
                advance(handle, gpa, size, half);
                return half % MIB(2) ? -EAGAIN : -EINTR;
        }
        if (scenario_is("fault") && *gpa >= MIB(256)) {
                advance(handle, gpa, size, 4096);
                return -EFAULT;
        }
        if (scenario_is("few-levels") && *gpa >= GIB(4))
                return -ERANGE;
        if (scenario_is("no-memory") && *gpa >= GIB(4))
                return -ENOMEM;
        if (scenario_is("slot-vanishes") && *gpa >= GIB(4))
                return -ENOENT;
        usleep(1000);
        return advance(handle, gpa, size, *size);
}

ssize_t handle_read_events(int handle, struct kvm_gtdp_event *ret, size_t n) {
        ssize_t k = read(handle, ret, n * sizeof(*ret));

        if (k <= 0)
                return k == 0 ? -ESRCH : errno == EAGAIN ? 0 : -errno;
        for (ssize_t i = 0; i < k / (ssize_t) sizeof(*ret); i++)
                if (ret[i].type == KVM_GTDP_EVENT_HOLE && ret[i].reason != KVM_GTDP_HOLE_SLOT)
                        holes += ret[i].bytes;
        return k / (ssize_t) sizeof(*ret);
}

const char *handle_hole_reason_to_string(unsigned reason) {
        static const char *const words[] = { "notifier", "slot", "dirty-log" };

        return reason < ELEMENTSOF(words) ? words[reason] : NULL;
}
