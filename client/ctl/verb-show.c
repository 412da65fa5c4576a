/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* show: all about one VM. */

#include <string.h>

#include "daemon.h"
#include "json.h"
#include "log.h"
#include "size.h"
#include "verbs.h"

static uint64_t get(const struct tdp_vm *vm, const char *key) {
        return tdp_value_get_uint(tdp_value_find(tdp_vm_get_properties(vm), key));
}

static const char *get_string(const struct tdp_vm *vm, const char *key) {
        return tdp_value_get_string(tdp_value_find(tdp_vm_get_properties(vm), key)) ?: "";
}

void print_leaves(const struct tdp_vm *vm) {
        static const struct {
                const char *key, *name;
        } leaves[] = { { "Leaves1G", "1G" }, { "Leaves2M", "2M" }, { "Leaves4K", "4K" } };
        const char *gap = "";

        for (size_t i = 0; i < ELEMENTSOF(leaves); i++)
                if (get(vm, leaves[i].key) > 0) {
                        printf("%s%llu of %s", gap, (unsigned long long) get(vm, leaves[i].key),
                               leaves[i].name);
                        gap = ", ";
                }
        if (!gap[0])
                printf("none");
}

static void print_mapping(const struct tdp_vm *vm) {
        char a[SIZE_TEXT_MAX], b[SIZE_TEXT_MAX];

        printf("    Mapped: %s of %s built\n", size_format(get(vm, "MappedBytes"), a),
               size_format(get(vm, "BuiltBytes"), b));
        printf("    Leaves: ");
        print_leaves(vm);
        printf("\n");
        if (get(vm, "SplitLeaves") > 0 || get(vm, "CollapsedLeaves") > 0)
                printf("            %llu split and %llu made of smaller ones since the attach\n",
                       (unsigned long long) get(vm, "SplitLeaves"),
                       (unsigned long long) get(vm, "CollapsedLeaves"));
        printf("    Pinned: %s\n", size_format(get(vm, "PinnedBytes"), a));
        if (get(vm, "KeptBytes") > 0)
                printf("            %s kept mapped by that, while the VMM's own mapping changed\n",
                       size_format(get(vm, "KeptBytes"), a));
}

static void print_holes(const struct tdp_vm *vm) {
        const struct tdp_value *v;
        char buf[SIZE_TEXT_MAX];

        printf("     Holes: %s\n", get(vm, "Holes") > 0 ? size_format(get(vm, "Holes"), buf) : "none");
        tdp_value_foreach (tdp_value_find(tdp_vm_get_properties(vm), "HoleReasons"), v)
                if (tdp_value_get_uint(v) > 0)
                        printf("            %s lost to %s since the attach\n",
                               size_format(tdp_value_get_uint(v), buf), tdp_value_get_key(v));
        if (get(vm, "Heals") == 0 && get(vm, "HealsPutOff") == 0)
                return;
        printf("    Healed: %s in %llu rounds; %llu times put off\n",
               size_format(get(vm, "HealedBytes"), buf), (unsigned long long) get(vm, "Heals"),
               (unsigned long long) get(vm, "HealsPutOff"));
}

static void print_slots(const struct tdp_vm *vm) {
        const struct tdp_value *slot, *flag;
        const char *head = "     Slots:";
        char buf[SIZE_TEXT_MAX];

        tdp_value_foreach (tdp_value_find(tdp_vm_get_properties(vm), "Slots"), slot) {
                printf("%s 0x%llx+%s", head, (unsigned long long) tdp_value_get_uint(tdp_value_at(slot, 0)),
                       size_format(tdp_value_get_uint(tdp_value_at(slot, 1)), buf));
                tdp_value_foreach (tdp_value_at(slot, 2), flag)
                        printf(" (%s)", tdp_value_get_string(flag));
                printf("\n");
                head = "           ";
        }
        if (get(vm, "AutoBuilds") > 0)
                printf("            %llu built when the VMM added them, %llu of these not in full\n",
                       (unsigned long long) get(vm, "AutoBuilds"),
                       (unsigned long long) get(vm, "AutoErrors"));
}

static void print_people(const struct tdp_vm *vm) {
        const struct tdp_value *properties = tdp_vm_get_properties(vm), *v;
        char buf[SIZE_TEXT_MAX], page[SIZE_TEXT_MAX];
        const char *nodes = get_string(vm, "Nodes");

        printf("        VM: %s\n", tdp_vm_get_name(vm));
        printf("     State: %s\n", tdp_vm_get_state(vm));
        if (tdp_vm_get_pid(vm) > 0)
                printf("       PID: %u (user %llu)\n", tdp_vm_get_pid(vm),
                       (unsigned long long) get(vm, "Uid"));
        printf("    Memory: %s", size_format(tdp_vm_get_bytes(vm), buf));
        if (get(vm, "PageSize") > 0)
                printf(" in pages of %s", size_format(get(vm, "PageSize"), page));
        printf("%s%s\n", nodes[0] ? ", nodes " : "", nodes);

        printf("  Decision: %s\n", get_string(vm, "Decision"));
        tdp_value_foreach (tdp_value_find(properties, "Reasons"), v)
                printf("            %s: %s\n", tdp_value_get_string(tdp_value_at(v, 0)) ?: "",
                       tdp_value_get_string(tdp_value_at(v, 1)) ?: "");

        print_slots(vm);
        print_mapping(vm);
        print_holes(vm);
        printf("    Faults: %llu in built memory since the build, %llu elsewhere (MMIO, ROM, not built)\n",
               (unsigned long long) get(vm, "FaultsSinceBuild"),
               (unsigned long long) get(vm, "FaultsOther"));
        tdp_value_foreach (tdp_value_find(properties, "TablePages"), v)
                printf("    Tables: %llu pages on node %s\n", (unsigned long long) tdp_value_get_uint(v),
                       tdp_value_get_key(v));
        printf("Populating: %s\n", duration_format(get(vm, "PopulateUSec"), buf));
        printf("  Building: %s\n", duration_format(get(vm, "BuildUSec"), buf));
        printf("Generation: %llu\n", (unsigned long long) get(vm, "Generation"));
}

int show_vm(const struct args *args, const struct tdp_vm *vm) {
        if (args->json != JSON_OFF)
                return json_print(args, json_from_vm(vm)) < 0 ? EXIT_FAILED : EXIT_OK;

        print_people(vm);
        return EXIT_OK;
}

int verb_show(const struct args *args) {
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        _cleanup_(tdp_vm_freep) struct tdp_vm *vm = NULL;
        int r;

        if (daemon_connect(args, &ctx) < 0)
                return EXIT_NO_DAEMON;

        r = tdp_get_vm(ctx, args->positional[0], &vm);
        if (r < 0)
                return daemon_failed(ctx, r);

        return show_vm(args, vm);
}
