/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Sizes and times as text. */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "size.h"

static const char suffixes[] = "KMGT";

/* strtoull() accepts signs and spaces, which are no part of a size. */
static int digits_parse(const char *text, uint64_t *ret, const char **ret_end) {
        uint64_t n = 0;
        const char *p;

        for (p = text; *p >= '0' && *p <= '9'; p++)
                if (__builtin_mul_overflow(n, UINT64_C(10), &n) ||
                    __builtin_add_overflow(n, (uint64_t) (*p - '0'), &n))
                        return -ERANGE;
        if (p == text)
                return -EINVAL;

        *ret = n;
        *ret_end = p;
        return 0;
}

int size_parse(const char *text, uint64_t *ret) {
        unsigned shift = 0;
        const char *p;
        uint64_t n;
        int r;

        r = digits_parse(text, &n, &p);
        if (r < 0)
                return r;

        if (*p != '\0' && *p != 'B' && *p != 'b') {
                const char *suffix = strchr(suffixes, *p >= 'a' ? *p - ('a' - 'A') : *p);

                if (!suffix)
                        return -EINVAL;
                shift = 10 * (unsigned) (suffix - suffixes + 1);
                p++;
                if (*p == 'i')
                        p++;
        }
        if (*p != '\0' && strcasecmp(p, "B") != 0)
                return -EINVAL;
        if (shift > 0 && n > UINT64_MAX >> shift)
                return -ERANGE;

        *ret = n << shift;
        return 0;
}

int uint_parse(const char *text, uint64_t max, uint64_t *ret) {
        const char *end;
        uint64_t n;
        int r;

        r = digits_parse(text, &n, &end);
        if (r < 0)
                return r;
        if (*end != '\0')
                return -EINVAL;
        if (n > max)
                return -ERANGE;

        *ret = n;
        return 0;
}

const char *size_format(uint64_t bytes, char buf[static SIZE_TEXT_MAX]) {
        unsigned i = 0;

        /* The largest unit that leaves at least one whole. */
        while (i < sizeof(suffixes) - 1 && bytes >> (10 * (i + 1)) > 0)
                i++;

        if (i == 0)
                (void) snprintf(buf, SIZE_TEXT_MAX, bytes == 0 ? "0" : "%lluB", (unsigned long long) bytes);
        else if (bytes % (UINT64_C(1) << (10 * i)) == 0)
                (void) snprintf(buf, SIZE_TEXT_MAX, "%llu%c", (unsigned long long) (bytes >> (10 * i)),
                                suffixes[i - 1]);
        else
                (void) snprintf(buf, SIZE_TEXT_MAX, "%.1f%c",
                                (double) bytes / (double) (UINT64_C(1) << (10 * i)), suffixes[i - 1]);
        return buf;
}

const char *duration_format(uint64_t usec, char buf[static SIZE_TEXT_MAX]) {
        if (usec < 1000)
                (void) snprintf(buf, SIZE_TEXT_MAX, "%lluus", (unsigned long long) usec);
        else if (usec < 1000000)
                (void) snprintf(buf, SIZE_TEXT_MAX, "%.1fms", (double) usec / 1e3);
        else if (usec < UINT64_C(60000000))
                (void) snprintf(buf, SIZE_TEXT_MAX, "%.1fs", (double) usec / 1e6);
        else
                (void) snprintf(buf, SIZE_TEXT_MAX, "%llumin %llus", (unsigned long long) (usec / 60000000),
                                (unsigned long long) (usec / 1000000 % 60));
        return buf;
}
