/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bus-calibrate.h"

#include <errno.h>

#include "auth.h"
#include "bus-job.h"
#include "calibrate.h"
#include "log.h"
#include "options.h"

int bus_method_calibrate(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        Manager *m = userdata;
        VMOptions options;
        Caller caller;
        Job *j;
        int r;

        r = options_read(message, OPTION_CALIBRATE, &options, error);
        if (r < 0)
                return r;
        r = auth_get_admin(m, message, AUTH_CALIBRATE, &caller, error);
        if (r != 0)
                return r;
        r = calibrate_start(m, caller.uid, &j, error);
        if (r < 0)
                return r;
        bus_job_added(j);
        return sd_bus_reply_method_return(message, "o", j->path);
}

static int append_leaves(Manager *m, sd_bus_message *reply) {
        int r;

        r = sd_bus_message_open_container(reply, 'a', "(tdbdbs)");
        for (size_t i = 0; i < COST_SIZES && r >= 0; i++) {
                const CostLeaf *l = &m->cost.leaves[i];
                const char *missing = "";

                for (size_t k = 0; k < COST_SIZES; k++)
                        if (m->calibration.leaves[k].page_size == l->page_size)
                                missing = m->calibration.leaves[k].missing;
                r = sd_bus_message_append(reply, "(tdbdbs)", l->page_size, l->fault_ns,
                                          (int) l->fault_is_measured, l->build_ns,
                                          (int) l->build_is_measured, missing);
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

static int append_rates(Manager *m, sd_bus_message *reply) {
        int r;

        r = sd_bus_message_open_container(reply, 'a', "(utt)");
        for (size_t i = 0; i < m->calibration.n_rates && r >= 0; i++)
                r = sd_bus_message_append(reply, "(utt)", m->calibration.rates[i].node,
                                          m->calibration.rates[i].page_size,
                                          m->calibration.rates[i].bytes_per_sec);
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

static int append_entry(Manager *m, sd_bus_message *reply, const char *key, const char *type,
                        int (*append)(Manager *m, sd_bus_message *reply)) {
        int r;

        if ((r = sd_bus_message_open_container(reply, 'e', "sv")) < 0 ||
            (r = sd_bus_message_append(reply, "s", key)) < 0 ||
            (r = sd_bus_message_open_container(reply, 'v', type)) < 0 || (r = append(m, reply)) < 0 ||
            (r = sd_bus_message_close_container(reply)) < 0)
                return r;
        return sd_bus_message_close_container(reply);
}

int bus_get_calibration(sd_bus *bus, const char *path, const char *interface, const char *property,
                        sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        Manager *m = userdata;
        int r;

        if ((r = sd_bus_message_open_container(reply, 'a', "{sv}")) < 0 ||
            (r = sd_bus_message_append(reply, "{sv}{sv}", "measured-at", "t", m->cost.measured_at, "why",
                                       "s", m->calibration_why)) < 0 ||
            (r = append_entry(m, reply, "leaves", "a(tdbdbs)", append_leaves)) < 0 ||
            (r = append_entry(m, reply, "populate", "a(utt)", append_rates)) < 0)
                return r;
        return sd_bus_message_close_container(reply);
}

void bus_calibration_changed(Manager *m) {
        int r = sd_bus_emit_properties_changed(m->bus, "/org/tdpd1", "org.tdpd1.Manager", "Calibration",
                                               NULL);

        if (r < 0)
                log_warning_errno(r, "Signal PropertiesChanged cannot be sent");
}
