/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the Manager says of warm slabs. */

#include "manager.h"

int bus_get_warm(sd_bus *bus, const char *path, const char *interface, const char *property,
                 sd_bus_message *reply, void *userdata, sd_bus_error *error);
int bus_get_warm_bytes(sd_bus *bus, const char *path, const char *interface, const char *property,
                       sd_bus_message *reply, void *userdata, sd_bus_error *error);
void bus_warm_changed(Manager *m);
