/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Trees of values, read from D-Bus messages. */

#include <string.h>

#include "libtdp-private.h"

/* Deeper nesting than D-Bus allows in a signature cannot come from variants of a sane daemon. */
#define DEPTH_MAX 16

static int read_value(sd_bus_message *m, unsigned depth, struct tdp_value **ret);

TDP_EXPORT struct tdp_value *tdp_value_free(struct tdp_value *value) {
        while (value) {
                struct tdp_value *next = value->next;

                if (value->type == TDP_VALUE_STRING)
                        free(value->s);
                else if (value->type == TDP_VALUE_LIST || value->type == TDP_VALUE_DICT)
                        tdp_value_free(value->first);
                free(value->key);
                free(value);
                value = next;
        }
        return NULL;
}

static int read_basic(sd_bus_message *m, char type, struct tdp_value *v) {
        union {
                uint8_t y;
                uint16_t q;
                int16_t n;
                uint32_t u;
                int32_t i;
                int b;
                uint64_t t;
                int64_t x;
                double d;
                const char *s;
        } b;
        int r;

        r = sd_bus_message_read_basic(m, type, &b);
        if (r < 0)
                return r;
        if (r == 0)
                return -EBADMSG;

        v->type = TDP_VALUE_UINT;
        switch (type) {
        case 'y':
                v->u = b.y;
                return 0;
        case 'q':
                v->u = b.q;
                return 0;
        case 'u':
                v->u = b.u;
                return 0;
        case 't':
                v->u = b.t;
                return 0;
        }

        v->type = TDP_VALUE_INT;
        switch (type) {
        case 'n':
                v->i = b.n;
                return 0;
        case 'i':
        case 'h': /* the descriptor stays the message's: its number says nothing later */
                v->i = type == 'h' ? -1 : b.i;
                return 0;
        case 'x':
                v->i = b.x;
                return 0;
        }

        if (type == 'b') {
                v->type = TDP_VALUE_BOOL;
                v->b = b.b;
                return 0;
        }
        if (type == 'd') {
                v->type = TDP_VALUE_DOUBLE;
                v->d = b.d;
                return 0;
        }

        v->type = TDP_VALUE_STRING;
        v->s = strdup(b.s);
        return v->s ? 0 : -ENOMEM;
}

/* Dictionary keys are kept as text: numbers in decimal. */
static int read_key(sd_bus_message *m, char type, char **ret) {
        _cleanup_(tdp_value_freep) struct tdp_value *v = NULL;
        char *key = NULL;
        int r;

        v = calloc(1, sizeof(*v));
        if (!v)
                return -ENOMEM;

        r = read_basic(m, type, v);
        if (r < 0)
                return r;

        if (v->type == TDP_VALUE_STRING)
                key = TAKE_PTR(v->s);
        else if (v->type == TDP_VALUE_UINT) {
                if (asprintf(&key, "%llu", (unsigned long long) v->u) < 0)
                        return -ENOMEM;
        } else if (v->type == TDP_VALUE_INT) {
                if (asprintf(&key, "%lld", (long long) v->i) < 0)
                        return -ENOMEM;
        } else
                return -EBADMSG;

        *ret = key;
        return 0;
}

static int read_dict_entry(sd_bus_message *m, const char *contents, unsigned depth, struct tdp_value **ret) {
        _cleanup_(tdp_value_freep) struct tdp_value *v = NULL;
        _cleanup_free_ char *key = NULL;
        int r;

        r = sd_bus_message_enter_container(m, 'e', contents);
        if (r < 0)
                return r;

        r = read_key(m, contents[0], &key);
        if (r < 0)
                return r;

        r = read_value(m, depth, &v);
        if (r < 0)
                return r;
        v->key = TAKE_PTR(key);

        r = sd_bus_message_exit_container(m);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(v);
        return 0;
}

static int read_children(sd_bus_message *m, unsigned depth, struct tdp_value *v) {
        struct tdp_value **tail = &v->first;
        int r;

        for (;;) {
                const char *contents;
                char type;

                r = sd_bus_message_peek_type(m, &type, &contents);
                if (r < 0)
                        return r;
                if (r == 0)
                        return 0;

                if (type == 'e')
                        r = read_dict_entry(m, contents, depth, tail);
                else
                        r = read_value(m, depth, tail);
                if (r < 0)
                        return r;
                tail = &(*tail)->next;
        }
}

static int read_value(sd_bus_message *m, unsigned depth, struct tdp_value **ret) {
        _cleanup_(tdp_value_freep) struct tdp_value *v = NULL;
        const char *contents;
        char type;
        int r;

        if (depth >= DEPTH_MAX)
                return -EBADMSG;

        r = sd_bus_message_peek_type(m, &type, &contents);
        if (r < 0)
                return r;
        if (r == 0)
                return -EBADMSG;

        if (type == 'v') {
                r = sd_bus_message_enter_container(m, 'v', contents);
                if (r < 0)
                        return r;
                r = read_value(m, depth + 1, &v);
                if (r < 0)
                        return r;
                r = sd_bus_message_exit_container(m);
                if (r < 0)
                        return r;
                *ret = TAKE_PTR(v);
                return 0;
        }

        v = calloc(1, sizeof(*v));
        if (!v)
                return -ENOMEM;

        if (type == 'a' || type == 'r') {
                v->type = type == 'a' && contents[0] == '{' ? TDP_VALUE_DICT : TDP_VALUE_LIST;
                r = sd_bus_message_enter_container(m, type, contents);
                if (r < 0)
                        return r;
                r = read_children(m, depth + 1, v);
                if (r < 0)
                        return r;
                r = sd_bus_message_exit_container(m);
        } else
                r = read_basic(m, type, v);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(v);
        return 0;
}

int value_read(sd_bus_message *m, struct tdp_value **ret) {
        return read_value(m, 0, ret);
}

int value_read_dict(sd_bus_message *m, struct tdp_value **ret) {
        _cleanup_(tdp_value_freep) struct tdp_value *v = NULL;
        int r;

        r = read_value(m, 0, &v);
        if (r < 0)
                return r;
        if (v->type != TDP_VALUE_DICT)
                return -EBADMSG;

        *ret = TAKE_PTR(v);
        return 0;
}

TDP_EXPORT enum tdp_value_type tdp_value_get_type(const struct tdp_value *value) {
        return value ? value->type : 0;
}

TDP_EXPORT const char *tdp_value_get_key(const struct tdp_value *value) {
        return value ? value->key : NULL;
}

TDP_EXPORT uint64_t tdp_value_get_uint(const struct tdp_value *value) {
        return value && value->type == TDP_VALUE_UINT ? value->u : 0;
}

TDP_EXPORT int64_t tdp_value_get_int(const struct tdp_value *value) {
        return value && value->type == TDP_VALUE_INT ? value->i : 0;
}

TDP_EXPORT double tdp_value_get_double(const struct tdp_value *value) {
        return value && value->type == TDP_VALUE_DOUBLE ? value->d : 0;
}

TDP_EXPORT bool tdp_value_get_bool(const struct tdp_value *value) {
        return value && value->type == TDP_VALUE_BOOL && value->b;
}

TDP_EXPORT const char *tdp_value_get_string(const struct tdp_value *value) {
        return value && value->type == TDP_VALUE_STRING ? value->s : NULL;
}

TDP_EXPORT const struct tdp_value *tdp_value_get_first(const struct tdp_value *parent) {
        return parent && parent->type >= TDP_VALUE_LIST ? parent->first : NULL;
}

TDP_EXPORT const struct tdp_value *tdp_value_get_next(const struct tdp_value *value) {
        return value ? value->next : NULL;
}

TDP_EXPORT const struct tdp_value *tdp_value_find(const struct tdp_value *parent, const char *key) {
        const struct tdp_value *v;

        tdp_value_foreach (parent, v)
                if (v->key && strcmp(v->key, key) == 0)
                        return v;
        return NULL;
}

TDP_EXPORT const struct tdp_value *tdp_value_at(const struct tdp_value *parent, unsigned index) {
        const struct tdp_value *v;

        tdp_value_foreach (parent, v)
                if (index-- == 0)
                        return v;
        return NULL;
}

int replace_string(char **field, const char *value) {
        char *copy;

        if (!value || (*field && strcmp(*field, value) == 0))
                return 0;
        copy = strdup(value);
        if (!copy)
                return -ENOMEM;
        free(*field);
        *field = copy;
        return 0;
}
