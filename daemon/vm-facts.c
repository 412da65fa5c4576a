/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vm-facts.h"

#include <ctype.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>

#define VCPUS_MAX  65536U
#define JSON_DEPTH 8 /* of the values of -device and -object */

void vm_facts_merge(VMFacts *f, const VMFacts *other) {
        for (VMFact i = 0; i < _FACT_MAX; i++)
                if (!vm_facts_know(f, i) && vm_facts_know(other, i))
                        vm_facts_set(f, i, other->values[i]);
        if (f->name[0] == '\0')
                memcpy(f->name, other->name, sizeof(f->name));
}

/* The value of an option: "first,key=value,..." or, as libvirt writes it, a JSON object. */
typedef struct Props {
        const char *text;
        json_object *json;
} Props;

static void props_done(Props *p) {
        json_object_put(p->json);
}

static Props props_new(const char *text) {
        Props p = { .text = text };
        json_tokener *tok;

        if (text[0] != '{')
                return p;
        tok = json_tokener_new_ex(JSON_DEPTH);
        if (!tok)
                return p;
        p.json = json_tokener_parse_ex(tok, text, (int) strlen(text) + 1);
        if (p.json && !json_object_is_type(p.json, json_type_object)) {
                json_object_put(p.json);
                p.json = NULL;
        }
        json_tokener_free(tok);
        return p;
}

/* The next "key=value" or word, with ",," as QEMU's way to write a comma.  false: there is none. */
static bool next_word(const char **p, char *buf, size_t size) {
        size_t n = 0;

        if (**p == '\0')
                return false;
        for (; **p != '\0'; (*p)++) {
                if (**p == ',' && (*p)[1] != ',') {
                        (*p)++;
                        break;
                }
                if (**p == ',')
                        (*p)++;
                if (n + 1 < size)
                        buf[n++] = **p;
        }
        buf[n] = '\0';
        return true;
}

static bool json_get(const Props *p, const char *key, char *buf, size_t size) {
        json_object *value;

        if (!p->json || !json_object_object_get_ex(p->json, key, &value) || !value)
                return false;
        if (json_object_is_type(value, json_type_boolean))
                snprintf(buf, size, "%s", json_object_get_boolean(value) ? "on" : "off");
        else if (json_object_is_type(value, json_type_string) || json_object_is_type(value, json_type_int))
                snprintf(buf, size, "%s", json_object_get_string(value));
        else
                return false;
        return true;
}

/* "implied" is the key that the first word may leave out.  The last one of a key counts. */
static bool props_get(const Props *p, const char *implied, const char *key, char *buf, size_t size) {
        const char *text = p->text;
        char word[256];
        bool found = false;

        if (text[0] == '{')
                return json_get(p, key, buf, size);
        for (bool first = true; next_word(&text, word, sizeof(word)); first = false) {
                char *value = strchr(word, '=');

                if (value)
                        *value++ = '\0';
                if (value ? streq(word, key) : first && implied && streq(implied, key)) {
                        snprintf(buf, size, "%.*s", (int) size - 1, value ?: word);
                        found = true;
                } else if (!value && !first && streq(word, key)) {
                        /* A switch, the old way. */
                        snprintf(buf, size, "on");
                        found = true;
                }
        }
        return found;
}

static bool props_get_bool(const Props *p, const char *key) {
        char value[16];

        return props_get(p, NULL, key, value, sizeof(value)) &&
               (streq(value, "on") || streq(value, "yes") || streq(value, "true") || streq(value, "y"));
}

static bool has_prefix(const char *s, const char *prefix) {
        return strncmp(s, prefix, strlen(prefix)) == 0;
}

static void on_device(const char *text, VMFacts *f) {
        _cleanup_(props_done) Props p = props_new(text);
        char driver[64];

        if (!props_get(&p, "driver", "driver", driver, sizeof(driver)))
                return;
        if (has_prefix(driver, "virtio-balloon")) {
                /* Without either it is in about every VM, and waits to be told. */
                if (props_get_bool(&p, "deflate-on-oom"))
                        f->values[FACT_BALLOON] = true;
                if (props_get_bool(&p, "free-page-reporting"))
                        f->values[FACT_FREE_PAGE_REPORTING] = true;
        } else if (has_prefix(driver, "virtio-mem"))
                f->values[FACT_DISCARD] = true;
        else if (has_prefix(driver, "vfio-pci"))
                f->values[FACT_VFIO_DEVICES]++;
        else if (streq(driver, "intel-iommu") || streq(driver, "amd-iommu") ||
                 has_prefix(driver, "virtio-iommu"))
                f->values[FACT_VIOMMU] = true;
}

static void on_object(const char *text, VMFacts *f) {
        _cleanup_(props_done) Props p = props_new(text);
        char type[64];

        if (!props_get(&p, "qom-type", "qom-type", type, sizeof(type)))
                return;
        if (has_prefix(type, "memory-backend-") && props_get_bool(&p, "discard-data"))
                f->values[FACT_DISCARD] = true;
        else if (has_prefix(type, "sev-") || has_prefix(type, "tdx-"))
                f->values[FACT_CONFIDENTIAL] = true;
}

static void on_machine(const char *text, VMFacts *f) {
        Props p = { .text = text };
        char value[64];

        if (props_get(&p, "type", "confidential-guest-support", value, sizeof(value)) ||
            props_get(&p, "type", "memory-encryption", value, sizeof(value)))
                f->values[FACT_CONFIDENTIAL] = true;
}

static void on_name(const char *text, VMFacts *f) {
        Props p = { .text = text };

        (void) props_get(&p, "guest", "guest", f->name, sizeof(f->name));
}

static uint32_t get_count(const Props *p, const char *key) {
        char value[16], *end;
        unsigned long n;

        if (!props_get(p, "cpus", key, value, sizeof(value)) || !isdigit((unsigned char) value[0]))
                return 0;
        n = strtoul(value, &end, 10);
        return *end == '\0' && n <= VCPUS_MAX ? (uint32_t) n : 0;
}

static void on_smp(const char *text, VMFacts *f) {
        static const char *const levels[] = { "drawers",  "books",   "sockets", "dies",
                                              "clusters", "modules", "cores",   "threads" };
        Props p = { .text = text };
        uint64_t n = get_count(&p, "cpus");

        /* Left out, it is all that there can be. */
        if (n == 0)
                n = get_count(&p, "maxcpus");
        if (n == 0) {
                n = 1;
                for (size_t i = 0; i < ELEMENTSOF(levels) && n <= VCPUS_MAX; i++)
                        n *= get_count(&p, levels[i]) ?: 1;
        }
        if (n <= VCPUS_MAX)
                f->values[FACT_VCPUS] = (uint32_t) n;
}

static const struct {
        const char *option;
        void (*read)(const char *text, VMFacts *f);
} options[] = {
        { "device", on_device }, { "object", on_object }, { "machine", on_machine },
        { "M", on_machine },     { "name", on_name },     { "smp", on_smp },
};

static bool is_qemu(const char *argv0) {
        const char *base = strrchr(argv0, '/');

        base = base ? base + 1 : argv0;
        return has_prefix(base, "qemu-system-") || streq(base, "qemu-kvm") || streq(base, "kvm");
}

int vm_facts_parse(const char *cmdline, size_t size, VMFacts *ret) {
        const char *arg = cmdline, *end = cmdline + size, *before = NULL;
        bool elsewhere = false;
        VMFacts f = {};

        /* What has no end is no string. */
        if (size == 0 || end[-1] != '\0' || !is_qemu(cmdline))
                return -ENOENT;

        f.values[FACT_VCPUS] = 1;
        for (arg += strlen(arg) + 1; arg < end; arg += strlen(arg) + 1) {
                if (!before) {
                        if (arg[0] == '-')
                                before = arg + 1 + (arg[1] == '-');
                        continue;
                }
                elsewhere = elsewhere || streq(before, "readconfig");
                for (size_t i = 0; i < ELEMENTSOF(options); i++)
                        if (streq(before, options[i].option))
                                options[i].read(arg, &f);
                /* An option without a value is followed by one. */
                before = arg[0] == '-' ? arg + 1 + (arg[1] == '-') : NULL;
        }

        /* Nobody writes migrations on a command line, and of what is in a file we do not know what is not
         * there. */
        for (VMFact i = 0; i < _FACT_MAX; i++)
                if (i != FACT_MIGRATIONS && (!elsewhere || f.values[i] > 0))
                        f.known |= 1U << i;
        *ret = f;
        return 0;
}
