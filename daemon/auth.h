/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Who asks, and what they may do.  Whatever cannot be found out means no. */

#include "manager.h"

typedef struct Caller {
        uid_t uid;
        pid_t pid;
        bool is_member; /* of the configured group */
} Caller;

/* The bus driver knows, and is asked about a connection by its unique name. */
int auth_ask_credentials(Manager *m, const char *sender, sd_bus_slot **ret_slot,
                         sd_bus_message_handler_t callback, void *userdata);
int auth_read_credentials(Manager *m, sd_bus_message *reply, Caller *ret);
#define AUTH_UNKNOWN_CALLER "the bus does not say who you are, so this is refused: check the bus daemon"

/* What root may do, and others if polkit says so. */
typedef enum AuthAction {
        AUTH_RELOAD,    /* the configuration */
        AUTH_POOLS,     /* sizes of pools */
        AUTH_VMS,       /* other users' VMs */
        AUTH_CALIBRATE, /* measure the host */
        AUTH_HANDOFF,   /* VMs to and from other hosts */
        _AUTH_ACTION_MAX,
} AuthAction;

/*
 * 0: they may.  Anything else is what the method returns: a negative error, with NotPermitted in "error", or
 * 1 while polkit is being asked; then the method is called again with the same message.
 *
 * Who has sent the message, if they may make VMs, or what only root may, or change this one; else
 * NotPermitted in "error", which is logged.  The subject is the sender's bus name, as the bus driver knows
 * it: a pid can be somebody else's by now.
 */
int auth_get_creator(Manager *m, sd_bus_message *message, Caller *ret, sd_bus_error *error);
int auth_get_admin(Manager *m, sd_bus_message *message, AuthAction action, Caller *ret, sd_bus_error *error);
int auth_get_changer(const VM *vm, sd_bus_message *message, Caller *ret, sd_bus_error *error);
/* A job may be canceled by who may change its VM; one of no VM by root and who has started it. */
int auth_get_job_changer(const Job *j, sd_bus_message *message, Caller *ret, sd_bus_error *error);

int auth_may_change(Manager *m, const Caller *c, const VM *vm, sd_bus_error *error);
/* To take the VM of a process that "uid" owns. */
int auth_may_take(const Caller *c, pid_t pid, uid_t uid, sd_bus_error *error);
/* To have limits of that cgroup hold, instead of those of their own: or nobody's would. */
int auth_may_charge(Manager *m, const Caller *c, const char *cgroup, sd_bus_error *error);
