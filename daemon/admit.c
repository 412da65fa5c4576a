/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "admit.h"

#include <errno.h>
#include <inttypes.h>

#include "bus-error.h"
#include "cgroup.h"
#include "format.h"
#include "log.h"
#include "vm.h"

static int refuse(const CgroupRoom *room, const char *whose, uint64_t page_size, uint64_t bytes,
                  sd_bus_error *error) {
        return sd_bus_error_setf(error, TDP_ERROR_LIMIT,
                                 "asked for %" PRIu64 " pages of %s, and cgroup %s (%s) allows %" PRIu64
                                 " more: its %s is %" PRIu64 " bytes, of which %" PRIu64
                                 " are taken; raise that limit, or ask for less",
                                 bytes / page_size, format_bytes(page_size), room->cgroup, whose,
                                 room->room / page_size, room->file, room->limit, room->used);
}

/* Ours, which the kernel charges: what is claimed and not touched yet is still to come. */
static int check_own(Manager *m, uint64_t page_size, uint64_t bytes, sd_bus_error *error) {
        _cleanup_(cgroup_room_done) CgroupRoom room = {};
        _cleanup_free_ Claim *claims = NULL;
        _cleanup_free_ char *own = NULL;
        uint64_t claimed = 0;
        size_t n;
        int r;

        r = cgroup_of_process(getpid(), &own);
        if (r < 0)
                return r == -ENOMEM ? r : 0;
        r = manager_claims(m, &claims, &n);
        if (r < 0)
                return r;
        for (size_t i = 0; i < n; i++)
                if (claims[i].page_size == page_size)
                        claimed += claims[i].unallocated;
        r = cgroup_get_room(m->options.sysfs_root, own, page_size, claimed, &room);
        if (r < 0) {
                log_warning_errno(r, "The limits of cgroup %s cannot be read, going on without", own);
                return r == -ENOMEM ? r : 0;
        }
        return bytes > room.room ? refuse(&room, "of tdpd, which allocates", page_size, bytes, error) : 0;
}

/* What VMs of a cgroup got from us is charged to us, so it is added here. */
static uint64_t granted_below(Manager *m, const char *cgroup, uint64_t page_size) {
        uint64_t sum = 0;
        VM *vm, *tmp;

        HASH_ITER (hh, m->vms, vm, tmp)
                if (vm->memory && vm->cgroup && vm->page_size == page_size &&
                    cgroup_is_below(vm->cgroup, cgroup))
                        sum += vm->bytes;
        return sum;
}

int admit_vmm(Manager *m, const char *cgroup, uint64_t page_size, uint64_t bytes, sd_bus_error *error) {
        _cleanup_(cgroup_room_done) CgroupRoom room = {};
        uint64_t granted;
        int r;

        if (!cgroup || page_size == base_page_size())
                return 0;
        r = cgroup_get_room(m->options.sysfs_root, cgroup, page_size, 0, &room);
        if (r < 0) {
                log_warning_errno(r, "The limits of cgroup %s cannot be read, going on without", cgroup);
                return r == -ENOMEM ? r : 0;
        }
        if (!room.cgroup)
                return 0;
        granted = granted_below(m, room.cgroup, page_size);
        room.used += granted;
        room.room -= MIN_OF(room.room, granted);
        return bytes > room.room ? refuse(&room, "of the VMM", page_size, bytes, error) : 0;
}

int admit_huge_pages(Manager *m, const char *cgroup, uint64_t page_size, uint64_t bytes,
                     sd_bus_error *error) {
        int r;

        if (page_size == base_page_size())
                return 0;
        r = check_own(m, page_size, bytes, error);
        return r < 0 ? r : admit_vmm(m, cgroup, page_size, bytes, error);
}
