/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "manager.h"

#include <errno.h>
#include <signal.h>
#include <systemd/sd-daemon.h>

#include "adopt.h"
#include "bus-error.h"
#include "bus-handoff.h"
#include "bus-holders.h"
#include "bus-job.h"
#include "bus-log-control.h"
#include "bus-manager.h"
#include "bus-node.h"
#include "bus-vm.h"
#include "drain-keep.h"
#include "draining.h"
#include "handle.h"
#include "handoff-keep.h"
#include "job.h"
#include "log-message.h"
#include "polkit.h"
#include "process.h"
#include "quarantine.h"
#include "queue.h"
#include "self-test.h"
#include "takeover.h"
#include "turns.h"
#include "vm.h"
#include "warm.h"

#define BUS_NAME "org.tdpd1"

Manager *manager_free(Manager *m) {
        VM *vm, *tmp;

        if (!m)
                return NULL;

        handoffs_free(m);
        HASH_ITER (hh, m->vms, vm, tmp)
                vm_free(vm);
        while (m->jobs)
                job_free(m->jobs);
        queue_free(m->queue);
        warm_free(m->warm);
        polkit_done(m);
        draining_done(m);
        drain_keep_done(m);
        quarantine_done(m);
        keeper_done(m);
        pools_done(m);
        turns_free(m->turns);
        holders_query_done(m);
        sd_bus_flush_close_unref(m->bus);
        sd_event_unref(m->event);
        config_done(&m->config);
        free(m->bus_nodes);
        free(m);
        return NULL;
}

int manager_new(const ManagerOptions *options, Manager **ret) {
        _cleanup_(manager_freep) Manager *m = NULL;
        int r;

        m = calloc(1, sizeof(*m));
        if (!m)
                return log_oom();
        m->options = *options;

        r = keeper_init(m, options->state_dir);
        if (r < 0)
                return r;
        r = manager_load_config(m);
        if (r == -EBADMSG && fdstore_count(m->keeper.store) > 0)
                /* Were we given up, the service manager would drop them. */
                return log_error_errno(-EAGAIN,
                                       "VMs of the tdpd before wait for a configuration that makes sense");
        if (r < 0)
                return r;
        r = sd_event_default(&m->event);
        if (r < 0)
                return log_error_errno(r, "No event loop");

        *ret = TAKE_PTR(m);
        return 0;
}

static int manager_connect(Manager *m) {
        int r;

        if (m->options.bus_address) {
                r = sd_bus_new(&m->bus);
                if (r < 0)
                        return log_oom();
                r = sd_bus_set_address(m->bus, m->options.bus_address);
                if (r < 0)
                        return log_error_errno(r, "Bus address %s is malformed", m->options.bus_address);
                r = sd_bus_set_bus_client(m->bus, true);
                if (r < 0)
                        return log_error_errno(r, "Bus cannot be set up");
                r = sd_bus_start(m->bus);
        } else
                r = sd_bus_open_system(&m->bus);
        if (r < 0)
                return log_error_errno(r, "The %s%s cannot be reached, look if its dbus-daemon runs",
                                       m->options.bus_address ? "bus at " : "system bus",
                                       m->options.bus_address ?: "");

        r = sd_bus_attach_event(m->bus, m->event, SD_EVENT_PRIORITY_NORMAL);
        if (r < 0)
                return log_error_errno(r, "Bus and event loop do not go together");
        /* Without a bus nobody can reach us, and systemd can start us again. */
        (void) sd_bus_set_exit_on_disconnect(m->bus, true);

        r = turns_new(m, &m->turns);
        if (r < 0)
                return log_error_errno(r, "Calls cannot take turns");
        if ((r = sd_bus_add_object_manager(m->bus, NULL, "/org/tdpd1")) < 0 ||
            (r = bus_manager_register(m)) < 0 || (r = bus_node_register(m)) < 0 ||
            (r = bus_vm_register(m)) < 0 || (r = bus_job_register(m)) < 0 ||
            (r = bus_handoff_register(m)) < 0 || (r = bus_log_control_register(m)) < 0)
                return log_error_errno(r, "Registering the bus objects failed");

        /* Whoever sees our name sees all VMs. */
        r = takeover(m);
        if (r >= 0)
                r = handoff_take_over(m);
        if (r < 0)
                return r;
        r = sd_bus_request_name(m->bus, BUS_NAME, 0);
        if (r == -EEXIST)
                return log_error_errno(r, "Bus name " BUS_NAME " is taken: another tdpd runs");
        if (r < 0)
                return log_error_errno(r, "Bus name " BUS_NAME " cannot be had");
        return 0;
}

int manager_startup(Manager *m) {
        int r;

        r = sd_event_set_signal_exit(m->event, true);
        if (r < 0)
                return log_error_errno(r, "SIGTERM and SIGINT cannot be watched");
        r = sd_event_set_watchdog(m->event, true);
        if (r < 0)
                return log_error_errno(r, "The watchdog cannot be served");
        r = warm_new(m, &m->warm);
        if (r < 0)
                return log_error_errno(r, "Warm slabs cannot be kept");
        r = queue_new(m, &m->queue);
        if (r < 0)
                return log_error_errno(r, "Requests cannot wait for pages");
        r = handoffs_new(m);
        if (r < 0)
                return r;
        self_test_memlock(m->options.sysfs_root);
        r = manager_watch_reload(m);
        if (r < 0)
                return log_error_errno(r, "SIGHUP cannot be watched");
        r = manager_connect(m);
        if (r < 0)
                return r;
        adopt_update(m);
        return pools_start(m);
}

int manager_run(Manager *m) {
        int r;

        log_message(MESSAGE_DAEMON_READY, FIELDS(FIELD_TEXT("TDP_VERSION", TDPD_VERSION)),
                    "tdpd %s serves " BUS_NAME, TDPD_VERSION);
        (void) sd_notify(false, "READY=1\nSTATUS=Serving " BUS_NAME ".");
        r = sd_event_loop(m->event);
        keeper_flush(m);
        log_message(MESSAGE_DAEMON_STOPPING, FIELDS(FIELD_NUMBER("TDP_VMS", HASH_COUNT(m->vms))),
                    "Stopping with %u VMs", HASH_COUNT(m->vms));
        (void) sd_notify(false, "STOPPING=1\nSTATUS=Ending.");
        keeper_say_what_stays(m);
        if (r < 0)
                return log_error_errno(r, "The event loop failed");
        return r;
}

static Claim claim_of(const Memory *m, const MemoryPart *part) {
        return (Claim){
                .node = part->node,
                .page_size = m->page_size,
                .unallocated = memory_part_unallocated(part),
                .bytes = part->bytes,
        };
}

int manager_claims(Manager *m, Claim **ret, size_t *ret_n) {
        _cleanup_free_ Claim *claims = NULL;
        size_t n = 0, max = warm_count(m->warm);
        VM *vm, *tmp;

        HASH_ITER (hh, m->vms, vm, tmp)
                max += vm->memory ? vm->memory->n_parts : 0;
        claims = calloc(max + 1, sizeof(Claim));
        if (!claims)
                return -ENOMEM;
        HASH_ITER (hh, m->vms, vm, tmp)
                for (size_t i = 0; vm->memory && i < vm->memory->n_parts; i++)
                        claims[n++] = claim_of(vm->memory, &vm->memory->parts[i]);

        for (const Slab *s = warm_first(m->warm); s; s = s->next)
                claims[n++] = claim_of(s->memory, &s->memory->parts[0]);

        *ret = TAKE_PTR(claims);
        *ret_n = n;
        return 0;
}

int manager_load_nodes(Manager *m, NodeTable **ret, sd_bus_error *error) {
        int r;

        r = node_table_load(m->options.sysfs_root, ret);
        if (r < 0)
                return sd_bus_error_setf(error, TDP_ERROR_FAILED,
                                         "the NUMA nodes cannot be read from %s/devices/system/node: %s",
                                         m->options.sysfs_root, strerror(-r));
        for (size_t i = 0; i < (*ret)->n_nodes; i++)
                for (size_t k = 0; k < (*ret)->nodes[i].n_pools; k++) {
                        Pool *p = &(*ret)->nodes[i].pools[k];
                        const PoolSpec *s = pool_specs_find(&m->config.pools.reserved, (*ret)->nodes[i].id,
                                                            p->page_size);

                        p->for_others = s ? s->pages : 0;
                }
        return 0;
}

PlacementRequest manager_placement_request(uint64_t bytes, const VMOptions *o) {
        PlacementRequest request = {
                .bytes = bytes,
                .page_size = o->page_size,
                .has_nodes = o->has_nodes,
                .nodes = o->nodes,
                .has_cpus = o->has_cpus,
                .cpus = o->cpus,
                .numa_mode = o->numa_mode,
                .vcpus = o->facts.values[FACT_VCPUS],
                .n_parts = o->n_parts,
        };

        memcpy(request.parts, o->parts, o->n_parts * sizeof(PlacementPart));
        return request;
}

int manager_place(Manager *m, const VM *waiting, uint64_t bytes, const VMOptions *o, NodeTable **ret_nodes,
                  Placement *ret, sd_bus_error *error) {
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        _cleanup_free_ Claim *claims = NULL;
        PlacementRequest request = manager_placement_request(bytes, o);
        size_t n_claims;
        int r;

        r = manager_load_nodes(m, &nodes, error);
        if (r < 0)
                return r;
        queue_mark(m, waiting, nodes);
        r = manager_claims(m, &claims, &n_claims);
        if (r < 0)
                return r;
        r = placement_make(nodes, claims, n_claims, &request, ret, error);
        if (r < 0)
                return r;
        *ret_nodes = TAKE_PTR(nodes);
        return 0;
}

void manager_load_calibration(Manager *m) {
        CalibrationHost host;
        int r;

        calibration_get_host(&host);
        m->calibration = (Calibration){};
        m->calibration_why[0] = '\0';
        cost_model_init(&m->cost, m->config.pin_usec_per_gib);
        r = calibration_load(m->options.data_dir, &host, &m->calibration, m->calibration_why,
                             sizeof(m->calibration_why));
        if (r >= 0) {
                calibration_apply(&m->calibration, &m->cost);
                return;
        }
        if (r == -ENOENT)
                log_debug("Deciding with defaults: %s", m->calibration_why);
        else
                log_warning("Deciding with defaults: %s", m->calibration_why);
}

void manager_policy_facts(Manager *m, PolicyInput *in) {
        struct kvm_gtdp_info info;

        in->configured = m->config.decision;
        in->min_bytes = m->config.min_bytes;
        in->min_saving_usec = m->config.min_saving_usec;
        in->model = m->cost;
        /* The kernel holds whoever attaches to their limit, so it is ours that counts and not the VMM's. */
        in->memlock_known = process_get_memlock(getpid(), &in->memlock_limit) >= 0;
        if (handle_get_info(m->options.device, &info) < 0)
                return;
        in->has_device = true;
        in->shadow = info.mode == KVM_GTDP_MODE_SHADOW;
        in->nx_huge = info.features & KVM_GTDP_FEAT_NX_HUGE;
        in->max_leaf_level = info.max_leaf_level;
}
