/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What the configuration is made of.  A row in config-table.c is all that a key needs: the shipped file, the
 * manual page, the messages and --dump-config come from it.
 */

#include "config.h"

typedef struct ConfigItem ConfigItem;

/* How a kind of value is read. */
typedef struct ConfigType {
        /* Adds to a list, replaces any other value.  -EINVAL or -ERANGE if it is none; what may be there is
         * told from the table then, unless the parser says more with config_refuse(). */
        int (*parse)(const ConfigItem *item, const char *value, void *target, ConfigError *error);
        void (*done)(void *target); /* frees what a value holds, and leaves zeros.  NULL: nothing to free */
        bool is_list;               /* more than one line adds up, and an empty one takes all away */
        const char *allowed;        /* for people; NULL: min to max */
} ConfigType;

struct ConfigItem {
        const char *section;
        const char *key;
        const ConfigType *type;
        size_t offset;     /* in Config, or in the instance of a named section */
        const char *value; /* default; "" for a list: none */
        uint64_t min, max;
        const char *unit; /* for people, as in "10 seconds"; NULL: none */
        const char *doc;  /* sentences */
};

typedef struct ConfigSection {
        const char *name;
        const char *doc; /* sentences, or NULL */

        /* For [NAME of something], as often as there are different ones; NULL: [NAME], once.  Gives the
         * one of that name, new and zeroed if there was none; -EINVAL, with config_refuse(), if that is no
         * name for one. */
        int (*instance)(Config *c, const char *name, void **ret, bool *ret_is_new, ConfigError *error);
        void (*done)(Config *c); /* frees all of them: config_instance_done() for each, and the rest */

        /* Once all is read: what values of several keys must be to each other.  May be NULL. */
        int (*check)(const Config *c, ConfigError *error);
} ConfigSection;

extern const ConfigSection config_sections[];
extern const size_t config_n_sections;
extern const ConfigItem config_items[];
extern const size_t config_n_items;

void config_instance_done(const char *section, void *instance);

/* Sets the text, once: the first one is the closest to the cause.  Returns -EINVAL. */
int config_refuse(ConfigError *error, const char *format, ...) _printf_(2, 3);

/* config-types.c */
int config_read_number(const char *value, uint64_t *ret); /* with "infinity" */
int config_read_size(const char *value, uint64_t *ret);   /* and with K, M, G or T */

extern const ConfigType config_type_number;
extern const ConfigType config_type_size;
extern const ConfigType config_type_string;
extern const ConfigType config_type_decision;
extern const ConfigType config_type_warm;
extern const ConfigType config_type_pool_specs;
