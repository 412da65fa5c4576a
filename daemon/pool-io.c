/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool-io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "clock.h"
#include "format.h"
#include "log.h"
#include "node.h"
#include "sysfs.h"

#define DROP_CACHES "/proc/sys/vm/drop_caches"

static int files_read(void *userdata, Pool *ret) {
        PoolFiles *f = userdata;

        return pool_load(f->sysfs_root, f->node, f->page_size, ret);
}

static int files_write(void *userdata, uint64_t pages) {
        PoolFiles *f = userdata;
        int r;

        /* The kernel stops early for a signal, which reads back as a short result. */
        do
                r = sysfs_write_u64(pages,
                                    "%s/devices/system/node/node%u/hugepages/hugepages-%" PRIu64
                                    "kB/nr_hugepages",
                                    f->sysfs_root, f->node, f->page_size / 1024);
        while (r == -EINTR);
        return r;
}

static int files_compact(void *userdata) {
        PoolFiles *f = userdata;
        int r;

        log_info("Pool of %s on node %u: short of pages, compacting the node's memory",
                 format_bytes(f->page_size), f->node);
        r = sysfs_write_u64(1, "%s/devices/system/node/node%u/compact", f->sysfs_root, f->node);
        if (r < 0 && r != -EINTR)
                log_warning_errno(r, "Node %u cannot be compacted, going on without", f->node);
        return r;
}

static int files_drop_caches(void *userdata) {
        PoolFiles *f = userdata;
        int r;

        /* Of the whole system: the kernel has none for a node. */
        log_warning("Pool of %s on node %u: short of pages, dropping the system's page cache, as was asked for",
                    format_bytes(f->page_size), f->node);
        r = sysfs_write_u64(1, DROP_CACHES);
        if (r < 0)
                log_warning_errno(r, DROP_CACHES " cannot be written, going on without");
        return r;
}

static bool files_wait(void *userdata, uint64_t usec) {
        PoolFiles *f = userdata;
        uint64_t until = clock_usec() + usec;

        while (f->turned_back || !worker_is_canceled(f->worker)) {
                uint64_t now = clock_usec();

                if (now >= until)
                        return true;
                usleep((useconds_t) MIN_OF(until - now, UINT64_C(20000)));
        }
        return false;
}

static void files_progress(void *userdata, uint64_t pages) {
        PoolFiles *f = userdata;

        worker_add_progress(f->worker, pages * f->page_size);
}

static void files_turn_back(void *userdata) {
        PoolFiles *f = userdata;

        f->turned_back = true;
        worker_block_cancel_signal();
}

PoolIo pool_files_io(PoolFiles *files) {
        return (PoolIo){
                .read = files_read,
                .write = files_write,
                .compact = files_compact,
                .drop_caches = files_drop_caches,
                .wait = files_wait,
                .progress = files_progress,
                .turn_back = files_turn_back,
                .userdata = files,
        };
}

int pool_contiguous_bytes(unsigned node, uint64_t *ret) {
        _cleanup_free_ char *s = NULL;
        uint64_t bytes = 0;
        char *saved;
        int r;

        r = sysfs_read(&s, "/proc/buddyinfo");
        if (r < 0)
                return r;
        for (char *line = strtok_r(s, "\n", &saved); line; line = strtok_r(NULL, "\n", &saved)) {
                uint64_t n, unit = base_page_size();
                unsigned id;
                int end = 0;

                if (sscanf(line, "Node %u, zone %*s%n", &id, &end) != 1 || end == 0 || id != node)
                        continue;
                for (char *p = line + end; sscanf(p, "%" SCNu64 "%n", &n, &end) == 1; p += end, unit *= 2)
                        if (unit >= MIB(2))
                                bytes += n * unit;
        }
        *ret = bytes;
        return 0;
}
