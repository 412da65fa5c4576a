/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "warm-spec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "node.h"
#include "number.h"

static void skip_blanks(const char **p) {
        *p += strspn(*p, " \t");
}

static bool skip_word(const char **p, const char *word) {
        size_t n = strlen(word);

        if (strncmp(*p, word, n) != 0)
                return false;
        *p += n;
        return true;
}

static int read_attribute(const char **p, WarmSpec *spec) {
        uint64_t v;
        int r;

        if (!spec->has_node && skip_word(p, "node=")) {
                r = number_read(p, &v);
                if (r < 0)
                        return r;
                if (v >= NODE_ID_MAX)
                        return -ERANGE;
                spec->node = (unsigned) v;
                spec->has_node = true;
                return 0;
        }
        if (spec->page_size == 0 && skip_word(p, "page=")) {
                r = size_read(p, 1, &spec->page_size);
                if (r < 0)
                        return r;
                /* Page sizes of all kernels are powers of two, none of them smaller. */
                return spec->page_size < KIB(4) || (spec->page_size & (spec->page_size - 1)) != 0 ? -ERANGE
                                                                                                  : 0;
        }
        return -EINVAL;
}

static int read_spec(const char **p, WarmSpec *ret) {
        WarmSpec spec = { .count = 1 };
        int r;

        r = size_read(p, 1, &spec.bytes);
        if (r < 0)
                return r;
        if (skip_word(p, "*")) {
                uint64_t v;

                r = number_read(p, &v);
                if (r < 0)
                        return r;
                if (v == 0 || v > WARM_COUNT_MAX)
                        return -ERANGE;
                spec.count = (uint32_t) v;
        }
        for (;;) {
                const char *before = *p;

                skip_blanks(p);
                if (**p == '\0' || **p == ',')
                        break;
                if (*p == before)
                        return -EINVAL;
                r = read_attribute(p, &spec);
                if (r < 0)
                        return r;
        }
        if (spec.bytes == 0 || spec.bytes > INT64_MAX / WARM_COUNT_MAX ||
            spec.bytes % (spec.page_size ?: KIB(4)) != 0)
                return -ERANGE;

        *ret = spec;
        return 0;
}

static int add_spec(WarmSpecs *specs, const WarmSpec *spec) {
        for (size_t i = 0; i < specs->n; i++)
                if (warm_spec_equal(&specs->specs[i], spec)) {
                        specs->specs[i].count += spec->count;
                        return specs->specs[i].count > WARM_COUNT_MAX ? -ERANGE : 0;
                }
        if (specs->n == WARM_SPECS_MAX)
                return -ERANGE;
        specs->specs[specs->n++] = *spec;
        return 0;
}

int warm_specs_add(WarmSpecs *specs, const char *s) {
        WarmSpecs all = *specs;
        int r;

        skip_blanks(&s);
        while (*s != '\0') {
                WarmSpec spec;

                r = read_spec(&s, &spec);
                if (r < 0)
                        return r;
                r = add_spec(&all, &spec);
                if (r < 0)
                        return r;
                if (*s == '\0')
                        break;
                s++; /* the comma */
                skip_blanks(&s);
                if (*s == '\0')
                        return -EINVAL;
        }

        *specs = all;
        return 0;
}

static int format_size(uint64_t n, char *buf, size_t size) {
        const char *suffix = size_split(n, &n);

        return snprintf(buf, size, "%" PRIu64 "%s", n, suffix);
}

const char *warm_spec_format(const WarmSpec *spec, char buf[static WARM_SPEC_TEXT_MAX]) {
        size_t n;

        /* Two sizes and two numbers of at most 20 digits each: it fits. */
        n = (size_t) format_size(spec->bytes, buf, WARM_SPEC_TEXT_MAX);
        n += (size_t) snprintf(buf + n, WARM_SPEC_TEXT_MAX - n, "*%" PRIu32, spec->count);
        if (spec->has_node)
                n += (size_t) snprintf(buf + n, WARM_SPEC_TEXT_MAX - n, " node=%u", spec->node);
        if (spec->page_size != 0) {
                n += (size_t) snprintf(buf + n, WARM_SPEC_TEXT_MAX - n, " page=");
                (void) format_size(spec->page_size, buf + n, WARM_SPEC_TEXT_MAX - n);
        }
        return buf;
}
