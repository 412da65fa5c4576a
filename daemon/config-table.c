/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config-table.h"

#include "rule-config.h"

/* In the order of the shipped file and of the manual page. */
const ConfigSection config_sections[] = {
        { .name = "Policy" },
        { .name = "Limits",
          .doc = "Lower limits take nothing away: they hold for what is asked for from then on." },
        { .name = "Workers" },
        { .name = "Healing" },
        { .name = "Pools",
          .doc = "Numbers of huge pages are for a size and a node: SIZE:PAGES@NODE, with commas or blanks "
                 "between several, or as in Nova's configuration node:NODE,size:SIZE,count:PAGES, with blanks "
                 "between. Sizes have suffixes K, M, G or T; one without is in KiB in Nova's form. Each key "
                 "may be there more than once." },
        { .name = "Access" },
        { .name = "Rule",
          .doc = "What is to be of some VMs, where the request leaves it open. Rules are sorted by name, "
                 "whatever file they are in, and the first one that matches a VM is the only one that counts "
                 "for it, as with systemd.link(5): names like 10-databases make the order plain. A section "
                 "of the same name in a later file changes keys of the rule. All Match keys that are given "
                 "must fit; in a list one is enough, and ?, * and [...] work as in a shell. What is not known "
                 "of a VM fits none: a VMM's unit is known when it is attached to, before that it is the one "
                 "of whoever asks.",
          .instance = rule_config_instance,
          .done = rule_config_done,
          .check = rule_config_check },
};
const size_t config_n_sections = ELEMENTSOF(config_sections);

#define ITEM(field) offsetof(Config, field)
#define RULE(field) offsetof(Rule, field)

/* One block for each section.  Sentences end with a full stop and a blank. */
const ConfigItem config_items[] = {
        { "Policy", "Decision", &config_type_decision, ITEM(decision), "auto", 0, 0, NULL,
          "Whether VMs are built if the request does not say: auto, always or never." },
        { "Policy", "MinBytes", &config_type_size, ITEM(min_bytes), "64M", 0, UINT64_MAX, "bytes",
          "auto leaves smaller VMs alone." },
        { "Policy", "MinSavingUSec", &config_type_number, ITEM(min_saving_usec), "100", 0, UINT64_MAX,
          "microseconds",
          "auto builds if it saves at least that many microseconds of faults, less what building takes. What "
          "a fault and a built leaf cost is measured by tdpctl calibrate, or a default; faults cost more the "
          "more vCPUs there are, and come again after each migration that is expected." },
        { "Policy", "PinUSecPerGiB", &config_type_number, ITEM(pin_usec_per_gib), "10000", 0, UINT64_MAX,
          "microseconds",
          "What it is worth to auto that a GiB of memory in small pages is not pinned, so that the host can "
          "overcommit it. Huge pages of a pool cannot be overcommitted anyway." },

        { "Limits", "MaxVMs", &config_type_number, ITEM(limits.vms), "256", 0, UINT64_MAX, "VMs",
          "VMs of one user." },
        { "Limits", "MaxBytes", &config_type_size, ITEM(limits.bytes), "infinity", 0, UINT64_MAX, "bytes",
          "Memory of one user's VMs." },
        { "Limits", "MaxJobs", &config_type_number, ITEM(limits.jobs), "64", 1, UINT64_MAX, "jobs",
          "Jobs of one user at the same time." },
        { "Limits", "MaxFDs", &config_type_number, ITEM(limits.fds), "4096", 4, UINT64_MAX, "descriptors",
          "Open descriptors that tdpd keeps for one user's VMs: two for each, and one for each node that its "
          "memory is on. All users together cannot have more than the unit's LimitNOFILE=." },
        { "Limits", "MaxCalls", &config_type_number, ITEM(limits.calls), "256", 1, 65536, "calls",
          "D-Bus calls of one user that wait for an answer at the same time: for their turn, for polkit, or for "
          "the end of what they have asked for." },
        { "Limits", "MaxWaiting", &config_type_number, ITEM(max_waiting), "64", 0, 4096, "requests",
          "Reservations of all users that wait for pages at the same time, if they ask for that; one user may "
          "have half of them. 0: nobody waits." },

        { "Workers", "Threads", &config_type_number, ITEM(threads), "16", 1, 1024, "threads",
          "Threads of a job on each node, never more than the node has CPUs." },

        { "Healing", "HealDelayMSec", &config_type_number, ITEM(heal.delay_msec), "1000", 10, 60000,
          "milliseconds",
          "Parts of a built mapping that got lost are built again after so many milliseconds, together with "
          "others that are lost meanwhile. What is torn again soon waits twice as long each time, up to 5 "
          "minutes." },
        { "Healing", "HealIntervalSec", &config_type_number, ITEM(heal.interval_sec), "5", 1, 86400,
          "seconds", "That is done for each VM once in so many seconds." },
        { "Healing", "HealBurst", &config_type_number, ITEM(heal.burst), "10", 0, 1000, NULL,
          "So often at once, after a time without. 0: nothing is built again by itself, and tdpctl heal does "
          "it." },

        { "Pools", "Warm", &config_type_warm, ITEM(warm), "", 0, 0, NULL,
          "Slabs: memory on one node that is allocated and zeroed before anybody asks for it, so that a "
          "reservation is served in milliseconds; see WARM SLABS in tdpd(8). A list of SIZE[*COUNT] [node=N] "
          "[page=SIZE], with commas between, like 64G*2 node=0 page=1G, 4G*8 page=2M. Without a node: on any "
          "that has room. Without a page size: the largest that divides the size and has free pages. At most "
          "32 flavours, and 1024 slabs of each." },
        { "Pools", "WarmMaxPressure", &config_type_number, ITEM(warm_max_pressure), "5", 0, 100, "percent",
          "No slab is filled while tasks waited for memory for more than so many percent of the last ten "
          "seconds (some avg10 in /proc/pressure/memory). Slabs of small pages are given back then, one "
          "after the other." },
        { "Pools", "WarmMaxLoad", &config_type_number, ITEM(warm_max_load), "75", 0, UINT64_MAX, "percent",
          "Nor while the load of the last minute is more than so many percent of the number of CPUs, the "
          "threads that fill not counted. infinity: whatever it is." },
        { "Pools", "Pages", &config_type_pool_specs, ITEM(pools.targets), "", 0, 0, NULL,
          "So many pages each of these pools is to have. tdpd grows or shrinks them when it starts, never below "
          "what is in use or reserved, tries again if it falls short, and leaves them alone once they had it. "
          "Pools that are not named stay as they are." },
        { "Pools", "Reserved", &config_type_pool_specs, ITEM(pools.reserved), "", 0, 0, NULL,
          "So many pages of these pools are for other programs, like OVS-DPDK: no VM gets them, whether those "
          "programs run yet or not." },
        { "Pools", "MaxPercent", &config_type_number, ITEM(pools.max_percent), "95", 1, 100, "percent",
          "All pools of a node together are made no larger than so much of its memory, and at least 512 MiB "
          "are left as well, so that a wrong number does not take all memory from a host. What others have "
          "made larger stays. 100: up to all of it." },
        { "Pools", "WatchSec", &config_type_number, ITEM(pools.watch_sec), "5", 1, 3600, "seconds",
          "So often tdpd looks whether others have changed or used the pools." },
        { "Pools", "RetrySec", &config_type_number, ITEM(pools.retry_sec), "10", 1, 3600, "seconds",
          "A pool that is short of its pages is tried again after so many seconds, then after twice as many, and "
          "so on up to 32 times as many." },
        { "Pools", "LowPercent", &config_type_number, ITEM(pools.low_percent), "10", 0, 100, "percent",
          "The signal PoolLow is sent when less than so much of a pool can still be had. 0: never." },

        { "Access", "Group", &config_type_string, ITEM(group), "tdp", 0, 0, NULL,
          "Members of this group may reserve and attach VMs, and release their own." },
        { "Access", "PolkitTimeoutSec", &config_type_number, ITEM(polkit_timeout_sec), "120", 1, 3600,
          "seconds",
          "Whoever is to authenticate, for what only root may do otherwise, has so many seconds; then the answer "
          "is no. Where nobody can be asked it is 10 seconds at most." },

        { "Rule", "MatchName", &config_type_rule_globs, RULE(names), "", 0, 0, NULL, "Names of VMs." },
        { "Rule", "MatchUser", &config_type_rule_users, RULE(users), "", 0, 0, NULL,
          "Users whose VMs they are, by name or number." },
        { "Rule", "MatchUnit", &config_type_rule_globs, RULE(units), "", 0, 0, NULL,
          "systemd's units of the VMM, like machine-qemu*.scope." },
        { "Rule", "MatchControlGroup", &config_type_rule_globs, RULE(cgroups), "", 0, 0, NULL,
          "Control groups of the VMM, from the root, like /machine.slice/*." },
        { "Rule", "MatchPageSize", &config_type_rule_sizes, RULE(page_sizes), "", 0, 0, NULL,
          "Page sizes, as asked for, or of what backs a running VM." },
        { "Rule", "MatchMinBytes", &config_type_size, RULE(min_bytes), "0", 0, UINT64_MAX, "bytes",
          "VMs of at least that much memory." },
        { "Rule", "MatchMaxBytes", &config_type_size, RULE(max_bytes), "infinity", 0, UINT64_MAX, "bytes",
          "VMs of at most that much memory." },
        { "Rule", "MatchMinVCPUs", &config_type_number, RULE(min_vcpus), "0", 0, UINT64_MAX, "vCPUs",
          "VMs of at least that many vCPUs." },
        { "Rule", "MatchMaxVCPUs", &config_type_number, RULE(max_vcpus), "infinity", 0, UINT64_MAX, "vCPUs",
          "VMs of at most that many vCPUs." },
        { "Rule", "Decision", &config_type_rule_decision, RULE(decision), "", 0, 0, NULL,
          "Whether they are built: auto, always or never." },
        { "Rule", "PageSize", &config_type_rule_page_size, RULE(page_size), "", 0, 0, NULL,
          "The page size of memory that is reserved for them." },
        { "Rule", "Nodes", &config_type_rule_nodes, RULE(nodes), "", 0, 0, NULL,
          "The NUMA nodes of memory that is reserved for them, like 0-1,3." },
        { "Rule", "Warm", &config_type_rule_warm, RULE(warm), "", 0, 0, NULL,
          "Whether memory that was populated ahead may serve them: yes or no." },
        { "Rule", "Adopt", &config_type_rule_adopt, RULE(adopt), "no", 0, 0, NULL,
          "Whether a VM that nobody has told tdpd of is attached to when KVM announces it, and counted as one "
          "of the user whose process it is: yes or no. It waits until the VM's memory stays the same. VMs "
          "that were there before tdpd are not announced." },
};
const size_t config_n_items = ELEMENTSOF(config_items);
