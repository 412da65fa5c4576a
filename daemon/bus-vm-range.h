/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "job.h"

/* Heal, Split and Collapse: the same method but for the job's type. */
int bus_vm_start_range_job(VM *vm, sd_bus_message *message, JobType type, sd_bus_error *error);
