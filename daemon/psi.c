/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "psi.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "sysfs.h"

/* "12.34": the kernel writes two digits behind the point, and no more. */
static int parse_hundredths(const char *s, uint64_t *ret) {
        uint32_t whole, part;
        int a = 0, b = 0, c = 0;

        if (*s < '0' || *s > '9' ||
            sscanf(s, "%9" SCNu32 "%n.%n%2" SCNu32 "%n", &whole, &a, &b, &part, &c) != 2 || b != a + 1 ||
            c != b + 2)
                return -EBADMSG;
        *ret = (uint64_t) whole * 100 + part;
        return 0;
}

int psi_parse(const char *text, uint64_t *ret) {
        static const char some[] = "some avg10=";

        if (strncmp(text, some, strlen(some)) != 0)
                return -EBADMSG;
        return parse_hundredths(text + strlen(some), ret);
}

int loadavg_parse(const char *text, uint64_t *ret) {
        return parse_hundredths(text, ret);
}

int psi_read_memory(const char *proc_root, uint64_t *ret) {
        _cleanup_free_ char *text = NULL;
        int r;

        r = sysfs_read(&text, "%s/pressure/memory", proc_root);
        return r < 0 ? r : psi_parse(text, ret);
}

int loadavg_read(const char *proc_root, uint64_t *ret) {
        _cleanup_free_ char *text = NULL;
        int r;

        r = sysfs_read(&text, "%s/loadavg", proc_root);
        return r < 0 ? r : loadavg_parse(text, ret);
}
