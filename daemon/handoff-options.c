/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>

#include "bus-error.h"
#include "handoff-calls.h"

#define DEADLINE_DEFAULT (UINT64_C(3600) * 1000000)
#define DEADLINE_MIN     (UINT64_C(1) * 1000000)
#define DEADLINE_MAX     (UINT64_C(86400) * 1000000)

typedef struct Key {
        const char *name;
        const char *type;
        unsigned use;
        int (*read)(sd_bus_message *m, HandoffOptions *o, sd_bus_error *error);
} Key;

static int read_deadline(sd_bus_message *m, HandoffOptions *o, sd_bus_error *error) {
        int r = sd_bus_message_read(m, "t", &o->deadline_usec);

        if (r < 0 || (o->deadline_usec >= DEADLINE_MIN && o->deadline_usec <= DEADLINE_MAX))
                return r;
        return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                 "deadline-usec is %" PRIu64 ": use %" PRIu64 " (a second) to %" PRIu64
                                 " (a day)",
                                 o->deadline_usec, DEADLINE_MIN, DEADLINE_MAX);
}

static bool is_page_size(uint64_t n) {
        return n >= KIB(4) && n <= GIB(16) && (n & (n - 1)) == 0;
}

static int read_page_sizes(sd_bus_message *m, HandoffOptions *o, sd_bus_error *error) {
        const uint64_t *sizes;
        size_t size;
        int r;

        r = sd_bus_message_read_array(m, 't', (const void **) &sizes, &size);
        if (r < 0)
                return r;
        o->n_page_sizes = size / sizeof(*sizes);
        if (o->n_page_sizes == 0 || o->n_page_sizes > HANDOFF_PAGE_SIZES_MAX)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID, "page-sizes are %zu: give 1 to %u",
                                         o->n_page_sizes, HANDOFF_PAGE_SIZES_MAX);
        for (size_t i = 0; i < o->n_page_sizes; i++) {
                o->page_sizes[i] = sizes[i];
                if (!is_page_size(sizes[i]))
                        return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                                 "page-sizes: %" PRIu64 " bytes are no page: use 4096, "
                                                 "2097152 or 1073741824",
                                                 sizes[i]);
                for (size_t k = 0; k < i; k++)
                        if (sizes[k] == sizes[i])
                                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                                         "page-sizes: %" PRIu64 " is there twice", sizes[i]);
        }
        return 0;
}

static int read_bool(sd_bus_message *m, bool *ret) {
        int b, r;

        r = sd_bus_message_read(m, "b", &b);
        if (r >= 0)
                *ret = b;
        return r;
}

static int read_post_copy(sd_bus_message *m, HandoffOptions *o, sd_bus_error *error) {
        return read_bool(m, &o->post_copy);
}

static int read_bytes(sd_bus_message *m, HandoffOptions *o, sd_bus_error *error) {
        int r = sd_bus_message_read(m, "t", &o->bytes);

        if (r < 0 || (o->bytes > 0 && o->bytes % KIB(4) == 0 && o->bytes <= UINT64_C(1) << 52))
                return r;
        return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                 "bytes is %" PRIu64 ": give the size of the guest's memory, in whole pages",
                                 o->bytes);
}

static int read_logging(sd_bus_message *m, HandoffOptions *o, sd_bus_error *error) {
        const char *s;
        int r;

        r = sd_bus_message_read(m, "s", &s);
        if (r < 0)
                return r;
        if (streq(s, "none"))
                o->logging = HANDOFF_LOGGING_NONE;
        else if (streq(s, "bitmap"))
                o->logging = HANDOFF_LOGGING_BITMAP;
        else if (streq(s, "ring"))
                o->logging = HANDOFF_LOGGING_RING;
        else
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "logging \"%.80s\" is unknown: use none, bitmap or ring", s);
        return 0;
}

static int read_split_leaf(sd_bus_message *m, HandoffOptions *o, sd_bus_error *error) {
        int r = sd_bus_message_read(m, "t", &o->split_leaf);

        o->has_split_leaf = true;
        if (r < 0 || o->split_leaf == 0 || o->split_leaf == KIB(4) || o->split_leaf == MIB(2))
                return r;
        return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                 "split-leaf is %" PRIu64 ": use 4096, 2097152, or 0 not to split",
                                 o->split_leaf);
}

static int read_bytes_left(sd_bus_message *m, HandoffOptions *o, sd_bus_error *error) {
        return sd_bus_message_read(m, "t", &o->bytes_left);
}

static const Key keys[] = {
        { "deadline-usec", "t", HANDOFF_USE_OFFER, read_deadline },
        { "page-sizes", "at", HANDOFF_USE_OFFER, read_page_sizes },
        { "bytes", "t", HANDOFF_USE_OFFER, read_bytes },
        { "post-copy", "b", HANDOFF_USE_OFFER | HANDOFF_USE_COMMIT, read_post_copy },
        { "logging", "s", HANDOFF_USE_START, read_logging },
        { "split-leaf", "t", HANDOFF_USE_START, read_split_leaf },
        { "bytes-left", "t", HANDOFF_USE_COMMIT, read_bytes_left },
};

static int refuse_key(const char *key, HandoffUse use, sd_bus_error *error) {
        char known[128] = "";
        size_t n = 0;

        for (size_t i = 0; i < ELEMENTSOF(keys); i++)
                if (keys[i].use & use)
                        n += (size_t) snprintf(known + n, sizeof(known) - n, "%s%s", n > 0 ? ", " : "",
                                               keys[i].name);
        return sd_bus_error_setf(error, TDP_ERROR_INVALID, "option \"%.80s\" is unknown here: there are %s",
                                 key, known);
}

static int read_one(sd_bus_message *m, HandoffUse use, unsigned *seen, HandoffOptions *o,
                    sd_bus_error *error) {
        const char *name, *contents;
        size_t i;
        int r;

        r = sd_bus_message_read(m, "s", &name);
        if (r < 0)
                return r;
        for (i = 0; i < ELEMENTSOF(keys); i++)
                if ((keys[i].use & use) && streq(keys[i].name, name))
                        break;
        if (i == ELEMENTSOF(keys))
                return refuse_key(name, use, error);
        if (*seen & 1U << i)
                return sd_bus_error_setf(error, TDP_ERROR_INVALID, "option \"%s\" is there twice", name);
        *seen |= 1U << i;
        r = sd_bus_message_peek_type(m, NULL, &contents);
        if (r < 0)
                return r;
        if (!contents || !streq(contents, keys[i].type))
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "option \"%s\" has type '%s': it must be '%s'", name,
                                         contents ?: "?", keys[i].type);
        r = sd_bus_message_enter_container(m, 'v', keys[i].type);
        if (r >= 0)
                r = keys[i].read(m, o, error);
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

int handoff_options_read(sd_bus_message *m, HandoffUse use, HandoffOptions *ret, sd_bus_error *error) {
        HandoffOptions o = { .deadline_usec = DEADLINE_DEFAULT, .logging = HANDOFF_LOGGING_BITMAP };
        unsigned seen = 0;
        int r;

        r = sd_bus_message_enter_container(m, 'a', "{sv}");
        if (r < 0)
                return r;
        while ((r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                r = read_one(m, use, &seen, &o, error);
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
                if (r < 0)
                        return r;
        }
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        if (r < 0)
                return r;
        *ret = o;
        return 0;
}
