/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bus-explain.h"

#include <errno.h>
#include <inttypes.h>

#include "bus-error.h"
#include "decide.h"
#include "handle.h"
#include "manager.h"
#include "options.h"
#include "vm.h"

/* The slowest part's time, as parts are populated side by side; 0: not measured on all of these nodes. */
static uint64_t populate_usec(const Manager *m, const Placement *p) {
        uint64_t usec = 0;

        for (size_t i = 0; i < p->n_parts; i++) {
                uint64_t rate = calibration_rate(&m->calibration, p->parts[i].node, p->page_size);

                if (rate == 0)
                        return 0;
                usec = MAX_OF(usec, (uint64_t) ((double) p->parts[i].bytes * 1e6 / (double) rate));
        }
        return usec;
}

static const char *costs_from(const Manager *m, const CostLeaf *l) {
        if (m->calibration_why[0])
                return m->calibration_why;
        if (l->fault_is_measured && l->build_is_measured)
                return "";
        for (size_t i = 0; i < COST_SIZES; i++)
                if (m->calibration.leaves[i].page_size == l->page_size &&
                    m->calibration.leaves[i].missing[0])
                        return m->calibration.leaves[i].missing;
        return "this leaf size was not measured";
}

static int append_model(const Manager *m, sd_bus_message *reply, const Placement *p, const VMOptions *o,
                        const PolicyOutput *out) {
        const CostLeaf *l = cost_model_leaf(&m->cost, out->leaf_size);
        uint64_t usec = populate_usec(m, p);
        int r;

        r = sd_bus_message_append(reply, "{sv}{sv}{sv}{sv}{sv}{sv}{sv}{sv}{sv}{sv}{sv}", "leaf-size", "t",
                                  out->leaf_size, "pin-usec", "t", out->pin_usec, "vfio-bytes", "t",
                                  out->vfio_bytes, "rule", "s", out->rule, "fault-ns", "d", l->fault_ns,
                                  "fault-measured", "b", (int) l->fault_is_measured, "build-ns", "d",
                                  l->build_ns, "build-measured", "b", (int) l->build_is_measured,
                                  "measured-at", "t", m->cost.measured_at, "not-measured", "s",
                                  costs_from(m, l), "vcpus", "u", o->facts.values[FACT_VCPUS]);
        if (r >= 0)
                r = sd_bus_message_append(reply, "{sv}", "migrations", "u",
                                          o->facts.values[FACT_MIGRATIONS]);
        if (r >= 0 && usec > 0)
                r = sd_bus_message_append(reply, "{sv}", "populate-usec", "t", usec);
        return r;
}

static int append_plan(const Manager *m, sd_bus_message *reply, const VMOptions *o, const Placement *p,
                       const PolicyOutput *out) {
        _cleanup_free_ char *nodes = NULL;
        IdSet set = {};
        int r;

        for (size_t i = 0; i < p->n_parts; i++)
                idset_add(&set, p->parts[i].node);
        r = idset_format(&set, &nodes);
        if (r < 0)
                return r;

        r = sd_bus_message_open_container(reply, 'a', "{sv}");
        if (r < 0)
                return r;
        r = sd_bus_message_append(reply, "{sv}{sv}{sv}{sv}{sv}{sv}{sv}", "bytes", "t", o->bytes, "page-size",
                                  "t", p->page_size, "nodes", "s", nodes, "leaves", "t", out->leaves,
                                  "saved-usec", "t", out->saved_usec, "build-usec", "t", out->build_usec,
                                  "pinned-bytes", "t", out->pinned_bytes);
        if (r >= 0)
                r = append_model(m, reply, p, o, out);
        if (r < 0)
                return r;

        r = sd_bus_message_open_container(reply, 'e', "sv");
        if (r >= 0)
                r = sd_bus_message_append(reply, "s", "parts");
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'v', "a(ut)");
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(ut)");
        for (size_t i = 0; i < p->n_parts && r >= 0; i++)
                r = sd_bus_message_append(reply, "(ut)", p->parts[i].node, p->parts[i].bytes);
        for (unsigned i = 0; i < 4 && r >= 0; i++)
                r = sd_bus_message_close_container(reply);
        return r;
}

static int append_reasons(sd_bus_message *reply, const PolicyOutput *out, const char *no_pages) {
        int r;

        r = sd_bus_message_open_container(reply, 'a', "(ss)");
        for (size_t i = 0; i < out->n_reasons && r >= 0; i++) {
                const PolicyReason *reason = &out->reasons[i];

                r = sd_bus_message_append(reply, "(ss)", reason->word,
                                          no_pages && streq(reason->word, "no-pages") ? no_pages
                                                                                      : reason->text);
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

int bus_method_explain(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        __attribute__((cleanup(sd_bus_message_unrefp))) sd_bus_message *reply = NULL;
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error no_pages = SD_BUS_ERROR_NULL;
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        _cleanup_(placement_done) Placement placement = {};
        DecideRequest request;
        const Rule *rule;
        PolicyOutput out;
        Manager *m = userdata;
        VMOptions o;
        int r;

        r = options_read(message, OPTION_EXPLAIN, &o, error);
        if (r < 0)
                return r;
        r = o.name ? vm_check_plain(o.name, error) : 0;
        if (r < 0)
                return r;

        request = (DecideRequest){ .name = o.name, .bytes = o.bytes, .backed = true };
        if (m->config.rules.n > 0)
                decide_set_sender(&request, message);
        r = decide_prepare(m, &request, &o, &rule);
        if (r < 0)
                return r;

        r = manager_place(m, NULL, o.bytes, &o, &nodes, &placement, &no_pages);
        if (r < 0) {
                /* Too few pages is an answer, all else is a question that makes no sense. */
                if (!sd_bus_error_has_name(&no_pages, TDP_ERROR_NO_PAGES))
                        return sd_bus_error_is_set(&no_pages) ? sd_bus_error_copy(error, &no_pages) : r;
                request.has_no_pages = true;
                placement.page_size = o.page_size ?: base_page_size();
        }

        request.page_size = placement.page_size;
        decide(m, &request, &o, rule, &out);

        r = sd_bus_message_new_method_return(message, &reply);
        if (r < 0)
                return r;
        r = sd_bus_message_append(reply, "s", out.build ? "build" : "skip");
        if (r < 0)
                return r;
        r = append_reasons(reply, &out, no_pages.message);
        if (r < 0)
                return r;
        r = append_plan(m, reply, &o, &placement, &out);
        if (r < 0)
                return r;
        return sd_bus_send(NULL, reply, NULL);
}

static int append_kernel_info(sd_bus_message *reply, const struct kvm_gtdp_info *info) {
        static const uint64_t leaf_sizes[] = { 0, KIB(4), MIB(2), GIB(1) };
        _cleanup_free_ const char **names = NULL;
        int r;

        r = handle_features(info->features, &names);
        if (r < 0)
                return r;
        r = sd_bus_message_append(reply, "{sv}{sv}{sv}{sv}{sv}", "device", "b", true, "mode", "s",
                                  handle_mode_to_string(info->mode), "abi-version", "u", info->abi_version,
                                  "root-level", "u", info->root_level, "max-leaf", "t",
                                  info->max_leaf_level < ELEMENTSOF(leaf_sizes)
                                                  ? leaf_sizes[info->max_leaf_level]
                                                  : 0);
        if (r < 0)
                return r;
        r = sd_bus_message_open_container(reply, 'e', "sv");
        if (r >= 0)
                r = sd_bus_message_append(reply, "s", "features");
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'v', "as");
        if (r >= 0)
                r = sd_bus_message_append_strv(reply, (char **) names);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

int bus_get_kernel(sd_bus *bus, const char *path, const char *interface, const char *property,
                   sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        Manager *m = userdata;
        struct kvm_gtdp_info info;
        int r, k;

        k = handle_get_info(m->options.device, &info);
        r = sd_bus_message_open_container(reply, 'a', "{sv}");
        if (r < 0)
                return r;
        if (k < 0)
                r = sd_bus_message_append(
                                reply, "{sv}{sv}{sv}", "device", "b", false, "mode", "s", "none", "error",
                                "s",
                                k == -ENOENT   ? "no device: load the kvm modules of tdpd-kvm-modules"
                                : k == -EPROTO ? "the device speaks another version than this tdpd"
                                               : strerror(-k));
        else
                r = append_kernel_info(reply, &info);
        if (r < 0)
                return r;
        return sd_bus_message_close_container(reply);
}
