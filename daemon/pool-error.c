/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool-error.h"

#include <errno.h>
#include <inttypes.h>

#include "bus-error.h"
#include "format.h"
#include "pool-io.h"

#define TEXT_MAX 320

/* What is there now, for a result that is not the one asked for. */
static const char *outcome(char buf[static TEXT_MAX], const PoolRequest *q, const PoolResult *p) {
        char foreign[96] = "";

        if (!p->looked) {
                snprintf(buf, TEXT_MAX, "nothing was changed");
                return buf;
        }
        if (p->foreign != 0)
                snprintf(foreign, sizeof(foreign), ", of which somebody else has %s %" PRIu64 " meanwhile",
                         p->foreign > 0 ? "added" : "taken",
                         p->foreign > 0 ? (uint64_t) p->foreign : -(uint64_t) p->foreign);
        if (p->restored)
                snprintf(buf, TEXT_MAX, "there are %" PRIu64 " as before%s", p->after, foreign);
        else if (q->allow_partial)
                snprintf(buf, TEXT_MAX, "%" PRIu64 " stay, as a part was allowed%s", p->after, foreign);
        else
                snprintf(buf, TEXT_MAX,
                         "the %" PRIu64 " from before could not be had again, there are %" PRIu64 " now%s",
                         p->before, p->after, foreign);
        return buf;
}

static const char *remedy(char buf[static TEXT_MAX], unsigned node, uint64_t page_size,
                          const PoolRequest *q) {
        char size[24], free_text[128] = "";
        uint64_t bytes;

        if (page_size % GIB(1) == 0)
                snprintf(size, sizeof(size), "%" PRIu64 "G", page_size / GIB(1));
        else if (page_size % MIB(1) == 0)
                snprintf(size, sizeof(size), "%" PRIu64 "M", page_size / MIB(1));
        else
                snprintf(size, sizeof(size), "%" PRIu64 "K", page_size / KIB(1));

        /* Larger than what the page allocator has in one piece. */
        if (page_size >= MIB(128)) {
                if (pool_contiguous_bytes(node, &bytes) >= 0)
                        snprintf(free_text, sizeof(free_text),
                                 " (free there in pieces of 2 MiB or more: %" PRIu64 " MiB, so %" PRIu64
                                 " more at the very best)",
                                 bytes / MIB(1), bytes / page_size);
                snprintf(buf, TEXT_MAX,
                         "memory that has been used seldom has %s in one piece%s: have them made at boot, with "
                         "hugepagesz=%s hugepages=%u:PAGES on the kernel's command line, or keep room with "
                         "hugetlb_cma=, and reboot",
                         size, free_text, size, node);
        } else
                snprintf(buf, TEXT_MAX,
                         "the node's memory is in use or in pieces: free some%s, or have them made at boot, with "
                         "hugepagesz=%s hugepages=%u:PAGES on the kernel's command line",
                         q->drop_caches ? "" : ", allow the page cache to be dropped (drop-caches)", size,
                         node);
        return buf;
}

/* The caller's numbers, whatever way they were given. */
static const char *asked(char buf[static TEXT_MAX], unsigned node, uint64_t page_size, const PoolRequest *q,
                         const PoolResult *p) {
        if (q->mode == POOL_SET)
                snprintf(buf, TEXT_MAX, "asked for %" PRIu64 " pages of %s on node %u", q->pages,
                         format_bytes(page_size), node);
        else
                snprintf(buf, TEXT_MAX,
                         "asked for %" PRIu64 " pages of %s %s on node %u, %" PRIu64 " in all", q->pages,
                         format_bytes(page_size), q->mode == POOL_GROW ? "more" : "less", node, p->goal);
        return buf;
}

int pool_set_error(unsigned node, uint64_t page_size, const PoolRequest *q, const PoolResult *p, int r,
                   sd_bus_error *error) {
        char a[TEXT_MAX], o[TEXT_MAX], m[TEXT_MAX];

        asked(a, node, page_size, q, p);
        outcome(o, q, p);
        switch (r) {
        case -ENOSPC:
                return sd_bus_error_setf(error, TDP_ERROR_PARTIAL, "%s, reached %" PRIu64 "%s%s; %s; %s", a,
                                         p->reached, p->compacted ? ", with the memory compacted" : "",
                                         p->dropped_caches ? " and the page cache dropped" : "", o,
                                         remedy(m, node, page_size, q));
        case -EBUSY:
                return sd_bus_error_setf(
                                error, q->allow_partial ? TDP_ERROR_PARTIAL : TDP_ERROR_BUSY,
                                "%s, reached %" PRIu64 ": %" PRIu64 " are in use and %" PRIu64
                                " promised, and those stay; %s; see who has them with \"tdpctl pools "
                                "--holders\", and free some",
                                a, p->reached, p->in_use, p->reserved, o);
        case -EAGAIN:
                return sd_bus_error_setf(
                                error, TDP_ERROR_BUSY,
                                "%s, and somebody else keeps changing that number; %s; find out who "
                                "writes nr_hugepages, and let only one do it",
                                a, o);
        case -ECANCELED:
                return sd_bus_error_setf(error, TDP_ERROR_CANCELED, "canceled at %" PRIu64 " pages; %s",
                                         p->reached, o);
        case -ERANGE:
                return sd_bus_error_setf(error, TDP_ERROR_INVALID,
                                         "asked for %" PRIu64
                                         " pages of %s %s on node %u, where there are %" PRIu64,
                                         q->pages, format_bytes(page_size),
                                         q->mode == POOL_SHRINK ? "less" : "more", node, p->before);
        case -EINVAL:
                return sd_bus_error_setf(error, TDP_ERROR_UNSUPPORTED,
                                         "%s: this kernel changes no such pool while it runs; %s; %s", a, o,
                                         remedy(m, node, page_size, q));
        case -EROFS:
        case -EACCES:
        case -EPERM:
                return sd_bus_error_setf(
                                error, TDP_ERROR_FAILED,
                                "%s: nr_hugepages cannot be written (%s): tdpd needs to be root, and "
                                "its unit ReadWritePaths=/sys/devices/system/node",
                                a, strerror(-r));
        default:
                return sd_bus_error_setf(error, TDP_ERROR_FAILED, "%s, reached %" PRIu64 ": %s; %s", a,
                                         p->reached, strerror(-r), o);
        }
}
