/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "manager.h"

int bus_manager_register(Manager *m);
void bus_manager_changed(Manager *m, const char *property);
