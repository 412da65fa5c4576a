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
        { "KeptBytes", offsetof(struct kvm_gtdp_stats, kept_bytes) },
        { "SplitLeaves", offsetof(struct kvm_gtdp_stats, split_leaves) },
        { "CollapsedLeaves", offsetof(struct kvm_gtdp_stats, collapsed_leaves) },
        { "AutoBuilds", offsetof(struct kvm_gtdp_stats, auto_builds) },
        { "AutoErrors", offsetof(struct kvm_gtdp_stats, auto_errors) },
        { "DroppedEvents", offsetof(struct kvm_gtdp_stats, dropped_events) },
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

static int append_reasons(sd_bus_message *m, const uint64_t *lost) {
        int r;

        r = sd_bus_message_open_container(m, 'a', "{st}");
        if (r < 0)
                return r;
        for (unsigned i = 0; i < KVM_GTDP_HOLE_REASONS && lost; i++) {
                const char *word = handle_hole_reason_to_string(i);

                if (!word || lost[i] == 0)
                        continue;
                r = sd_bus_message_append(m, "{st}", word, lost[i]);
                if (r < 0)
                        return r;
        }
        return sd_bus_message_close_container(m);
}

int bus_vm_get_hole_reasons(sd_bus *bus, const char *path, const char *interface, const char *property,
                            sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const struct kvm_gtdp_stats *stats = vm_stats(userdata);
        uint64_t lost[KVM_GTDP_HOLE_REASONS];

        for (unsigned i = 0; i < KVM_GTDP_HOLE_REASONS && stats; i++)
                lost[i] = stats->lost_bytes[i];
        return append_reasons(reply, stats ? lost : NULL);
}

int bus_vm_emit_holes(VM *vm, const uint64_t *lost, uint64_t healed) {
        __attribute__((cleanup(sd_bus_message_unrefp))) sd_bus_message *m = NULL;
        const struct kvm_gtdp_stats *stats = vm_stats(vm);
        int r;

        r = sd_bus_message_new_signal(vm->manager->bus, &m, vm->path, "org.tdpd1.VM", "HolesChanged");
        if (r < 0)
                return r;
        r = append_reasons(m, lost);
        if (r < 0)
                return r;
        r = sd_bus_message_append(m, "tt", healed, stats ? (uint64_t) stats->hole_bytes : 0);
        if (r < 0)
                return r;
        return sd_bus_send(vm->manager->bus, m, NULL);
}

int bus_vm_get_heals(sd_bus *bus, const char *path, const char *interface, const char *property,
                     sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        VM *vm = userdata;
        HealerCounts counts = vm->healer ? healer_counts(vm->healer) : (HealerCounts){};

        return sd_bus_message_append(reply, "t",
                                     streq(property, "Heals")         ? counts.rounds
                                     : streq(property, "HealedBytes") ? counts.bytes
                                                                      : counts.put_off);
}

static int append_slot(sd_bus_message *reply, const struct kvm_gtdp_slot *slot) {
        const char *flags[3] = {};
        size_t n = 0;
        int r;

        if (slot->flags & KVM_GTDP_SLOT_READONLY)
                flags[n++] = "read-only";
        if (slot->flags & KVM_GTDP_SLOT_DIRTY_LOG)
                flags[n++] = "dirty-log";
        r = sd_bus_message_open_container(reply, 'r', "ttas");
        if (r >= 0)
                r = sd_bus_message_append(reply, "tt", (uint64_t) slot->gpa, (uint64_t) slot->size);
        if (r >= 0)
                r = sd_bus_message_append_strv(reply, (char **) flags);
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

int bus_vm_get_slots(sd_bus *bus, const char *path, const char *interface, const char *property,
                     sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        _cleanup_free_ struct kvm_gtdp_slot *slots = NULL;
        VM *vm = userdata;
        size_t n = 0;
        int r;

        if (vm->handle >= 0 && handle_get_slots(vm->handle, &slots, &n) < 0)
                n = 0; /* it is about to go: the handle will say so */
        r = sd_bus_message_open_container(reply, 'a', "(ttas)");
        for (size_t i = 0; i < n && r >= 0; i++)
                r = append_slot(reply, &slots[i]);
        return r < 0 ? r : sd_bus_message_close_container(reply);
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
