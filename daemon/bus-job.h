/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "manager.h"

int bus_job_register(Manager *m);
/* "/" for a job that is no VM's. */
const char *job_vm_path(const Job *j);
void bus_job_added(Job *j);
void bus_job_removed(Job *j, const char *result);
void bus_job_changed(Job *j, const char *property);
