/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdio.h>

#include "account.h"
#include "heal.h"
#include "policy.h"

#define CONFIG_PATH_DEFAULT "/etc/tdpd/tdpd.conf"

typedef struct Config {
        Decision decision;
        uint64_t min_bytes;
        uint64_t min_saving_usec;
        AccountLimits limits;
        uint64_t threads; /* for each job and node */
        HealLimits heal;
        char *group;
} Config;

int config_init(Config *c); /* defaults */
void config_done(Config *c);

/* Unknown keys and bad values are told and skipped, as one bad line must not cost a host its VMs' memory.
 * -ENOENT if there is no such file. */
int config_load(Config *c, const char *path);

/* The shipped tdpd.conf, out of the table: every key, commented out, with its default. */
int config_dump(FILE *f);
