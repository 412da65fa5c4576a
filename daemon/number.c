/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "number.h"

#include <errno.h>

#include "macro.h"

static const char *const suffixes[] = { "", "K", "M", "G", "T" };

int number_read(const char **s, uint64_t *ret) {
        uint64_t v;
        char *end;

        if (**s < '0' || **s > '9') /* strtoull() takes signs and blanks */
                return -EINVAL;
        errno = 0;
        v = strtoull(*s, &end, 10);
        if (errno != 0)
                return -ERANGE;
        *s = end;
        *ret = v;
        return 0;
}

int size_read(const char **s, uint64_t unit, uint64_t *ret) {
        const char *p = *s;
        uint64_t v;
        int r;

        r = number_read(&p, &v);
        if (r < 0)
                return r;
        for (size_t i = 1; i < ELEMENTSOF(suffixes); i++)
                if (*p == suffixes[i][0]) {
                        unit = UINT64_C(1) << (10 * i);
                        p++;
                        break;
                }
        if (__builtin_mul_overflow(v, unit, &v))
                return -ERANGE;
        *s = p;
        *ret = v;
        return 0;
}

const char *size_split(uint64_t bytes, uint64_t *ret) {
        size_t u = 0;

        while (bytes != 0 && bytes % 1024 == 0 && u + 1 < ELEMENTSOF(suffixes)) {
                bytes /= 1024;
                u++;
        }
        *ret = bytes;
        return suffixes[u];
}
