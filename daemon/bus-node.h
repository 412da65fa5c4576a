/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "manager.h"

int bus_node_register(Manager *m);
int bus_node_append_list(Manager *m, sd_bus_message *reply, sd_bus_error *error);
