/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "memory-file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

int memory_file_identify(int folder, const char *name, dev_t *ret_device, ino_t *ret_inode) {
        char target[sizeof(MEMORY_FILE_PREFIX)];
        struct statx st;
        ssize_t n;

        n = readlinkat(folder, name, target, sizeof(target));
        if (n < 0)
                return -errno;
        if (n < (ssize_t) strlen(MEMORY_FILE_PREFIX) ||
            memcmp(target, MEMORY_FILE_PREFIX, strlen(MEMORY_FILE_PREFIX)) != 0)
                return 0;
        /* Somebody else's file can be called like that too, in their own namespace: no server is asked. */
        if (statx(folder, name, AT_STATX_DONT_SYNC, STATX_INO, &st) < 0)
                return -errno;
        *ret_device = makedev(st.stx_dev_major, st.stx_dev_minor);
        *ret_inode = (ino_t) st.stx_ino;
        return 1;
}
