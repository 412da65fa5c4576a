/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool-spec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "format.h"
#include "node.h"
#include "number.h"

/* A configuration names each pool once, and no host has more than some. */
#define SPECS_MAX 4096U

void pool_specs_done(PoolSpecs *p) {
        free(p->specs);
        *p = (PoolSpecs){};
}

const PoolSpec *pool_specs_find(const PoolSpecs *p, unsigned node, uint64_t page_size) {
        for (size_t i = 0; i < p->n; i++)
                if (p->specs[i].node == node && p->specs[i].page_size == page_size)
                        return &p->specs[i];
        return NULL;
}

static int add(PoolSpecs *p, PoolSpec s) {
        PoolSpec *grown = reallocarray(p->specs, p->n + 1, sizeof(*grown));

        if (!grown)
                return -ENOMEM;
        p->specs = grown;
        p->specs[p->n++] = s;
        return 0;
}

int pool_specs_set(PoolSpecs *p, unsigned node, uint64_t page_size, uint64_t pages) {
        PoolSpec *s = (PoolSpec *) pool_specs_find(p, node, page_size);

        if (!s)
                return add(p, (PoolSpec){ .node = node, .page_size = page_size, .pages = pages });
        s->pages = pages;
        return 0;
}

int pool_specs_copy(const PoolSpecs *p, PoolSpecs *ret) {
        PoolSpecs copy = {};
        int r = 0;

        for (size_t i = 0; i < p->n && r >= 0; i++)
                r = add(&copy, p->specs[i]);
        if (r < 0) {
                pool_specs_done(&copy);
                return r;
        }
        *ret = copy;
        return 0;
}

static int _printf_(2, 3) refuse(char why[static POOL_SPEC_WHY_MAX], const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        vsnprintf(why, POOL_SPEC_WHY_MAX, format, ap);
        va_end(ap);
        return -EINVAL;
}

/* "unit" is that of a bare number, or 0 if there must be a suffix.  2MB is another way to write 2M. */
static bool read_size(const char **s, uint64_t unit, uint64_t *ret) {
        if (size_read(s, unit, ret) < 0)
                return false;
        if ((*s)[-1] >= '0' && (*s)[-1] <= '9')
                return unit != 0;
        if (**s == 'B')
                (*s)++;
        return true;
}

static int check(const PoolSpec *s, const PoolSpecs *p, const char *word,
                 char why[static POOL_SPEC_WHY_MAX]) {
        if (s->node >= NODE_ID_MAX)
                return refuse(why, "%.60s: there is no node above %u", word, NODE_ID_MAX - 1);
        if (s->page_size <= base_page_size() || (s->page_size & (s->page_size - 1)) != 0)
                return refuse(why, "%.60s: %s is no size of huge pages: those are powers of two above %s",
                              word, format_bytes(s->page_size), format_bytes(base_page_size()));
        if (s->pages > INT64_MAX / s->page_size)
                return refuse(why, "%.60s: so many bytes overflow", word);
        if (pool_specs_find(p, s->node, s->page_size))
                return refuse(why, "%.60s: pages of %s on node %u have a number already", word,
                              format_bytes(s->page_size), s->node);
        if (p->n >= SPECS_MAX)
                return refuse(why, "%.60s: more than %u pools", word, SPECS_MAX);
        return 0;
}

static bool read_nova(const char *s, PoolSpec *ret) {
        bool has_node = false, has_size = false, has_count = false;
        uint64_t node = 0;

        for (;;) {
                bool good;

                if (strncmp(s, "node:", 5) == 0 && !has_node) {
                        s += 5;
                        good = has_node = number_read(&s, &node) >= 0;
                } else if (strncmp(s, "size:", 5) == 0 && !has_size) {
                        s += 5;
                        good = has_size = read_size(&s, KIB(1), &ret->page_size);
                } else if (strncmp(s, "count:", 6) == 0 && !has_count) {
                        s += 6;
                        good = has_count = number_read(&s, &ret->pages) >= 0;
                } else
                        return false;
                if (!good)
                        return false;
                if (*s == '\0')
                        break;
                if (*s++ != ',')
                        return false;
        }
        ret->node = (unsigned) MIN_OF(node, UINT32_MAX);
        return has_node && has_size && has_count;
}

static bool read_ours(const char *s, PoolSpec *ret) {
        uint64_t node;

        if (!read_size(&s, 0, &ret->page_size) || *s++ != ':' || number_read(&s, &ret->pages) < 0 ||
            *s++ != '@' || number_read(&s, &node) < 0)
                return false;
        ret->node = (unsigned) MIN_OF(node, UINT32_MAX);
        return *s == '\0';
}

static int parse_word(PoolSpecs *p, char *word, char why[static POOL_SPEC_WHY_MAX]) {
        bool nova = strncmp(word, "node:", 5) == 0 || strncmp(word, "size:", 5) == 0 ||
                    strncmp(word, "count:", 6) == 0;
        char *saved = NULL;
        size_t n = strlen(word);
        int r = 0;

        if (word[0] == ',' || word[n - 1] == ',')
                return refuse(why, "%.60s: a comma too many", word);
        for (char *part = nova ? word : strtok_r(word, ",", &saved); part && r >= 0;
             part = nova ? NULL : strtok_r(NULL, ",", &saved)) {
                PoolSpec s = {};

                if (!(nova ? read_nova(part, &s) : read_ours(part, &s)))
                        return refuse(why,
                                      "%.60s: write it as SIZE:PAGES@NODE (2M:512@0) or as Nova does "
                                      "(node:0,size:2M,count:512)",
                                      part);
                r = check(&s, p, part, why);
                if (r >= 0)
                        r = add(p, s);
        }
        return r;
}

int pool_specs_parse(PoolSpecs *p, const char *s, char why[static POOL_SPEC_WHY_MAX]) {
        _cleanup_free_ char *copy = NULL;
        PoolSpecs all;
        char *saved;
        int r;

        copy = strdup(s);
        if (!copy)
                return -ENOMEM;
        r = pool_specs_copy(p, &all);
        for (char *word = strtok_r(copy, " \t", &saved); word && r >= 0;
             word = strtok_r(NULL, " \t", &saved))
                r = parse_word(&all, word, why);
        if (r < 0) {
                pool_specs_done(&all);
                return r;
        }
        pool_specs_done(p);
        *p = all;
        return 0;
}
