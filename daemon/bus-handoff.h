/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* org.tdpd1.Handoff, and the calls that begin one. */

#include "handoffs.h"

#define HANDOFF_PREFIX "/org/tdpd1/handoff"

int bus_handoff_register(Manager *m);
void bus_handoff_added(Handoff *h);
void bus_handoff_removed(Handoff *h);
/* Its state, or what it has to say. */
void bus_handoff_changed(Handoff *h);

/* bus-handoff-calls.c */
int bus_method_offer_handoff(sd_bus_message *message, void *userdata, sd_bus_error *error); /* of a VM */
int bus_method_prepare_incoming(sd_bus_message *message, void *userdata, sd_bus_error *error);
int bus_method_deliver_handoff(sd_bus_message *message, void *userdata, sd_bus_error *error);
int bus_method_list_handoffs(sd_bus_message *message, void *userdata, sd_bus_error *error);
/* The object of a VM's handoff, or "/". */
int bus_get_vm_handoff(sd_bus *bus, const char *path, const char *interface, const char *property,
                       sd_bus_message *reply, void *userdata, sd_bus_error *error);
