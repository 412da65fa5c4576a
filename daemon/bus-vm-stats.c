/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bus-vm-stats.h"

#include <errno.h>

#include "vm.h"

static const struct {
        const char *property;
        size_t offset;
} counters[] = {
        { "MappedBytes", offsetof(struct kvm_gtdp_stats, mapped_bytes) },
        { "PinnedBytes", offsetof(struct kvm_gtdp_stats, pinned_bytes) },
        { "BuiltBytes", offsetof(struct kvm_gtdp_stats, built_bytes) },
        { "Leaves1G", offsetof(struct kvm_gtdp_stats, leaves[3]) },
        { "Leaves2M", offsetof(struct kvm_gtdp_stats, leaves[2]) },
        { "Leaves4K", offsetof(struct kvm_gtdp_stats, leaves[1]) },
        { "Holes", offsetof(struct kvm_gtdp_stats, hole_bytes) },
        { "FaultsSinceBuild", offsetof(struct kvm_gtdp_stats, faults) },
        { "FaultsOther", offsetof(struct kvm_gtdp_stats, faults_other) },
};

int bus_vm_get_counter(sd_bus *bus, const char *path, const char *interface, const char *property,
                       sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const struct kvm_gtdp_stats *stats = vm_stats(userdata);
        uint64_t v = 0;

        for (size_t i = 0; i < ELEMENTSOF(counters) && stats; i++)
                if (streq(counters[i].property, property))
                        memcpy(&v, (const char *) stats + counters[i].offset, sizeof(v));
        if (stats && streq(property, "BuildUSec"))
                v = stats->build_ns / 1000;
        return sd_bus_message_append(reply, "t", v);
}

int bus_vm_get_hole_reasons(sd_bus *bus, const char *path, const char *interface, const char *property,
                            sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const struct kvm_gtdp_stats *stats = vm_stats(userdata);
        int r;

        r = sd_bus_message_open_container(reply, 'a', "{st}");
        if (r < 0)
                return r;
        for (unsigned i = 0; i < KVM_GTDP_HOLE_REASONS && stats; i++) {
                const char *word = handle_hole_reason_to_string(i);

                if (!word || stats->lost_bytes[i] == 0)
                        continue;
                r = sd_bus_message_append(reply, "{st}", word, (uint64_t) stats->lost_bytes[i]);
                if (r < 0)
                        return r;
        }
        return sd_bus_message_close_container(reply);
}

int bus_vm_get_table_pages(sd_bus *bus, const char *path, const char *interface, const char *property,
                           sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const struct kvm_gtdp_stats *stats = vm_stats(userdata);
        int r;

        r = sd_bus_message_open_container(reply, 'a', "{ut}");
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < KVM_GTDP_MAX_NODES && stats; i++) {
                if (stats->table_pages[i] == 0)
                        continue;
                r = sd_bus_message_append(reply, "{ut}", i, (uint64_t) stats->table_pages[i]);
                if (r < 0)
                        return r;
        }
        return sd_bus_message_close_container(reply);
}
