/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Memory of VMs that were released, and that another process has not let go of yet. */

#include "manager.h"

typedef struct Draining Draining;

/* Takes what is left of the VM's memory, and its charge. */
int draining_add(VM *vm);
void draining_done(Manager *m);
/* a(stau): the VM's name, bytes, and who holds them as far as that is known. */
int draining_append(Manager *m, sd_bus_message *reply);
/* a(utt): node, page size, bytes. */
int draining_append_bytes(Manager *m, sd_bus_message *reply);
