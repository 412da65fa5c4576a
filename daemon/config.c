/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"

#include <errno.h>
#include <ini.h>
#include <inttypes.h>

#include "format.h"
#include "log.h"

typedef struct ConfigItem {
        const char *section;
        const char *key;
        int (*parse)(const struct ConfigItem *item, const char *value, void *target);
        size_t offset;
        const char *value; /* default */
        uint64_t min, max;
        const char *doc;
} ConfigItem;

static int parse_decision(const ConfigItem *item, const char *value, void *target) {
        Decision d = decision_from_string(value);

        if (d < 0)
                return -EINVAL;
        *(Decision *) target = d;
        return 0;
}

static int parse_string(const ConfigItem *item, const char *value, void *target) {
        char *s = strdup(value);

        if (!s)
                return -ENOMEM;
        free(*(char **) target);
        *(char **) target = s;
        return 0;
}

static int parse_number(const ConfigItem *item, const char *value, void *target) {
        uint64_t v;
        char *end;

        if (streq(value, "infinity")) {
                v = UINT64_MAX;
        } else {
                if (*value < '0' || *value > '9')
                        return -EINVAL;
                errno = 0;
                v = strtoull(value, &end, 10);
                if (errno != 0)
                        return -ERANGE;
                if (*end != '\0')
                        return -EINVAL;
        }
        if (v < item->min || v > item->max)
                return -ERANGE;
        *(uint64_t *) target = v;
        return 0;
}

static int parse_size(const ConfigItem *item, const char *value, void *target) {
        static const char suffixes[] = "KMGT";
        _cleanup_free_ char *digits = NULL;
        const char *suffix;
        size_t n = strlen(value);
        uint64_t v;
        int r;

        if (n == 0 || !(suffix = strchr(suffixes, value[n - 1])))
                return parse_number(item, value, target);

        digits = strndup(value, n - 1);
        if (!digits)
                return -ENOMEM;
        if (streq(digits, "infinity"))
                return -EINVAL;
        r = parse_number(&(ConfigItem){ .max = UINT64_MAX }, digits, &v);
        if (r < 0)
                return r;
        if (__builtin_mul_overflow(v, UINT64_C(1) << (10 * (suffix - suffixes + 1)), &v) || v < item->min ||
            v > item->max)
                return -ERANGE;
        *(uint64_t *) target = v;
        return 0;
}

#define ITEM(field) offsetof(Config, field)

static const ConfigItem items[] = {
        { "Policy", "Decision", parse_decision, ITEM(decision), "auto", 0, 0,
          "Whether VMs are built if the request does not say: auto, always or never." },
        { "Policy", "MinBytes", parse_size, ITEM(min_bytes), "64M", 0, UINT64_MAX,
          "auto leaves smaller VMs alone. Suffixes K, M, G and T." },
        { "Policy", "MinSavingUSec", parse_number, ITEM(min_saving_usec), "100", 0, UINT64_MAX,
          "auto builds if it saves at least that many microseconds of faults." },
        { "Limits", "MaxVMs", parse_number, ITEM(limits.vms), "256", 0, UINT64_MAX, "VMs of one user." },
        { "Limits", "MaxBytes", parse_size, ITEM(limits.bytes), "infinity", 0, UINT64_MAX,
          "Memory of one user's VMs. Suffixes K, M, G and T." },
        { "Limits", "MaxJobs", parse_number, ITEM(limits.jobs), "64", 1, UINT64_MAX,
          "Jobs of one user at the same time." },
        { "Workers", "Threads", parse_number, ITEM(threads), "16", 1, 1024,
          "Threads of a job on each node, never more than the node has CPUs." },
        { "Healing", "HealDelayMSec", parse_number, ITEM(heal.delay_msec), "1000", 10, 60000,
          "Parts of a built mapping that got lost are built again after so many milliseconds." },
        { "Healing", "HealIntervalSec", parse_number, ITEM(heal.interval_sec), "5", 1, 86400,
          "That is done for each VM once in so many seconds." },
        { "Healing", "HealBurst", parse_number, ITEM(heal.burst), "10", 0, 1000,
          "So often at once, after a time without. 0: nothing is built again by itself." },
        { "Access", "Group", parse_string, ITEM(group), "tdp", 0, 0,
          "Members of this group may reserve and attach VMs, and release their own." },
};

static void *item_target(const ConfigItem *i, Config *c) {
        return (char *) c + i->offset;
}

int config_init(Config *c) {
        int r;

        *c = (Config){};
        for (size_t i = 0; i < ELEMENTSOF(items); i++) {
                r = items[i].parse(&items[i], items[i].value, item_target(&items[i], c));
                if (r < 0)
                        return r;
        }
        return 0;
}

void config_done(Config *c) {
        free(c->group);
        *c = (Config){};
}

typedef struct ConfigLoad {
        Config *config;
        const char *path;
} ConfigLoad;

static int on_entry(void *userdata, const char *section, const char *key, const char *value) {
        ConfigLoad *load = userdata;
        bool section_known = false;
        int r;

        for (size_t i = 0; i < ELEMENTSOF(items); i++) {
                const ConfigItem *item = &items[i];

                section_known = section_known || streq(item->section, section);
                if (!streq(item->section, section) || !streq(item->key, key))
                        continue;

                r = item->parse(item, value, item_target(item, load->config));
                if (r == -ENOMEM)
                        return 0;
                if (r == -ERANGE)
                        log_warning("%s: [%s] %s=%s is out of range (%" PRIu64 " to %" PRIu64
                                    "), ignoring it",
                                    load->path, section, key, value, item->min, item->max);
                else if (r < 0)
                        log_warning("%s: [%s] %s=%s does not make sense, ignoring it. %s", load->path,
                                    section, key, value, item->doc);
                return 1;
        }

        if (section_known)
                log_warning("%s: [%s] has no %s=, ignoring it", load->path, section, key);
        else
                log_warning("%s: %s= is in the unknown section [%s], ignoring it", load->path, key, section);
        return 1;
}

int config_load(Config *c, const char *path) {
        ConfigLoad load = { .config = c, .path = path };
        FILE *f;
        int r;

        f = fopen(path, "re");
        if (!f)
                return -errno;
        r = ini_parse_file(f, on_entry, &load);
        if (ferror(f))
                r = -EIO;
        fclose(f);

        if (r > 0) {
                log_warning("%s:%i: not a section, a key or a comment, ignoring it", path, r);
                r = 0;
        }
        return r;
}

int config_dump(FILE *f) {
        const char *section = "";

        fputs("# SPDX-License-Identifier: LGPL-2.1-or-later\n"
              "#\n"
              "# Configuration of tdpd, see tdpd.conf(5). All values are the defaults.\n"
              "# Changes take effect when tdpd is restarted.\n",
              f);
        for (size_t i = 0; i < ELEMENTSOF(items); i++) {
                if (!streq(section, items[i].section)) {
                        section = items[i].section;
                        fprintf(f, "\n[%s]\n", section);
                }
                fprintf(f, "# %s\n#%s=%s\n", items[i].doc, items[i].key, items[i].value);
        }
        return ferror(f) ? -EIO : 0;
}
