/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "log.h"
#include "sysfs.h"

#define STABLE_TRIES 64U

int pool_load(const char *root, unsigned node, uint64_t page_size, Pool *ret) {
        Pool p = { .page_size = page_size };
        uint64_t kib = page_size / 1024, again;
        int r;

        /* The files cannot be read in one go.  A page that is faulted in between two reads leaves both
         * "free" and "reserved", so take the values only when "reserved" has stood still meanwhile.
         * After too many tries the last reading is used: "reserved" came first, so it errs to the safe side.
         */
        for (unsigned i = 0; i < STABLE_TRIES; i++) {
                r = sysfs_read_u64(&p.reserved,
                                   "%s/kernel/mm/hugepages/hugepages-%" PRIu64 "kB/resv_hugepages", root,
                                   kib);
                if (r < 0)
                        return r;
#define NODE_FILE(field, file)                                                                              \
        do {                                                                                                \
                r = sysfs_read_u64(&p.field,                                                                \
                                   "%s/devices/system/node/node%u/hugepages/hugepages-%" PRIu64 "kB/" file, \
                                   root, node, kib);                                                        \
                if (r < 0)                                                                                  \
                        return r;                                                                           \
        } while (false)
                NODE_FILE(free, "free_hugepages");
                NODE_FILE(total, "nr_hugepages");
                NODE_FILE(surplus, "surplus_hugepages");
#undef NODE_FILE
                r = sysfs_read_u64(&again, "%s/kernel/mm/hugepages/hugepages-%" PRIu64 "kB/resv_hugepages",
                                   root, kib);
                if (r < 0)
                        return r;
                if (again == p.reserved)
                        break;
        }

        /* All of them are multiplied with the page size. */
        if (MAX_OF(MAX_OF(p.total, p.free), MAX_OF(p.surplus, p.reserved)) > INT64_MAX / p.page_size)
                return -ERANGE;

        *ret = p;
        return 0;
}

static int pool_compare(const void *a, const void *b) {
        const Pool *x = a, *y = b;

        return (x->page_size > y->page_size) - (x->page_size < y->page_size);
}

int pools_load(const char *sysfs_root, unsigned node, Pool **ret, size_t *ret_n) {
        _cleanup_closedir_ DIR *d = NULL;
        _cleanup_free_ Pool *pools = NULL;
        char path[PATH_MAX];
        size_t n = 0;
        struct dirent *de;
        int r;

        if ((size_t) snprintf(path, sizeof(path), "%s/devices/system/node/node%u/hugepages", sysfs_root,
                              node) >= sizeof(path))
                return -ENAMETOOLONG;

        d = opendir(path);
        if (!d && errno != ENOENT)
                return -errno;

        while (d && (de = readdir(d))) {
                uint64_t kib;
                int end = 0;
                Pool p, *grown;

                if (sscanf(de->d_name, "hugepages-%" SCNu64 "kB%n", &kib, &end) != 1 || end == 0 ||
                    de->d_name[end] != '\0')
                        continue;
                /* The kernel's sizes are powers of two; anything else is not a pool that we know to use. */
                if (kib == 0 || kib > UINT64_MAX / 1024 || (kib & (kib - 1)) != 0)
                        continue;

                r = pool_load(sysfs_root, node, kib * 1024, &p);
                if (r == -ENOMEM)
                        return r;
                if (r < 0) {
                        log_warning_errno(r, "Pool %s of node %u cannot be read, ignoring it", de->d_name,
                                          node);
                        continue;
                }

                grown = reallocarray(pools, n + 1, sizeof(Pool));
                if (!grown)
                        return -ENOMEM;
                pools = grown;
                pools[n++] = p;
        }

        if (n > 0)
                qsort(pools, n, sizeof(Pool), pool_compare);
        *ret = TAKE_PTR(pools);
        *ret_n = n;
        return 0;
}
