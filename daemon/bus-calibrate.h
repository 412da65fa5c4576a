/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "manager.h"

int bus_method_calibrate(sd_bus_message *message, void *userdata, sd_bus_error *error);
int bus_get_calibration(sd_bus *bus, const char *path, const char *interface, const char *property,
                        sd_bus_message *reply, void *userdata, sd_bus_error *error);
void bus_calibration_changed(Manager *m);
