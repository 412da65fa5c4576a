/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bus-vm.h"

#include <errno.h>

#include "auth.h"
#include "bus-error.h"
#include "bus-handoff.h"
#include "bus-job.h"
#include "bus-object.h"
#include "bus-vm-range.h"
#include "bus-vm-stats.h"
#include "vm.h"

#define VM_PREFIX "/org/tdpd1/vm"

static int method_get_memory(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        __attribute__((cleanup(sd_bus_message_unrefp))) sd_bus_message *reply = NULL;
        VM *vm = userdata;
        Caller caller;
        int r;

        r = auth_get_changer(vm, message, &caller, error);
        if (r != 0)
                return r;
        if (!vm->memory && vm->state != VM_RESERVED && !vm->releasing)
                return sd_bus_error_setf(
                                error, TDP_ERROR_UNSUPPORTED,
                                "VM \"%s\" brought its own memory: only reserved VMs have some of ours",
                                vm->name);
        /* A descriptor before its pages are there would be a promise, and a promise can end in SIGBUS. */
        if (vm->state == VM_RESERVED || vm->releasing)
                return sd_bus_error_setf(error, TDP_ERROR_BUSY, "VM \"%s\" is %s: %s", vm->name,
                                         vm_state_to_string(vm->state),
                                         vm->releasing ? "its memory is on its way back"
                                                       : "wait for the end of its job to have the memory");

        r = sd_bus_message_new_method_return(message, &reply);
        if (r < 0)
                return r;
        r = sd_bus_message_open_container(reply, 'a', "(stuh)");
        if (r < 0)
                return r;
        for (size_t i = 0; i < vm->memory->n_parts; i++) {
                MemoryPart *part = &vm->memory->parts[i];

                r = sd_bus_message_append(reply, "(stuh)", part->name, part->bytes, part->node, part->fd);
                if (r < 0)
                        return r;
        }
        r = sd_bus_message_close_container(reply);
        if (r >= 0)
                r = sd_bus_send(NULL, reply, NULL);
        if (r >= 0)
                handoff_vm_memory_taken(vm);
        return r;
}

static int method_build(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        VM *vm = userdata;
        VMOptions options;
        Caller caller;
        Job *j;
        int r;

        r = options_read(message, OPTION_BUILD, &options, error);
        if (r < 0)
                return r;
        r = auth_get_changer(vm, message, &caller, error);
        if (r != 0)
                return r;

        /* Whoever calls this has decided. */
        if (options.has_decision && options.decision == DECISION_NEVER)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "a build with decision \"never\" makes no sense");
        if (vm_state_next(vm->state, VM_EVENT_BUILD_START) < 0)
                return sd_bus_error_setf(
                                error, TDP_ERROR_BUSY,
                                "VM \"%s\" is %s: it can be built when it is attached, built or healing",
                                vm->name, vm_state_to_string(vm->state));
        r = vm_check_build(vm, JOB_BUILD, error);
        if (r >= 0)
                r = handoff_check_build(vm, error);
        if (r < 0)
                return r;

        r = vm_start_build(vm, caller.uid, JOB_BUILD, options.max_level, NULL, &j, error);
        if (r < 0)
                return r;
        vm_event(vm, VM_EVENT_BUILD_START);
        bus_job_added(j);
        return sd_bus_reply_method_return(message, "o", j->path);
}

static int method_heal(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        return bus_vm_start_range_job(userdata, message, JOB_HEAL, error);
}

static int method_split(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        return bus_vm_start_range_job(userdata, message, JOB_SPLIT, error);
}

static int method_collapse(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        return bus_vm_start_range_job(userdata, message, JOB_COLLAPSE, error);
}

int bus_vm_release(VM *vm, sd_bus_message *message, sd_bus_error *error) {
        Caller caller;
        int r;

        r = auth_get_changer(vm, message, &caller, error);
        if (r != 0)
                return r;
        r = handoff_check_release(vm, error);
        if (r < 0)
                return r;
        r = vm_release(vm, &(VMRelease){ .message = message, .uid = caller.uid, .error = error });
        if (r < 0)
                return r;
        return 1; /* the reply comes when all is back */
}

static int method_release(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        return bus_vm_release(userdata, message, error);
}

static int get_state(sd_bus *bus, const char *path, const char *interface, const char *property,
                     sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        VM *vm = userdata;

        (void) vm_stats(vm); /* "built" only if it is still true */
        return sd_bus_message_append(reply, "s", vm_state_to_string(vm->state));
}

static int get_size(sd_bus *bus, const char *path, const char *interface, const char *property,
                    sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        VM *vm = userdata;

        (void) vm_stats(vm); /* the VMM may have got more memory */
        return sd_bus_message_append(reply, "t", streq(property, "Bytes") ? vm->bytes : vm->page_size);
}

static int get_nodes(sd_bus *bus, const char *path, const char *interface, const char *property,
                     sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        _cleanup_free_ char *nodes = NULL;
        VM *vm = userdata;
        int r;

        r = idset_format(&vm->nodes, &nodes);
        if (r < 0)
                return r;
        return sd_bus_message_append(reply, "s", nodes);
}

static int get_decision(sd_bus *bus, const char *path, const char *interface, const char *property,
                        sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        VM *vm = userdata;

        return sd_bus_message_append(reply, "s", vm->policy.build ? "build" : "skip");
}

static int get_rule(sd_bus *bus, const char *path, const char *interface, const char *property,
                    sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        VM *vm = userdata;

        return sd_bus_message_append(reply, "s", vm->policy.rule);
}

static int get_reasons(sd_bus *bus, const char *path, const char *interface, const char *property,
                       sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        VM *vm = userdata;
        int r;

        r = sd_bus_message_open_container(reply, 'a', "(ss)");
        if (r < 0)
                return r;
        for (size_t i = 0; i < vm->policy.n_reasons; i++) {
                r = sd_bus_message_append(reply, "(ss)", vm->policy.reasons[i].word,
                                          vm->policy.reasons[i].text);
                if (r < 0)
                        return r;
        }
        return sd_bus_message_close_container(reply);
}

int bus_vm_from_path(Manager *m, const char *path, VM **ret) {
        _cleanup_free_ char *name = NULL;
        VM *vm;
        int r;

        r = sd_bus_path_decode(path, VM_PREFIX, &name);
        if (r <= 0)
                return r;
        vm = vm_find(m, name);
        if (!vm)
                return 0;
        *ret = vm;
        return 1;
}

static int find(sd_bus *bus, const char *path, const char *interface, void *userdata, void **ret_found,
                sd_bus_error *error) {
        VM *vm;
        int r;

        r = bus_vm_from_path(userdata, path, &vm);
        if (r > 0)
                *ret_found = vm;
        return r;
}

static int enumerate(sd_bus *bus, const char *prefix, void *userdata, char ***ret_nodes,
                     sd_bus_error *error) {
        Manager *m = userdata;
        VM *vm, *tmp;
        size_t n = 0;
        char **nodes;
        int r;

        nodes = calloc(HASH_COUNT(m->vms) + 1, sizeof(char *));
        if (!nodes)
                return -ENOMEM;
        HASH_ITER (hh, m->vms, vm, tmp) {
                r = bus_set_path(nodes, n++, vm->path);
                if (r < 0)
                        return r;
        }
        *ret_nodes = nodes;
        return 0;
}

void bus_vm_added(VM *vm) {
        sd_bus *bus = vm->manager->bus;

        bus_check_signal(sd_bus_emit_object_added(bus, vm->path), "InterfacesAdded");
        bus_check_signal(sd_bus_emit_signal(bus, "/org/tdpd1", "org.tdpd1.Manager", "VMAdded", "so",
                                            vm->name, vm->path),
                         "VMAdded");
}

void bus_vm_removed(VM *vm) {
        sd_bus *bus = vm->manager->bus;

        bus_check_signal(sd_bus_emit_object_removed(bus, vm->path), "InterfacesRemoved");
        bus_check_signal(sd_bus_emit_signal(bus, "/org/tdpd1", "org.tdpd1.Manager", "VMRemoved", "so",
                                            vm->name, vm->path),
                         "VMRemoved");
}

void bus_vm_holes_changed(VM *vm, const uint64_t *lost, uint64_t healed) {
        sd_bus *bus = vm->manager->bus;

        bus_check_signal(bus_vm_emit_holes(vm, lost, healed), "HolesChanged");
        bus_check_signal(sd_bus_emit_properties_changed(bus, vm->path, "org.tdpd1.VM", "Holes",
                                                        "HoleReasons", NULL),
                         "PropertiesChanged");
}

void bus_vm_slots_changed(VM *vm) {
        sd_bus *bus = vm->manager->bus;

        bus_check_signal(sd_bus_emit_signal(bus, vm->path, "org.tdpd1.VM", "SlotsChanged", "t", vm->bytes),
                         "SlotsChanged");
        bus_check_signal(sd_bus_emit_properties_changed(bus, vm->path, "org.tdpd1.VM", "Bytes", "Slots",
                                                        NULL),
                         "PropertiesChanged");
}

void bus_vm_changed(VM *vm, const char *property) {
        bus_check_signal(sd_bus_emit_properties_changed(vm->manager->bus, vm->path, "org.tdpd1.VM", property,
                                                        NULL),
                         "PropertiesChanged");
}

#define CONST   SD_BUS_VTABLE_PROPERTY_CONST
#define CHANGES SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE
/* What it is now is for those to read who want to know: some of it costs a walk over the page tables. */
#define STALE SD_BUS_VTABLE_PROPERTY_EMITS_INVALIDATION

static const sd_bus_vtable vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD_WITH_ARGS("GetMemory", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(stuh)", parts),
                                method_get_memory, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Build", SD_BUS_ARGS("a{sv}", options), SD_BUS_RESULT("o", job),
                                method_build, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Heal", SD_BUS_ARGS("a{sv}", options), SD_BUS_RESULT("o", job), method_heal,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Split", SD_BUS_ARGS("a{sv}", options), SD_BUS_RESULT("o", job),
                                method_split, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Collapse", SD_BUS_ARGS("a{sv}", options), SD_BUS_RESULT("o", job),
                                method_collapse, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("OfferHandoff", SD_BUS_ARGS("a{sv}", options),
                                SD_BUS_RESULT("o", handoff, "ay", offer), bus_method_offer_handoff,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("Release", "", "", method_release, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_PROPERTY("Name", "s", NULL, offsetof(VM, name), CONST),
        SD_BUS_PROPERTY("State", "s", get_state, 0, CHANGES),
        SD_BUS_PROPERTY("Pid", "u", NULL, offsetof(VM, pid), 0),
        SD_BUS_PROPERTY("Uid", "u", NULL, offsetof(VM, uid), CONST),
        SD_BUS_PROPERTY("Bytes", "t", get_size, 0, STALE),
        SD_BUS_PROPERTY("PageSize", "t", get_size, 0, 0),
        SD_BUS_PROPERTY("Nodes", "s", get_nodes, 0, CHANGES),
        SD_BUS_PROPERTY("Decision", "s", get_decision, 0, 0),
        SD_BUS_PROPERTY("Reasons", "a(ss)", get_reasons, 0, 0),
        SD_BUS_PROPERTY("Rule", "s", get_rule, 0, 0),
        SD_BUS_PROPERTY("MappedBytes", "t", bus_vm_get_counter, 0, 0),
        SD_BUS_PROPERTY("PinnedBytes", "t", bus_vm_get_counter, 0, 0),
        SD_BUS_PROPERTY("BuiltBytes", "t", bus_vm_get_counter, 0, 0),
        SD_BUS_PROPERTY("Leaves1G", "t", bus_vm_get_counter, 0, 0),
        SD_BUS_PROPERTY("Leaves2M", "t", bus_vm_get_counter, 0, 0),
        SD_BUS_PROPERTY("Leaves4K", "t", bus_vm_get_counter, 0, 0),
        SD_BUS_PROPERTY("Slots", "a(ttas)", bus_vm_get_slots, 0, STALE),
        SD_BUS_PROPERTY("Holes", "t", bus_vm_get_counter, 0, STALE),
        SD_BUS_PROPERTY("HoleReasons", "a{st}", bus_vm_get_hole_reasons, 0, STALE),
        SD_BUS_PROPERTY("Heals", "t", bus_vm_get_heals, 0, 0),
        SD_BUS_PROPERTY("HealedBytes", "t", bus_vm_get_heals, 0, 0),
        SD_BUS_PROPERTY("HealsPutOff", "t", bus_vm_get_heals, 0, 0),
        SD_BUS_PROPERTY("KeptBytes", "t", bus_vm_get_counter, 0, 0),
        SD_BUS_PROPERTY("SplitLeaves", "t", bus_vm_get_counter, 0, 0),
        SD_BUS_PROPERTY("CollapsedLeaves", "t", bus_vm_get_counter, 0, 0),
        SD_BUS_PROPERTY("AutoBuilds", "t", bus_vm_get_counter, 0, 0),
        SD_BUS_PROPERTY("AutoErrors", "t", bus_vm_get_counter, 0, 0),
        SD_BUS_PROPERTY("DroppedEvents", "t", bus_vm_get_counter, 0, 0),
        SD_BUS_PROPERTY("FaultsSinceBuild", "t", bus_vm_get_counter, 0, 0),
        SD_BUS_PROPERTY("FaultsOther", "t", bus_vm_get_counter, 0, 0),
        SD_BUS_PROPERTY("TablePages", "a{ut}", bus_vm_get_table_pages, 0, 0),
        SD_BUS_PROPERTY("PopulateUSec", "t", NULL, offsetof(VM, populate_usec), 0),
        SD_BUS_PROPERTY("BuildUSec", "t", bus_vm_get_counter, 0, 0),
        SD_BUS_PROPERTY("Generation", "t", NULL, offsetof(VM, generation), 0),
        SD_BUS_PROPERTY("Handoff", "o", bus_get_vm_handoff, 0, CHANGES),
        SD_BUS_SIGNAL_WITH_ARGS("HolesChanged", SD_BUS_ARGS("a{st}", lost, "t", healed, "t", holes), 0),
        SD_BUS_SIGNAL_WITH_ARGS("SlotsChanged", SD_BUS_ARGS("t", bytes), 0),
        SD_BUS_VTABLE_END,
};

int bus_vm_register(Manager *m) {
        int r;

        r = sd_bus_add_fallback_vtable(m->bus, NULL, VM_PREFIX, "org.tdpd1.VM", vtable, find, m);
        if (r < 0)
                return r;
        return sd_bus_add_node_enumerator(m->bus, NULL, VM_PREFIX, enumerate, m);
}
