/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Room for a VM's memory: warm slabs of small pages go before it is allocated, which takes its time. */

#include "slab.h"

/* The VM's job is to free the slabs of that list, all of them, whatever comes of it; then "done". */
int room_make(VM *vm, Slab *leaving, void (*done)(VM *vm, int result));
/* They are not needed any more, but not for that. */
void room_close(Manager *m, Slab *leaving);
