/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The two members of the Manager that answer questions and change nothing. */

#include <systemd/sd-bus.h>

int bus_method_explain(sd_bus_message *message, void *userdata, sd_bus_error *error);
int bus_get_kernel(sd_bus *bus, const char *path, const char *interface, const char *property,
                   sd_bus_message *reply, void *userdata, sd_bus_error *error);
