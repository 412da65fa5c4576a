/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fdname.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define PREFIX    "tdp1-"
#define INDEX_MAX 1024U

static const char letters[_FD_KIND_MAX] = {
        [FD_MEMORY] = 'm',
        [FD_HANDLE] = 'h',
        [FD_DRAIN] = 'd',
};

void fdname_format(FdName n, char ret[static FD_NAME_MAX]) {
        snprintf(ret, FD_NAME_MAX, PREFIX "%c%u-%016" PRIx64, letters[n.kind], n.index, n.lease);
}

int fdname_parse(const char *s, FdName *ret) {
        const size_t prefix = strlen(PREFIX);
        const char *whole = s;
        char again[FD_NAME_MAX];
        FdName n = {};

        if (strlen(s) >= FD_NAME_MAX || strncmp(s, PREFIX, prefix) != 0)
                return -EINVAL;
        s += prefix;
        while (n.kind < _FD_KIND_MAX && letters[n.kind] != *s)
                n.kind++;
        if (n.kind == _FD_KIND_MAX)
                return -EINVAL;
        for (s++; *s >= '0' && *s <= '9' && n.index < INDEX_MAX; s++)
                n.index = n.index * 10 + (unsigned) (*s - '0');
        if (*s++ != '-' || strlen(s) != 16 || strspn(s, "0123456789abcdef") != 16)
                return -EINVAL;
        n.lease = strtoull(s, NULL, 16);

        /* One name, one way to write it. */
        fdname_format(n, again);
        if (n.index >= INDEX_MAX || !streq(again, whole) || n.lease == 0 ||
            (n.kind != FD_MEMORY && n.index != 0) || (n.kind == FD_DRAIN && n.lease != FD_DRAIN_NAME.lease))
                return -EINVAL;
        *ret = n;
        return 0;
}
