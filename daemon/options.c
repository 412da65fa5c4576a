/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "bus-error.h"
#include "cgroup.h"
#include "memstream.h"
#include "queue.h"

typedef union Value {
        const char *s;
        uint64_t t;
        uint32_t u;
        int b;
} Value;

static int set_name(VMOptions *o, Value v, sd_bus_error *error) {
        o->name = v.s;
        return 0;
}

static int set_bytes(VMOptions *o, Value v, sd_bus_error *error) {
        o->bytes = v.t;
        return 0;
}

static int set_cgroup(VMOptions *o, Value v, sd_bus_error *error) {
        if (!cgroup_path_is_valid(v.s))
                return sd_bus_error_setf(
                                error, TDP_ERROR_INVALID,
                                "cgroup \"%.160s\" is no path of one: write it as in /proc/PID/cgroup, "
                                "like /machine.slice/a.scope",
                                v.s);
        o->cgroup = v.s;
        return 0;
}

static int set_page_size(VMOptions *o, Value v, sd_bus_error *error) {
        if (v.t == 0)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "page-size is 0: give bytes, or leave it out to have it chosen");
        o->page_size = v.t;
        return 0;
}

static int set_nodes(VMOptions *o, Value v, sd_bus_error *error) {
        if (*v.s == '\0' || idset_parse(v.s, &o->nodes) < 0)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "nodes \"%s\" is no set of nodes: write it like \"0-1,3\"", v.s);
        o->has_nodes = true;
        return 0;
}

static int set_cpus(VMOptions *o, Value v, sd_bus_error *error) {
        if (*v.s == '\0' || idset_parse(v.s, &o->cpus) < 0)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "cpus \"%s\" is no set of CPUs: write it like \"0-7,16\"", v.s);
        o->has_cpus = true;
        return 0;
}

static int set_parts(VMOptions *o, Value v, sd_bus_error *error) {
        if (placement_parts_parse(v.s, o->parts, &o->n_parts) < 0)
                return sd_bus_error_setf(
                                error, TDP_ERROR_INVALID,
                                "parts \"%s\" make no sense: write NODE:SIZE for each node, once, like "
                                "\"0:3G,1:1G\"",
                                v.s);
        return 0;
}

static int set_numa_mode(VMOptions *o, Value v, sd_bus_error *error) {
        o->numa_mode = numa_mode_from_string(v.s);
        if (o->numa_mode < 0)
                return sd_bus_error_setf(
                                error, TDP_ERROR_INVALID,
                                "numa-mode \"%s\" is unknown: use auto, strict, preferred or interleave",
                                v.s);
        return 0;
}

static int set_decision(VMOptions *o, Value v, sd_bus_error *error) {
        o->decision = decision_from_string(v.s);
        if (o->decision < 0)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "decision \"%s\" is unknown: use auto, always or never", v.s);
        o->has_decision = true;
        return 0;
}

#define DEFINE_SET_FACT(name, fact, member)                                                                 \
        static int set_##name(VMOptions *o, Value v, sd_bus_error *error) {                                 \
                vm_facts_set(&o->facts, fact, (uint32_t) v.member);                                         \
                return 0;                                                                                   \
        }                                                                                                   \
        struct set_##name##_semicolon

DEFINE_SET_FACT(vcpus, FACT_VCPUS, u);
DEFINE_SET_FACT(balloon, FACT_BALLOON, b);
DEFINE_SET_FACT(free_page_reporting, FACT_FREE_PAGE_REPORTING, b);
DEFINE_SET_FACT(discard, FACT_DISCARD, b);
DEFINE_SET_FACT(confidential, FACT_CONFIDENTIAL, b);
DEFINE_SET_FACT(vfio_devices, FACT_VFIO_DEVICES, u);
DEFINE_SET_FACT(viommu, FACT_VIOMMU, b);
DEFINE_SET_FACT(migrations, FACT_MIGRATIONS, u);

static int set_warm(VMOptions *o, Value v, sd_bus_error *error) {
        o->warm = v.b;
        o->has_warm = true;
        return 0;
}

static int set_wait(VMOptions *o, Value v, sd_bus_error *error) {
        if (v.t > QUEUE_WAIT_USEC_MAX)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "wait-usec %" PRIu64 " is too long: it is at most %" PRIu64
                                         " microseconds, a day",
                                         v.t, QUEUE_WAIT_USEC_MAX);
        o->wait_usec = v.t;
        return 0;
}

static int set_max_level(VMOptions *o, Value v, sd_bus_error *error) {
        if (v.u > 3)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "max-level %" PRIu32
                                         " is unknown: use 0 (no limit), 1 (4K), 2 (2M) or 3 (1G)",
                                         v.u);
        o->max_level = v.u;
        return 0;
}

static int set_auto_slots(VMOptions *o, Value v, sd_bus_error *error) {
        o->auto_slots = v.b;
        return 0;
}

static int set_gpa(VMOptions *o, Value v, sd_bus_error *error) {
        o->gpa = v.t;
        o->has_gpa = true;
        return 0;
}

static int set_size(VMOptions *o, Value v, sd_bus_error *error) {
        o->size = v.t;
        o->has_size = true;
        return 0;
}

/* Whoever decides. */
#define OPTION_DECIDE (OPTION_RESERVE | OPTION_EXPLAIN | OPTION_ATTACH)

static const struct {
        const char *key;
        char type;
        unsigned use;
        int (*set)(VMOptions *o, Value v, sd_bus_error *error);
} table[] = {
        { "name", 's', OPTION_EXPLAIN | OPTION_INCOMING, set_name },
        { "bytes", 't', OPTION_EXPLAIN, set_bytes },
        { "page-size", 't', OPTION_RESERVE | OPTION_EXPLAIN, set_page_size },
        { "nodes", 's', OPTION_RESERVE | OPTION_EXPLAIN, set_nodes },
        { "cpus", 's', OPTION_RESERVE | OPTION_EXPLAIN, set_cpus },
        { "parts", 's', OPTION_RESERVE | OPTION_EXPLAIN, set_parts },
        { "numa-mode", 's', OPTION_RESERVE | OPTION_EXPLAIN, set_numa_mode },
        { "decision", 's', OPTION_RESERVE | OPTION_EXPLAIN | OPTION_ATTACH | OPTION_BUILD, set_decision },
        { "vcpus", 'u', OPTION_DECIDE | OPTION_BUILD, set_vcpus },
        { "balloon", 'b', OPTION_DECIDE, set_balloon },
        { "free-page-reporting", 'b', OPTION_DECIDE, set_free_page_reporting },
        { "discard", 'b', OPTION_DECIDE, set_discard },
        { "confidential", 'b', OPTION_DECIDE, set_confidential },
        { "vfio-devices", 'u', OPTION_DECIDE, set_vfio_devices },
        { "viommu", 'b', OPTION_DECIDE, set_viommu },
        { "migrations", 'u', OPTION_DECIDE, set_migrations },
        /* Explain answers for an Attach as well. */
        { "max-level", 'u', OPTION_ATTACH | OPTION_BUILD | OPTION_EXPLAIN | OPTION_SPLIT, set_max_level },
        { "auto-slots", 'b', OPTION_ATTACH | OPTION_EXPLAIN, set_auto_slots },
        { "warm", 'b', OPTION_RESERVE | OPTION_EXPLAIN, set_warm },
        { "wait-usec", 't', OPTION_RESERVE, set_wait },
        { "gpa", 't', OPTION_HEAL | OPTION_SPLIT, set_gpa },
        { "size", 't', OPTION_HEAL | OPTION_SPLIT, set_size },
        { "cgroup", 's', OPTION_RESERVE, set_cgroup },
};

static int refuse_key(const char *key, OptionUse use, sd_bus_error *error) {
        static const char *const placement[] = { "nodes", "cpus", "parts", "numa-mode" };
        _cleanup_free_ char *known = NULL;
        size_t size, n = 0;
        FILE *f;

        for (size_t i = 0; i < ELEMENTSOF(placement); i++)
                if (streq(key, placement[i]))
                        return sd_bus_error_setf(
                                        error, TDP_ERROR_INVALID,
                                        "option \"%s\" has no meaning here: where memory is was settled when "
                                        "it was allocated, and pinned memory cannot be moved. Release the VM, "
                                        "and reserve it anew where it is to be",
                                        key);

        f = open_memstream(&known, &size);
        if (!f)
                return -ENOMEM;
        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                if (table[i].use & use)
                        fprintf(f, "%s%s", n++ > 0 ? ", " : "", table[i].key);
        if (memstream_close(f, &known) < 0)
                return -ENOMEM;
        return sd_bus_error_setf(error, TDP_ERROR_INVALID, "option \"%s\" is unknown here: there are %s",
                                 key, n > 0 ? known : "none");
}

static int read_value(sd_bus_message *m, size_t i, VMOptions *o, sd_bus_error *error) {
        const char type[] = { table[i].type, '\0' };
        const char *contents;
        Value v = {};
        char outer;
        int r;

        r = sd_bus_message_peek_type(m, &outer, &contents);
        if (r < 0)
                return r;
        if (outer != 'v' || !streq(contents, type))
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "option \"%s\" has type '%s': it must be '%s'", table[i].key,
                                         contents ?: "?", type);
        r = sd_bus_message_read(m, "v", type, &v);
        if (r < 0)
                return r;
        return table[i].set(o, v, error);
}

int options_read(sd_bus_message *m, OptionUse use, VMOptions *ret, sd_bus_error *error) {
        VMOptions o = { .auto_slots = true, .warm = true };
        unsigned seen = 0;
        int r;

        r = sd_bus_message_enter_container(m, 'a', "{sv}");
        if (r < 0)
                return r;
        while ((r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                const char *key;
                size_t i;

                r = sd_bus_message_read(m, "s", &key);
                if (r < 0)
                        return r;
                for (i = 0; i < ELEMENTSOF(table); i++)
                        if ((table[i].use & use) && streq(table[i].key, key))
                                break;
                if (i == ELEMENTSOF(table))
                        return refuse_key(key, use, error);
                if (seen & 1U << i)
                        return sd_bus_error_setf(error, TDP_ERROR_INVALID, "option \"%s\" is there twice",
                                                 key);
                seen |= 1U << i;

                r = read_value(m, i, &o, error);
                if (r < 0)
                        return r;
                r = sd_bus_message_exit_container(m);
                if (r < 0)
                        return r;
        }
        if (r < 0)
                return r;
        r = sd_bus_message_exit_container(m);
        if (r < 0)
                return r;

        *ret = o;
        return 0;
}

int options_get_span(const VMOptions *o, Span *ret, sd_bus_error *error) {
        if (!o->has_gpa && !o->has_size)
                return 0;
        if (!o->has_gpa || !o->has_size)
                return sd_bus_error_setf(
                                error, TDP_ERROR_INVALID,
                                "%s is missing: a range has gpa and size, and all of the VM has neither",
                                o->has_gpa ? "size" : "gpa");
        if (o->gpa % 4096 != 0 || o->size % 4096 != 0 || o->size == 0)
                return sd_bus_error_setf(
                                error, TDP_ERROR_INVALID,
                                "range 0x%" PRIx64 "+0x%" PRIx64
                                " is not of whole pages: gpa and size must be multiples of 4096, and size more than 0",
                                o->gpa, o->size);
        if (o->size > UINT64_MAX - o->gpa)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "range 0x%" PRIx64 "+0x%" PRIx64 " ends beyond 64 bits", o->gpa,
                                         o->size);
        *ret = (Span){ .gpa = o->gpa, .size = o->size };
        return 1;
}
