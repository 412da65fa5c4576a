/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "mapping.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "clock.h"

/* The event loop waits meanwhile. */
#define READ_USEC UINT64_C(50000)

static bool is_ours(const Memory *m, dev_t device, ino_t inode) {
        for (size_t i = 0; i < m->n_parts; i++) {
                struct stat st;

                if (m->parts[i].fd >= 0 && fstat(m->parts[i].fd, &st) == 0 && st.st_dev == device &&
                    st.st_ino == inode)
                        return true;
        }
        return false;
}

/* "smaps" looks at each page of the process, which for small ones takes too long; and those cannot be others
 * than they should be. */
static const char *file_for(const Memory *m) {
        return m->page_size == base_page_size() ? "maps" : "smaps";
}

int mapping_read(const char *proc_root, pid_t pid, const Memory *m, Mapping *ret) {
        uint64_t until = clock_usec() + READ_USEC, begin, end, kib;
        _cleanup_free_ char *line = NULL;
        unsigned major, minor;
        char path[PATH_MAX];
        unsigned long inode;
        bool ours = false;
        size_t size = 0;
        int r = 0;
        FILE *f;

        *ret = (Mapping){};
        snprintf(path, sizeof(path), "%s/%i/%s", proc_root, (int) pid, file_for(m));
        f = fopen(path, "re");
        if (!f)
                return -errno;
        while (r >= 0 && getline(&line, &size, f) > 0) {
                if (clock_usec() > until)
                        r = -ETIME;
                else if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*x %x:%x %lu", &begin, &end, &major,
                                &minor, &inode) == 5) {
                        ours = is_ours(m, makedev(major, minor), inode);
                        if (ours)
                                ret->bytes += end - begin;
                        if (ours && ret->page_size == 0)
                                ret->page_size = m->page_size;
                } else if (ours && sscanf(line, "KernelPageSize: %" SCNu64 " kB", &kib) == 1)
                        ret->page_size = MIN_OF(ret->page_size, kib * 1024);
        }
        if (r >= 0 && ferror(f))
                r = -EIO;
        fclose(f);
        return r;
}
