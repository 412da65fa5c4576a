/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <systemd/sd-daemon.h>

#include "adopt.h"
#include "bus-error.h"
#include "clock.h"
#include "log-message.h"
#include "log.h"
#include "manager.h"
#include "queue.h"
#include "turns.h"
#include "vm-heal.h"
#include "vm.h"
#include "warm.h"

static void apply_limits(Manager *m, const Config *old) {
        m->accounts.limits = m->config.limits;
}

/* getgrnam() sets no error, or one of several, if there simply is no such group. */
static bool is_trouble(int error) {
        return error == ENOMEM || error == EIO || error == EMFILE || error == ENFILE || error == EINTR;
}

static void apply_group(Manager *m, const Config *old) {
        struct group *g;

        turns_forget(m->turns);
        errno = 0;
        g = getgrnam(m->config.group);
        if (g) {
                m->has_group = true;
                m->group = g->gr_gid;
                return;
        }
        /* That it cannot be looked up now does not make it another one. */
        if (m->has_group && is_trouble(errno) && streq(old->group, m->config.group)) {
                log_warning_errno(-errno, "Group \"%s\" cannot be looked up, it stays as it was",
                                  m->config.group);
                return;
        }
        /* Only root then: fail closed, and serve. */
        m->has_group = false;
        log_message(MESSAGE_NO_GROUP, FIELDS(FIELD_TEXT("TDP_GROUP", m->config.group)),
                    "There is no group \"%s\": only root may reserve and attach VMs", m->config.group);
}

static void apply_healing(Manager *m, const Config *old) {
        VM *vm, *tmp;

        HASH_ITER (hh, m->vms, vm, tmp)
                if (vm->healer)
                        healer_set_limits(vm->healer, &m->config.heal);
}

static void apply_policy(Manager *m, const Config *old) {
        if (old && old->decision != m->config.decision)
                (void) sd_bus_emit_properties_changed(m->bus, "/org/tdpd1", "org.tdpd1.Manager", "Policy",
                                                      NULL);
}

static void apply_warm(Manager *m, const Config *old) {
        if (m->warm)
                warm_reconfigure(m->warm);
}

static void apply_pools(Manager *m, const Config *old) {
        if (old) {
                pools_reconfigure(m);
                queue_kick(m);
        }
}

static void apply_costs(Manager *m, const Config *old) {
        if (old)
                m->cost.pin_usec_per_gib = m->config.pin_usec_per_gib;
        else
                manager_load_calibration(m);
}

static void apply_rules(Manager *m, const Config *old) {
        if (old) /* at the start there is no event loop yet */
                adopt_update(m);
}

/*
 * Everybody who has taken something over from the configuration, instead of looking when it is needed.
 * Called with the new one in place; "old" is NULL at the start, when there is neither bus nor VM.  It cannot
 * be refused any more: what may be refused is checked when the configuration is read.
 */
static void (*const consumers[])(Manager *m, const Config *old) = {
        apply_limits, apply_group, apply_healing, apply_policy,
        apply_warm,   apply_pools, apply_costs,   apply_rules,
};

static void manager_apply_config(Manager *m, const Config *old) {
        for (size_t i = 0; i < ELEMENTSOF(consumers); i++)
                consumers[i](m, old);
}

int manager_load_config(Manager *m) {
        ConfigError error;
        int r;

        r = config_load(&m->options.config, &m->config, &error);
        if (r < 0) {
                log_message(MESSAGE_CONFIG_REFUSED, FIELDS(FIELD_TEXT("TDP_REASON", error.text)),
                            "The configuration is refused: %s", error.text);
                (void) sd_notifyf(false, "STATUS=The configuration is refused: %s\nERRNO=%i", error.text,
                                  -r);
                /* Which says nothing about the configuration, and the next try may well have it. */
                return r == -ENOMEM ? r : -EBADMSG;
        }
        manager_apply_config(m, NULL);
        return 0;
}

int manager_reload(Manager *m, sd_bus_error *error) {
        _cleanup_(config_done) Config old = {};
        ConfigError why;
        Config new;
        int r;

        /* systemd waits for READY=1 after that. */
        (void) sd_notifyf(false, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_usec());
        r = config_load(&m->options.config, &new, &why);
        if (r >= 0) {
                old = m->config;
                m->config = new;
                manager_apply_config(m, &old);
                log_message(MESSAGE_CONFIG_READ,
                            FIELDS(FIELD_TEXT("TDP_POLICY", decision_to_string(new.decision))),
                            "The configuration has been read again");
        } else
                log_message(MESSAGE_CONFIG_REFUSED, FIELDS(FIELD_TEXT("TDP_REASON", why.text)),
                            "The new configuration is refused, the old one stays: %s", why.text);
        (void) sd_notifyf(false, "READY=1\nSTATUS=%s%s",
                          r < 0 ? "The new configuration is refused, the old one stays: "
                                : "Serving org.tdpd1.",
                          r < 0 ? why.text : "");
        if (r == -ENOMEM) /* which says nothing about the configuration */
                return r;
        if (r < 0)
                return sd_bus_error_setf(error, TDP_ERROR_CONFIG,
                                         "the new configuration is refused, the old one stays: %s",
                                         why.text);
        return 0;
}

static int on_hangup(sd_event_source *s, const struct signalfd_siginfo *si, void *userdata) {
        /* The error has been logged. */
        (void) manager_reload(userdata, NULL);
        return 0;
}

int manager_watch_reload(Manager *m) {
        return sd_event_add_signal(m->event, NULL, SIGHUP, on_hangup, m);
}
