/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Owns everything: bus, event loop, configuration and all objects. */

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

#include "account.h"
#include "calibration.h"
#include "config.h"
#include "keep.h"
#include "node.h"
#include "options.h"
#include "placement.h"
#include "pools.h"

typedef struct VM VM;
typedef struct Job Job;
typedef struct Warm Warm;

typedef struct ManagerOptions {
        ConfigSource config;
        const char *bus_address; /* NULL: the system bus */
        const char *sysfs_root;
        const char *proc_root;
        const char *device;
        const char *state_dir; /* NULL: nothing is kept */
        const char *data_dir;
} ManagerOptions;

struct Manager {
        ManagerOptions options;
        Config config;
        sd_event *event;
        sd_bus *bus;

        Accounts accounts;
        struct Turns *turns; /* of those who call */
        struct PolkitQuery *polkit_queries;
        Pools pools;
        struct HoldersQuery *holders_query;
        bool has_group;
        gid_t group;

        /* What a decision costs and saves on this host. */
        Calibration calibration;   /* all zeros: there is none */
        char calibration_why[512]; /* then: why */
        CostModel cost;
        struct Calibrate *calibrate; /* the one that runs, or NULL */
        struct Adopt *adopt;         /* NULL if no rule says so */

        struct BusNode *bus_nodes; /* what the bus knows of nodes: their ids */
        VM *vms;                   /* by name */
        Job *jobs;                 /* by id */
        uint32_t last_job_id;
        Warm *warm;                /* slabs that are no VM's yet */
        struct Queue *queue;       /* of those that wait for pages */
        struct Handoffs *handoffs; /* or NULL */

        Keeper keeper;
        struct DrainWatch *drain_watch;
        struct Draining *draining;
        struct DrainScan *drain_scan; /* the one that runs, or NULL */
        uint64_t drain_scan_usec;     /* when the last one has ended */
        sd_event_source *drain_timer; /* for the next one */
        struct Quarantine *quarantine;
};

int manager_new(const ManagerOptions *options, Manager **ret);
int manager_startup(Manager *m);
int manager_run(Manager *m);

/* manager-config.c: the configuration, at start.  Refused: the error is logged and told to systemd. */
int manager_load_config(Manager *m);
/* And later: all of the new one, or InvalidConfig in "error" and the old one stays. */
int manager_reload(Manager *m, sd_bus_error *error);
/* SIGHUP does the same. */
int manager_watch_reload(Manager *m);

Manager *manager_free(Manager *m);
DEFINE_CLEANUP(Manager, manager_free);

/* What our VMs and warm slabs have claimed, by node and page size. */
int manager_claims(Manager *m, Claim **ret, size_t *ret_n);
PlacementRequest manager_placement_request(uint64_t bytes, const VMOptions *o);
int manager_load_nodes(Manager *m, NodeTable **ret, sd_bus_error *error);
/* Where memory of that size and with those options would go now.  Nothing is claimed by that.  "waiting" is
 * the VM that it is for if that waits already, or NULL: then all that wait go first. */
int manager_place(Manager *m, const VM *waiting, uint64_t bytes, const VMOptions *o, NodeTable **ret_nodes,
                  Placement *ret, sd_bus_error *error);
/* Reads what was measured, and makes the model of it. */
void manager_load_calibration(Manager *m);
/* The facts of this host that a decision depends on. */
void manager_policy_facts(Manager *m, PolicyInput *in);
