/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "manager.h"

/* "Draining", a(stau): the VM's name, bytes, and who holds them as far as that is known. */
int bus_get_draining(sd_bus *bus, const char *path, const char *interface, const char *property,
                     sd_bus_message *reply, void *userdata, sd_bus_error *error);
/* "DrainingBytes", a(utt): node, page size, bytes. */
int bus_get_draining_bytes(sd_bus *bus, const char *path, const char *interface, const char *property,
                           sd_bus_message *reply, void *userdata, sd_bus_error *error);
