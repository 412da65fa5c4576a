/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "idset.h"

#include <errno.h>
#include <stdio.h>

#include "memstream.h"

static int parse_id(const char **s, unsigned *ret) {
        unsigned v = 0;
        const char *p = *s;

        if (*p < '0' || *p > '9')
                return -EINVAL;
        for (; *p >= '0' && *p <= '9'; p++) {
                v = v * 10 + (unsigned) (*p - '0');
                if (v >= IDSET_MAX)
                        return -ERANGE;
        }

        *s = p;
        *ret = v;
        return 0;
}

/* An empty string is an empty set: this is how sysfs tells of a node without CPUs. */
int idset_parse(const char *s, IdSet *ret) {
        IdSet set = {};
        int r;

        if (*s == '\0' || *s == '\n') {
                *ret = set;
                return 0;
        }

        for (;;) {
                unsigned from, to;

                r = parse_id(&s, &from);
                if (r < 0)
                        return r;
                to = from;
                if (*s == '-') {
                        s++;
                        r = parse_id(&s, &to);
                        if (r < 0)
                                return r;
                        if (to < from)
                                return -EINVAL;
                }
                for (unsigned i = from; i <= to; i++)
                        idset_add(&set, i);

                if (*s == ',') {
                        s++;
                        continue;
                }
                if (*s == '\n')
                        s++;
                if (*s != '\0')
                        return -EINVAL;

                *ret = set;
                return 0;
        }
}

int idset_format(const IdSet *set, char **ret) {
        _cleanup_free_ char *s = NULL;
        size_t size = 0;
        FILE *f;

        f = open_memstream(&s, &size);
        if (!f)
                return -ENOMEM;

        for (int from = idset_next(set, 0), to; from >= 0; from = idset_next(set, (unsigned) to + 1)) {
                for (to = from; idset_has(set, (unsigned) to + 1);)
                        to++;
                fprintf(f, "%s%i", from == idset_next(set, 0) ? "" : ",", from);
                if (to > from)
                        fprintf(f, "-%i", to);
        }

        if (memstream_close(f, &s) < 0)
                return -ENOMEM;
        *ret = TAKE_PTR(s);
        return 0;
}
