/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What would fail later, and is told at the start: with what is there and what is needed. */

#include "node.h"

/* Memory that we may lock, against all that VMs of this host can have. */
void self_test_memlock(const char *sysfs_root);
