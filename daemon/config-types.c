/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>

#include "config-table.h"
#include "number.h"

int config_read_number(const char *value, uint64_t *ret) {
        uint64_t v;
        int r;

        if (streq(value, "infinity")) {
                *ret = UINT64_MAX;
                return 0;
        }
        r = number_read(&value, &v);
        if (r < 0)
                return r;
        if (*value != '\0')
                return -EINVAL;
        *ret = v;
        return 0;
}

int config_read_size(const char *value, uint64_t *ret) {
        uint64_t v;
        int r;

        if (streq(value, "infinity"))
                return config_read_number(value, ret);
        r = size_read(&value, 1, &v);
        if (r < 0)
                return r;
        if (*value != '\0')
                return -EINVAL;
        *ret = v;
        return 0;
}

static int in_range(const ConfigItem *item, uint64_t v, void *target) {
        if (v < item->min || v > item->max)
                return -ERANGE;
        *(uint64_t *) target = v;
        return 0;
}

static int parse_number(const ConfigItem *item, const char *value, void *target, ConfigError *error) {
        uint64_t v;
        int r = config_read_number(value, &v);

        return r < 0 ? r : in_range(item, v, target);
}

static int parse_size(const ConfigItem *item, const char *value, void *target, ConfigError *error) {
        uint64_t v;
        int r = config_read_size(value, &v);

        return r < 0 ? r : in_range(item, v, target);
}

static void done_string(void *target) {
        free(*(char **) target);
        *(char **) target = NULL;
}

static int parse_string(const ConfigItem *item, const char *value, void *target, ConfigError *error) {
        char *s = strdup(value);

        if (!s)
                return -ENOMEM;
        done_string(target);
        *(char **) target = s;
        return 0;
}

static int parse_decision(const ConfigItem *item, const char *value, void *target, ConfigError *error) {
        Decision d = decision_from_string(value);

        if (d < 0)
                return -EINVAL;
        *(Decision *) target = d;
        return 0;
}

static int parse_warm(const ConfigItem *item, const char *value, void *target, ConfigError *error) {
        return warm_specs_add(target, value);
}

static void done_warm(void *target) {
        *(WarmSpecs *) target = (WarmSpecs){};
}

static void done_pool_specs(void *target) {
        pool_specs_done(target);
}

static int parse_pool_specs(const ConfigItem *item, const char *value, void *target, ConfigError *error) {
        char why[POOL_SPEC_WHY_MAX] = "";
        int r;

        r = pool_specs_parse(target, value, why);
        return r == -EINVAL ? config_refuse(error, "%s", why) : r;
}

const ConfigType config_type_number = { .parse = parse_number };
const ConfigType config_type_size = { .parse = parse_size };
const ConfigType config_type_string = { .parse = parse_string, .done = done_string };
const ConfigType config_type_decision = { .parse = parse_decision, .allowed = "auto, always or never" };
const ConfigType config_type_warm = {
        .parse = parse_warm,
        .done = done_warm,
        .is_list = true,
        .allowed = "SIZE[*COUNT] [node=N] [page=SIZE], with commas between, the size in whole pages",
};
const ConfigType config_type_pool_specs = {
        .parse = parse_pool_specs,
        .done = done_pool_specs,
        .is_list = true,
        .allowed = "SIZE:PAGES@NODE, like 1G:16@0,2M:4096@1, or node:0,size:2M,count:4096",
};
