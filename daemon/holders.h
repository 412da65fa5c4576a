/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Who has huge pages: from what every process has mapped or open.  It takes long, so it is for threads. */

#include <sys/types.h>

#include "macro.h"

typedef enum HolderKind {
        HOLDER_VM,      /* memory of a VM of ours, in the process that maps it */
        HOLDER_PROCESS, /* mapped */
        HOLDER_FILE,    /* open, and mapped by nobody; its node is not known */
        _HOLDER_KIND_MAX,
} HolderKind;

typedef struct Holder {
        HolderKind kind;
        uint64_t page_size;
        int node; /* or -1 */
        uint64_t pages;
        pid_t pid;
        uid_t uid;
        char name[64];  /* the VM's, or the process's command */
        char file[128]; /* or "" */
} Holder;

typedef struct Holders {
        Holder *holders;
        size_t n;
        bool complete; /* there was time for all processes, and the right to look at them */
} Holders;

void holders_done(Holders *h);
const char *holder_kind_to_string(HolderKind k);

/* "go_on" is asked before each process. */
int holders_scan(const char *proc_root, bool (*go_on)(void *userdata), void *userdata, Holders *ret);

/* For tests: a line of numa_maps.  0: not of huge pages. */
typedef struct NumaLine {
        uint64_t address;
        uint64_t page_size;
        uint64_t pages[1024]; /* by node */
        char file[128];
} NumaLine;
int holders_parse_line(const char *line, NumaLine *ret);
