/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Options of requests: a{sv} in the making. */

#include <string.h>

#include "libtdp-private.h"

struct option {
        char *key;
        char type;       /* D-Bus: t, u, b, s; a: list of t */
        uint64_t number; /* of a list: how many */
        uint64_t *list;
        char *string;
        struct option *next;
};

struct tdp_options {
        struct option *first;
};

static struct option *option_free(struct option *o) {
        if (!o)
                return NULL;
        free(o->key);
        free(o->string);
        free(o->list);
        free(o);
        return NULL;
}

DEFINE_CLEANUP_FUNC(struct option *, option_free);

TDP_EXPORT int tdp_options_new(struct tdp_options **ret_options) {
        struct tdp_options *options;

        options = calloc(1, sizeof(*options));
        if (!options)
                return -ENOMEM;

        *ret_options = options;
        return 0;
}

TDP_EXPORT struct tdp_options *tdp_options_free(struct tdp_options *options) {
        if (!options)
                return NULL;

        while (options->first) {
                struct option *o = options->first;

                options->first = o->next;
                option_free(o);
        }
        free(options);
        return NULL;
}

static int set(struct tdp_options *options, const char *key, char type, uint64_t number, const char *string,
               const uint64_t *list) {
        _cleanup_(option_freep) struct option *o = NULL;
        struct option **p;

        if (!key || key[0] == '\0' || (type == 's' && !string) || (type == 'a' && (!list || number == 0)))
                return -EINVAL;

        o = calloc(1, sizeof(*o));
        if (!o)
                return -ENOMEM;
        o->type = type;
        o->number = number;
        o->key = strdup(key);
        if (string)
                o->string = strdup(string);
        if (list)
                o->list = calloc(number, sizeof(*list));
        if (!o->key || (string && !o->string) || (list && !o->list))
                return -ENOMEM;
        if (list)
                memcpy(o->list, list, number * sizeof(*list));

        for (p = &options->first; *p; p = &(*p)->next)
                if (strcmp((*p)->key, key) == 0) {
                        struct option *old = *p;

                        *p = old->next;
                        option_free(old);
                        break;
                }
        o->next = options->first;
        options->first = TAKE_PTR(o);
        return 0;
}

TDP_EXPORT int tdp_options_set_u64(struct tdp_options *options, const char *key, uint64_t value) {
        return set(options, key, 't', value, NULL, NULL);
}

TDP_EXPORT int tdp_options_set_u32(struct tdp_options *options, const char *key, uint32_t value) {
        return set(options, key, 'u', value, NULL, NULL);
}

TDP_EXPORT int tdp_options_set_bool(struct tdp_options *options, const char *key, bool value) {
        return set(options, key, 'b', value, NULL, NULL);
}

TDP_EXPORT int tdp_options_set_string(struct tdp_options *options, const char *key, const char *value) {
        return set(options, key, 's', 0, value, NULL);
}

TDP_EXPORT int tdp_options_set_u64_list(struct tdp_options *options, const char *key, const uint64_t *values,
                                        size_t n) {
        return set(options, key, 'a', n, NULL, values);
}

static int append_list(sd_bus_message *m, const struct option *o) {
        int r;

        r = sd_bus_message_open_container(m, 'e', "sv");
        if (r >= 0)
                r = sd_bus_message_append(m, "s", o->key);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', "at");
        if (r >= 0)
                r = sd_bus_message_append_array(m, 't', o->list, o->number * sizeof(*o->list));
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

static int append_one(sd_bus_message *m, const struct option *o) {
        switch (o->type) {
        case 't':
                return sd_bus_message_append(m, "{sv}", o->key, "t", o->number);
        case 'u':
                return sd_bus_message_append(m, "{sv}", o->key, "u", (uint32_t) o->number);
        case 'b':
                return sd_bus_message_append(m, "{sv}", o->key, "b", (int) o->number);
        case 'a':
                return append_list(m, o);
        default:
                return sd_bus_message_append(m, "{sv}", o->key, "s", o->string);
        }
}

/* Explain takes name and bytes in the same dictionary: both may be NULL. */
int options_append(const struct tdp_options *options, sd_bus_message *m, const char *name,
                   const uint64_t *bytes) {
        int r;

        r = sd_bus_message_open_container(m, 'a', "{sv}");
        if (r < 0)
                return r;
        if (name) {
                r = sd_bus_message_append(m, "{sv}", "name", "s", name);
                if (r < 0)
                        return r;
        }
        if (bytes) {
                r = sd_bus_message_append(m, "{sv}", "bytes", "t", *bytes);
                if (r < 0)
                        return r;
        }
        for (const struct option *o = options ? options->first : NULL; o; o = o->next) {
                r = append_one(m, o);
                if (r < 0)
                        return r;
        }
        return sd_bus_message_close_container(m);
}
