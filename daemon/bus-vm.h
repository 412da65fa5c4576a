/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "manager.h"

int bus_vm_register(Manager *m);
void bus_vm_added(VM *vm);
void bus_vm_removed(VM *vm);
void bus_vm_changed(VM *vm, const char *property);
/* "lost" by reason, and healed, since the last call. */
void bus_vm_holes_changed(VM *vm, const uint64_t *lost, uint64_t healed);
void bus_vm_slots_changed(VM *vm);
/* The VM of an object path, or NULL. */
/* > 0: found, 0: there is none. */
int bus_vm_from_path(Manager *m, const char *path, VM **ret);
int bus_vm_release(VM *vm, sd_bus_message *message, sd_bus_error *error);
