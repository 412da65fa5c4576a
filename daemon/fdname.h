/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Names of the descriptors that systemd keeps for us: "tdp1-m0-0123456789abcdef" is memory part 0 of that
 * lease, "tdp1-h0-..." its handle, and "tdp1-d0-0000000000000001" what watches memory that drains.  Short,
 * as all of them come back in one environment variable, of which the kernel allows 128 KiB.
 */

#include "macro.h"

#define FD_NAME_MAX 40U
/* What fits into that variable, with the ':' between them. */
#define FD_NAMES_MAX 4096U

typedef enum FdKind {
        FD_MEMORY,
        FD_HANDLE,
        FD_DRAIN, /* one for all */
        _FD_KIND_MAX,
} FdKind;

typedef struct FdName {
        FdKind kind;
        unsigned index; /* of the memory part; 0 for the handle */
        uint64_t lease;
} FdName;

#define FD_DRAIN_NAME ((FdName){ .kind = FD_DRAIN, .lease = 1 })

void fdname_format(FdName n, char ret[static FD_NAME_MAX]);
/* -EINVAL: a name that is none of ours, or that a newer version has given. */
int fdname_parse(const char *s, FdName *ret);
