/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* metrics: pools, VMs and handoffs as OpenMetrics text, of what the daemon tells on the bus. */

#include <inttypes.h>
#include <string.h>

#include "daemon.h"
#include "json.h"
#include "metrics.h"
#include "pool-list.h"
#include "size.h"
#include "verbs.h"

#define GAUGE(n, h)                                                                                         \
        { .name = (n), .type = METRIC_GAUGE, .help = (h) }
#define GAUGE_BYTES(n, h)                                                                                   \
        { .name = (n), .type = METRIC_GAUGE, .unit = "bytes", .help = (h) }
#define COUNTER(n, h)                                                                                       \
        { .name = (n), .type = METRIC_COUNTER, .help = (h) }
#define COUNTER_BYTES(n, h)                                                                                 \
        { .name = (n), .type = METRIC_COUNTER, .unit = "bytes", .help = (h) }

static const struct metric build_info =
                GAUGE("tdpd_build_info", "1, with the version of the tdpd that runs.");
static const struct metric kernel_usable =
                GAUGE("tdpd_kernel_usable", "1 if mappings can be built with the running kernel, 0 if not.");

struct property_metric {
        const char *property;
        struct metric metric;
};

static const struct property_metric node_metrics[] = {
        { "MemoryTotal", GAUGE_BYTES("tdpd_node_memory_bytes", "Memory of the NUMA node.") },
        { "MemoryFree", GAUGE_BYTES("tdpd_node_memory_free_bytes",
                                    "Free memory of the NUMA node. Pools of huge pages are not in it.") },
};

/* In the order of the property Pools, behind the page size. */
static const struct metric pool_metrics[] = {
        GAUGE_BYTES("tdpd_pool_bytes", "Huge pages in the node's pool, in use or not."),
        GAUGE_BYTES("tdpd_pool_free_bytes", "Of these, not in use; some may be reserved."),
        GAUGE_BYTES("tdpd_pool_reserved_bytes",
                    "Reserved by somebody and still free. The kernel has one figure for all nodes, which each of "
                    "them shows: do not add them up."),
        GAUGE_BYTES("tdpd_pool_surplus_bytes",
                    "Of the pool, pages above its size: they go when they are freed."),
        GAUGE_BYTES("tdpd_pool_leased_bytes", "Of the pool, claimed by VMs of tdpd."),
};

/* Of the manager's lists of (node, page size, bytes): in the order of node and size, with zeros for pools
 * that are not in it. */
static const struct property_metric pool_list_metrics[] = {
        { "WarmBytes", GAUGE_BYTES("tdpd_pool_warm_bytes",
                                   "Of the pool, allocated and cleared ahead, and no VM's yet.") },
        { "DrainingBytes",
          GAUGE_BYTES("tdpd_pool_leaked_bytes",
                      "Of the pool, memory of released VMs that somebody else still has open or mapped.") },
};

static const struct property_metric vm_metrics[] = {
        { "Bytes", GAUGE_BYTES("tdpd_vm_bytes", "The VM's memory.") },
        { "BuiltBytes", GAUGE_BYTES("tdpd_vm_built_bytes", "Memory whose mapping is to be there.") },
        { "MappedBytes", GAUGE_BYTES("tdpd_vm_mapped_bytes", "Of these, mapped now.") },
        { "Holes", GAUGE_BYTES("tdpd_vm_hole_bytes", "Of these, not mapped now.") },
        { "PinnedBytes", GAUGE_BYTES("tdpd_vm_pinned_bytes", "Pinned memory.") },
        { "HealedBytes", COUNTER_BYTES("tdpd_vm_healed_bytes", "Memory that was mapped again.") },
        { "FaultsSinceBuild", COUNTER("tdpd_vm_faults_since_build",
                                      "Second-level faults in built memory. A new build may reset it.") },
};

static const struct metric lost_metric = COUNTER_BYTES(
                "tdpd_vm_lost_bytes", "Memory that has lost its mapping (holes made), by reason.");

/* Of the contract. What a later daemon may add is told as "other": label values must not be without bound.
 */
static const char *const lost_reasons[] = {
        "notifier", "slot", "dirty-log", "nx-huge", "request", "other",
};

struct facts {
        struct tdp_value *manager;
        struct tdp_node *nodes;
        struct tdp_vm *vms;
        struct tdp_handoff *handoffs;
};

static void facts_done(struct facts *f) {
        tdp_value_free(f->manager);
        tdp_node_free(f->nodes);
        tdp_vm_free(f->vms);
        tdp_handoff_free(f->handoffs);
}

static int facts_read(struct tdp_ctx *ctx, struct facts *f) {
        struct tdp_vm *vm;
        int r;

        r = tdp_get_manager(ctx, &f->manager);
        if (r >= 0)
                r = tdp_list_nodes(ctx, &f->nodes);
        if (r >= 0)
                r = tdp_list_vms(ctx, &f->vms);
        if (r >= 0)
                r = tdp_list_handoffs(ctx, &f->handoffs);
        if (r < 0)
                return r;
        tdp_vm_foreach (f->vms, vm) {
                r = tdp_vm_refresh(vm);
                if (r < 0 && r != -ENOENT) /* gone since the list: it has no properties then */
                        return r;
        }
        return 0;
}

void metrics_begin(const struct sink *s, const struct metric *m) {
        if (s->f)
                openmetrics_family(s->f, m);
}

void metrics_emit(const struct sink *s, const struct metric *m, const struct label *labels, size_t n_labels,
                  uint64_t value) {
        json_object *o, *l;

        if (s->f) {
                openmetrics_sample(s->f, m, labels, n_labels, value);
                return;
        }
        o = json_object_new_object();
        l = json_object_new_object();
        json_add_string(o, "name", m->name);
        json_add_string(o, "type", metric_type_to_string(m->type));
        json_add_string(o, "unit", m->unit);
        for (size_t i = 0; i < n_labels; i++)
                json_add_string(l, labels[i].name, labels[i].value);
        json_object_object_add(o, "labels", l);
        json_add_uint(o, "value", value);
        json_object_array_add(s->array, o);
}

static void emit_host(const struct sink *s, const struct facts *f) {
        const char *version = tdp_value_get_string(tdp_value_find(f->manager, "Version"));
        const struct tdp_value *device = tdp_value_find(tdp_value_find(f->manager, "Kernel"), "device");

        metrics_begin(s, &build_info);
        metrics_emit(s, &build_info, &(struct label){ "version", version ?: "" }, 1, 1);
        metrics_begin(s, &kernel_usable);
        metrics_emit(s, &kernel_usable, NULL, 0, tdp_value_get_bool(device));
}

static const char *node_name(const struct tdp_node *node, char buf[static 16]) {
        (void) snprintf(buf, 16, "%" PRIu32, tdp_node_get_id(node));
        return buf;
}

static void emit_nodes(const struct sink *s, const struct facts *f) {
        const struct tdp_node *node;
        char name[16];

        for (size_t i = 0; i < ELEMENTSOF(node_metrics); i++) {
                const struct property_metric *p = &node_metrics[i];

                metrics_begin(s, &p->metric);
                tdp_node_foreach (f->nodes, node)
                        metrics_emit(s, &p->metric, &(struct label){ "node", node_name(node, name) }, 1,
                                     tdp_value_get_uint(tdp_value_find(tdp_node_get_properties(node),
                                                                       p->property)));
        }
}

static uint64_t pages_to_bytes(uint64_t pages, uint64_t page_size) {
        uint64_t bytes;

        return __builtin_mul_overflow(pages, page_size, &bytes) ? UINT64_MAX : bytes;
}

static void emit_pools(const struct sink *s, const struct facts *f) {
        const struct tdp_value *pool;
        const struct tdp_node *node;

        for (size_t i = 0; i < ELEMENTSOF(pool_metrics); i++) {
                metrics_begin(s, &pool_metrics[i]);
                tdp_node_foreach (f->nodes, node)
                        tdp_value_foreach (tdp_value_find(tdp_node_get_properties(node), "Pools"), pool) {
                                uint64_t page_size = tdp_value_get_uint(tdp_value_at(pool, 0));
                                uint64_t pages = tdp_value_get_uint(tdp_value_at(pool, (unsigned) i + 1));
                                char name[16], size[SIZE_TEXT_MAX];

                                metrics_emit(s, &pool_metrics[i],
                                             (struct label[]){
                                                             { "node", node_name(node, name) },
                                                             { "page_size", size_format(page_size, size) } },
                                             2, pages_to_bytes(pages, page_size));
                        }
        }
}

/* Small pages have no pool, and warm memory all the same. */
static void emit_pool_lists(const struct sink *s, const struct facts *f) {
        for (size_t i = 0; i < ELEMENTSOF(pool_list_metrics); i++) {
                const struct property_metric *p = &pool_list_metrics[i];
                const struct tdp_value *list = tdp_value_find(f->manager, p->property), *pool, *v;
                char name[16], size[SIZE_TEXT_MAX];
                const struct tdp_node *node;

                if (!list) /* of an older daemon, which has nothing of that kind */
                        continue;
                metrics_begin(s, &p->metric);
                tdp_node_foreach (f->nodes, node)
                        tdp_value_foreach (tdp_value_find(tdp_node_get_properties(node), "Pools"), pool) {
                                uint64_t page_size = tdp_value_get_uint(tdp_value_at(pool, 0));

                                metrics_emit(s, &p->metric,
                                             (struct label[]){
                                                             { "node", node_name(node, name) },
                                                             { "page_size", size_format(page_size, size) } },
                                             2, pool_list_get(list, tdp_node_get_id(node), page_size));
                        }
                tdp_value_foreach (list, v) {
                        uint64_t id = tdp_value_get_uint(tdp_value_at(v, 0)),
                                 page_size = tdp_value_get_uint(tdp_value_at(v, 1));

                        if (nodes_have_pool(f->nodes, id, page_size))
                                continue;
                        (void) snprintf(name, sizeof(name), "%" PRIu64, id);
                        metrics_emit(s, &p->metric,
                                     (struct label[]){ { "node", name },
                                                       { "page_size", size_format(page_size, size) } },
                                     2, tdp_value_get_uint(tdp_value_at(v, 2)));
                }
        }
}

static const struct metric target_metric =
                GAUGE_BYTES("tdpd_pool_target_bytes",
                            "Huge pages that the node's pool is to have, of the configuration or set.");

static void emit_targets(const struct sink *s, const struct facts *f) {
        const struct tdp_value *target;
        const struct tdp_node *node;

        metrics_begin(s, &target_metric);
        tdp_node_foreach (f->nodes, node)
                tdp_value_foreach (tdp_value_find(tdp_node_get_properties(node), "Targets"), target) {
                        uint64_t page_size = tdp_value_get_uint(tdp_value_at(target, 0));
                        char name[16], size[SIZE_TEXT_MAX];

                        metrics_emit(s, &target_metric,
                                     (struct label[]){ { "node", node_name(node, name) },
                                                       { "page_size", size_format(page_size, size) } },
                                     2,
                                     pages_to_bytes(tdp_value_get_uint(tdp_value_at(target, 1)), page_size));
                }
}

static uint64_t lost_for(const struct tdp_value *by_reason, size_t reason) {
        bool other = reason == ELEMENTSOF(lost_reasons) - 1;
        const struct tdp_value *v;
        uint64_t sum = 0;

        tdp_value_foreach (by_reason, v) {
                size_t i = 0;

                while (i < ELEMENTSOF(lost_reasons) && strcmp(tdp_value_get_key(v), lost_reasons[i]) != 0)
                        i++;
                if (i == reason || (other && i == ELEMENTSOF(lost_reasons)))
                        sum += tdp_value_get_uint(v);
        }
        return sum;
}

static void emit_vms(const struct sink *s, const struct facts *f) {
        const struct tdp_vm *vm;

        for (size_t i = 0; i < ELEMENTSOF(vm_metrics); i++) {
                const struct property_metric *p = &vm_metrics[i];

                metrics_begin(s, &p->metric);
                tdp_vm_foreach (f->vms, vm)
                        if (tdp_vm_get_properties(vm))
                                metrics_emit(s, &p->metric, &(struct label){ "vm", tdp_vm_get_name(vm) }, 1,
                                             tdp_value_get_uint(tdp_value_find(tdp_vm_get_properties(vm),
                                                                               p->property)));
        }

        metrics_begin(s, &lost_metric);
        tdp_vm_foreach (f->vms, vm) {
                const struct tdp_value *lost = tdp_value_find(tdp_vm_get_properties(vm), "HoleReasons");

                for (size_t i = 0; tdp_vm_get_properties(vm) && i < ELEMENTSOF(lost_reasons); i++)
                        metrics_emit(s, &lost_metric,
                                     (struct label[]){ { "vm", tdp_vm_get_name(vm) },
                                                       { "reason", lost_reasons[i] } },
                                     2, lost_for(lost, i));
        }
}

int verb_metrics(const struct args *args) {
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        _cleanup_(facts_done) struct facts facts = {};
        struct sink s = {};
        int r;

        r = daemon_connect(args, &ctx);
        if (r < 0)
                return EXIT_NO_DAEMON;
        /* All is read before the first line: half an answer would look like VMs that have gone. */
        r = facts_read(ctx, &facts);
        if (r < 0)
                return daemon_failed(ctx, r);

        if (args->json != JSON_OFF)
                s.array = json_object_new_array();
        else
                s.f = stdout;
        emit_host(&s, &facts);
        emit_nodes(&s, &facts);
        emit_pools(&s, &facts);
        emit_pool_lists(&s, &facts);
        emit_targets(&s, &facts);
        emit_vms(&s, &facts);
        metrics_handoffs(&s, facts.handoffs, tdp_value_find(facts.manager, "HandoffOutcomes"));
        if (args->json != JSON_OFF)
                return json_print(args, s.array) < 0 ? EXIT_FAILED : EXIT_OK;
        openmetrics_end(stdout);
        return EXIT_OK;
}
