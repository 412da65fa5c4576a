/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The properties of a VM that come from the kernel at the time of the call. */

#include <systemd/sd-bus.h>

#include "manager.h"

int bus_vm_get_counter(sd_bus *bus, const char *path, const char *interface, const char *property,
                       sd_bus_message *reply, void *userdata, sd_bus_error *error);
int bus_vm_get_hole_reasons(sd_bus *bus, const char *path, const char *interface, const char *property,
                            sd_bus_message *reply, void *userdata, sd_bus_error *error);
int bus_vm_get_heals(sd_bus *bus, const char *path, const char *interface, const char *property,
                     sd_bus_message *reply, void *userdata, sd_bus_error *error);
int bus_vm_get_slots(sd_bus *bus, const char *path, const char *interface, const char *property,
                     sd_bus_message *reply, void *userdata, sd_bus_error *error);
int bus_vm_get_table_pages(sd_bus *bus, const char *path, const char *interface, const char *property,
                           sd_bus_message *reply, void *userdata, sd_bus_error *error);

int bus_vm_emit_holes(VM *vm, const uint64_t *lost, uint64_t healed);
