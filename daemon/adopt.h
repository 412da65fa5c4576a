/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Takes VMs that nobody has told us of, where a rule says so (Adopt=yes).  KVM announces a VM when it is
 * made, which is before it has memory: it is looked at again and again, for some minutes, until its memory
 * stays the same.
 */

#include "manager.h"

/* Listens if there is a rule that adopts, and stops if there is none.  To be called again when rules change.
 */
void adopt_update(Manager *m);
struct Adopt *adopt_free(struct Adopt *a);
