/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The configuration: a value that is read as a whole, or refused as a whole.  config-table.c has the keys;
 * config-files.c says which files are read, and in which order.
 */

#include <stdio.h>

#include "account.h"
#include "heal.h"
#include "policy.h"
#include "pool-spec.h"
#include "rule.h"
#include "warm-spec.h"

#define CONFIG_PATH_DEFAULT "/etc/tdpd/tdpd.conf"

typedef struct Config {
        Decision decision;
        uint64_t min_bytes;
        uint64_t min_saving_usec;
        uint64_t pin_usec_per_gib;
        RuleSet rules;
        AccountLimits limits;
        uint64_t max_waiting; /* for pages, of all users */
        uint64_t threads;     /* for each job and node */
        HealLimits heal;
        WarmSpecs warm;
        uint64_t warm_max_pressure; /* percent */
        uint64_t warm_max_load;     /* percent of all CPUs */
        PoolsConfig pools;
        char *group;
        uint64_t polkit_timeout_sec;
} Config;

/* Where it comes from. */
typedef struct ConfigSource {
        const char *file; /* this one only, and it must be there; NULL: the usual ones, none of which must */
        const char *root; /* of the usual ones; NULL: / */
} ConfigSource;

/* Why it was refused, for people: file, line, key, what is there and what may be.  ASCII, so that it can be
 * sent to anybody. */
typedef struct ConfigError {
        char text[768];
} ConfigError;

int config_init(Config *c); /* defaults */
void config_done(Config *c);

/*
 * Unknown sections and keys are logged and skipped: they are a newer version's.  Whatever else makes no
 * sense, or cannot be read, is the end, with "error" set and *ret untouched.
 */
int config_load(const ConfigSource *source, Config *ret, ConfigError *error);

/* Adds what a text says to what is there already.  "path" is for messages only. */
int config_parse(Config *c, const char *path, const char *text, size_t size, ConfigError *error);

/* The shipped tdpd.conf, out of the table: every key, commented out, with its default. */
int config_dump(FILE *f);
/* The same keys as a part of tdpd.conf(5). */
int config_dump_man(FILE *f);
