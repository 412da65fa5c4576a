/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "auth.h"

#include <errno.h>
#include <stdio.h>

#include "bus-error.h"
#include "cgroup.h"
#include "job.h"
#include "polkit.h"
#include "refusal.h"
#include "turns.h"
#include "vm.h"

#define DRIVER "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus"

static int refuse(sd_bus_error *error) {
        return sd_bus_error_setf(error, TDP_ERROR_NOT_PERMITTED, AUTH_UNKNOWN_CALLER);
}

static int has_gid(sd_bus_message *m, gid_t gid, bool *ret) {
        const uint32_t *gids;
        size_t size;
        int r;

        r = sd_bus_message_enter_container(m, 'v', "au");
        if (r < 0)
                return r;
        r = sd_bus_message_read_array(m, 'u', (const void **) &gids, &size);
        if (r < 0)
                return r;
        for (size_t i = 0; i < size / sizeof(uint32_t); i++)
                *ret = *ret || gids[i] == gid;
        return sd_bus_message_exit_container(m);
}

int auth_read_credentials(Manager *m, sd_bus_message *reply, Caller *ret) {
        Caller c = { .uid = (uid_t) -1 };
        bool has_uid = false;
        int r;

        r = sd_bus_message_enter_container(reply, 'a', "{sv}");
        if (r < 0)
                return r;
        while ((r = sd_bus_message_enter_container(reply, 'e', "sv")) > 0) {
                const char *key;
                uint32_t v;

                r = sd_bus_message_read(reply, "s", &key);
                if (r < 0)
                        return r;
                if (streq(key, "UnixUserID")) {
                        r = sd_bus_message_read(reply, "v", "u", &v);
                        c.uid = v;
                        has_uid = r >= 0;
                } else if (streq(key, "ProcessID")) {
                        r = sd_bus_message_read(reply, "v", "u", &v);
                        c.pid = (pid_t) v;
                } else if (streq(key, "UnixGroupIDs") && m->has_group)
                        r = has_gid(reply, m->group, &c.is_member);
                else
                        r = sd_bus_message_skip(reply, "v");
                if (r < 0)
                        return r;
                r = sd_bus_message_exit_container(reply);
                if (r < 0)
                        return r;
        }
        if (r < 0)
                return r;
        if (!has_uid)
                return -ENODATA;
        *ret = c;
        return 0;
}

int auth_ask_credentials(Manager *m, const char *sender, sd_bus_slot **ret_slot,
                         sd_bus_message_handler_t callback, void *userdata) {
        return sd_bus_call_method_async(m->bus, ret_slot, DRIVER, "GetConnectionCredentials", callback,
                                        userdata, "s", sender);
}

static int get_caller(Manager *m, sd_bus_message *message, Caller *ret, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        const char *sender = sd_bus_message_get_sender(message);
        const Caller *known;
        int r;

        if (!sender)
                return refuse(error);
        known = turns_find(m->turns, sender);
        if (known) {
                *ret = *known;
                return 0;
        }
        /* The groups in this answer are those of the socket when it was connected (SO_PEERGROUPS). */
        r = sd_bus_call_method(m->bus, DRIVER, "GetConnectionCredentials", NULL, &reply, "s", sender);
        if (r < 0)
                return refuse(error);
        r = auth_read_credentials(m, reply, ret);
        if (r < 0)
                return refuse(error);
        return 0;
}

static int denied(sd_bus_message *message, const Caller *c, int r, const sd_bus_error *error) {
        return refusal_log_denied(message, c->uid, c->pid, r, error);
}

static int may_create(Manager *m, const Caller *c, sd_bus_error *error) {
        if (c->uid == 0 || c->is_member)
                return 0;
        return sd_bus_error_setf(
                        error, TDP_ERROR_NOT_PERMITTED,
                        "user %u may not do this: only root and group \"%s\" may; join the group, and log in "
                        "again",
                        c->uid, m->config.group);
}

int auth_may_change(Manager *m, const Caller *c, const VM *vm, sd_bus_error *error) {
        int r;

        r = may_create(m, c, error);
        if (r < 0)
                return r;
        if (c->uid == 0 || c->uid == vm->uid)
                return 0;
        return sd_bus_error_setf(
                        error, TDP_ERROR_NOT_PERMITTED,
                        "VM \"%s\" belongs to user %u and you are user %u: only its owner and root may do this",
                        vm->name, vm->uid, c->uid);
}

int auth_get_creator(Manager *m, sd_bus_message *message, Caller *ret, sd_bus_error *error) {
        int r;

        r = get_caller(m, message, ret, error);
        if (r < 0)
                return r;
        return denied(message, ret, may_create(m, ret, error), error);
}

static const char *const actions[_AUTH_ACTION_MAX] = {
        [AUTH_RELOAD] = "org.tdpd1.reload",   [AUTH_POOLS] = "org.tdpd1.manage-pools",
        [AUTH_VMS] = "org.tdpd1.manage-vms",  [AUTH_CALIBRATE] = "org.tdpd1.calibrate",
        [AUTH_HANDOFF] = "org.tdpd1.handoff",
};

/* "refusal" says who may: it is the rest of "user N may not do this: ...". */
static int ask_polkit(Manager *m, sd_bus_message *message, AuthAction action, const Caller *c,
                      const char *refusal, sd_bus_error *error) {
        _cleanup_free_ char *why = NULL;
        int r;

        r = polkit_check(m, message, c->uid, actions[action], &why, error);
        if (r > 0)
                return 0;
        if (r == 0)
                return 1;
        if (r != -EACCES)
                return r;
        r = sd_bus_error_setf(error, TDP_ERROR_NOT_PERMITTED, "%s, or whoever polkit allows %s; %s", refusal,
                              actions[action], why ?: "polkit says no");
        return denied(message, c, r, error);
}

int auth_get_admin(Manager *m, sd_bus_message *message, AuthAction action, Caller *ret,
                   sd_bus_error *error) {
        char refusal[64];
        int r;

        r = get_caller(m, message, ret, error);
        if (r < 0 || ret->uid == 0)
                return r;
        snprintf(refusal, sizeof(refusal), "user %u may not do this: only root may", ret->uid);
        return ask_polkit(m, message, action, ret, refusal, error);
}

int auth_get_changer(const VM *vm, sd_bus_message *message, Caller *ret, sd_bus_error *error) {
        _cleanup_(sd_bus_error_free) sd_bus_error refusal = SD_BUS_ERROR_NULL;
        int r;

        r = get_caller(vm->manager, message, ret, error);
        if (r < 0)
                return r;
        r = auth_may_change(vm->manager, ret, vm, &refusal);
        if (r >= 0)
                return r;
        return ask_polkit(vm->manager, message, AUTH_VMS, ret, refusal.message, error);
}

int auth_get_job_changer(const Job *j, sd_bus_message *message, Caller *ret, sd_bus_error *error) {
        char refusal[128];
        int r;

        if (j->vm)
                return auth_get_changer(j->vm, message, ret, error);
        r = get_caller(j->manager, message, ret, error);
        if (r < 0)
                return r;
        if (ret->uid == 0 || ret->uid == j->uid)
                return 0;
        snprintf(refusal, sizeof(refusal),
                 "this job is not yours (you are user %u): only root and who has started it may do this",
                 ret->uid);
        return ask_polkit(j->manager, message, AUTH_POOLS, ret, refusal, error);
}

int auth_may_take(const Caller *c, pid_t pid, uid_t uid, sd_bus_error *error) {
        if (c->uid == 0 || c->uid == uid)
                return 0;
        return sd_bus_error_setf(
                        error, TDP_ERROR_NOT_PERMITTED,
                        "process %i belongs to user %u and you are user %u: only its owner and root may do this",
                        (int) pid, uid, c->uid);
}

/* As the kernel lets them move processes: within their own cgroup, and in what was delegated to them. */
int auth_may_charge(Manager *m, const Caller *c, const char *cgroup, sd_bus_error *error) {
        _cleanup_free_ char *own = NULL;
        uid_t owner;

        if (c->uid == 0 ||
            (c->pid > 0 && cgroup_of_process(c->pid, &own) >= 0 && cgroup_is_below(cgroup, own)))
                return 0;
        if (cgroup_get_owner(m->options.sysfs_root, cgroup, &owner) >= 0 && owner == c->uid)
                return 0;
        return sd_bus_error_setf(
                        error, TDP_ERROR_NOT_PERMITTED,
                        "cgroup %.160s is not yours (you are user %u): name one below your own, %s, or one "
                        "that belongs to your user, or leave the option out",
                        cgroup, c->uid, own ?: "which is not known");
}
