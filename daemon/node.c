/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "node.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "format.h"
#include "log.h"
#include "memstream.h"
#include "sysfs.h"

uint64_t base_page_size(void) {
        return (uint64_t) sysconf(_SC_PAGESIZE);
}

/* Lines look like "Node 0 MemTotal:       16384 kB". */
static uint64_t meminfo_bytes(const char *meminfo, const char *key) {
        const char *p = strstr(meminfo, key);
        uint64_t kib;

        if (!p || sscanf(p + strlen(key), " %" SCNu64 " kB", &kib) != 1 || kib > UINT64_MAX / 1024)
                return 0;
        return kib * 1024;
}

static int node_load(const char *root, unsigned id, Node *ret) {
        _cleanup_free_ char *cpulist = NULL, *meminfo = NULL;
        Node n = { .id = id };
        int r;

        r = sysfs_read(&cpulist, "%s/devices/system/node/node%u/cpulist", root, id);
        if (r < 0)
                return r;
        r = idset_parse(cpulist, &n.cpus);
        if (r < 0)
                return r;
        r = sysfs_read(&meminfo, "%s/devices/system/node/node%u/meminfo", root, id);
        if (r < 0)
                return r;
        n.mem_total = meminfo_bytes(meminfo, " MemTotal:");
        n.mem_free = meminfo_bytes(meminfo, " MemFree:");
        n.mem_cache = meminfo_bytes(meminfo, " Active(file):") + meminfo_bytes(meminfo, " Inactive(file):");

        r = pools_load(root, id, &n.pools, &n.n_pools);
        if (r < 0)
                return r;

        *ret = n;
        return 0;
}

NodeTable *node_table_free(NodeTable *t) {
        if (!t)
                return NULL;
        for (size_t i = 0; i < t->n_nodes; i++)
                free(t->nodes[i].pools);
        free(t->nodes);
        free(t);
        return NULL;
}

int node_table_load(const char *sysfs_root, NodeTable **ret) {
        _cleanup_(node_table_freep) NodeTable *t = NULL;
        _cleanup_free_ char *online = NULL;
        IdSet ids;
        int r;

        r = sysfs_read(&online, "%s/devices/system/node/online", sysfs_root);
        if (r < 0)
                return r;
        r = idset_parse(online, &ids);
        if (r < 0)
                return r;

        t = calloc(1, sizeof(*t));
        if (!t)
                return -ENOMEM;
        t->nodes = calloc(idset_count(&ids) + 1, sizeof(Node));
        if (!t->nodes)
                return -ENOMEM;

        IDSET_FOREACH (id, &ids) {
                if ((unsigned) id >= NODE_ID_MAX)
                        break;
                r = node_load(sysfs_root, (unsigned) id, &t->nodes[t->n_nodes]);
                if (r == -ENOMEM)
                        return r;
                if (r < 0) {
                        /* It may just have gone offline. */
                        log_warning_errno(r, "Node %i cannot be read, ignoring it", id);
                        continue;
                }
                t->n_nodes++;
        }

        *ret = TAKE_PTR(t);
        return 0;
}

const Node *node_table_find(const NodeTable *t, unsigned id) {
        for (size_t i = 0; i < t->n_nodes; i++)
                if (t->nodes[i].id == id)
                        return &t->nodes[i];
        return NULL;
}

const Pool *node_find_pool(const Node *n, uint64_t page_size) {
        for (size_t i = 0; i < n->n_pools; i++)
                if (n->pools[i].page_size == page_size)
                        return &n->pools[i];
        return NULL;
}

int node_table_page_sizes(const NodeTable *t, uint64_t **ret, size_t *ret_n) {
        _cleanup_free_ uint64_t *sizes = NULL;
        size_t n = 1, max = 1;

        for (size_t i = 0; i < t->n_nodes; i++)
                max += t->nodes[i].n_pools;
        sizes = calloc(max, sizeof(uint64_t));
        if (!sizes)
                return -ENOMEM;
        sizes[0] = base_page_size();

        for (size_t i = 0; i < t->n_nodes; i++)
                for (size_t j = 0; j < t->nodes[i].n_pools; j++) {
                        uint64_t s = t->nodes[i].pools[j].page_size;
                        size_t at = 0;

                        while (at < n && sizes[at] < s)
                                at++;
                        if (at < n && sizes[at] == s)
                                continue;
                        memmove(sizes + at + 1, sizes + at, (n - at) * sizeof(uint64_t));
                        sizes[at] = s;
                        n++;
                }

        *ret = TAKE_PTR(sizes);
        *ret_n = n;
        return 0;
}

int node_table_format_page_sizes(const NodeTable *t, char **ret) {
        _cleanup_free_ uint64_t *sizes = NULL;
        _cleanup_free_ char *s = NULL;
        size_t n, size;
        FILE *f;
        int r;

        r = node_table_page_sizes(t, &sizes, &n);
        if (r < 0)
                return r;
        f = open_memstream(&s, &size);
        if (!f)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++)
                fprintf(f, "%s%s", i > 0 ? ", " : "", format_bytes(sizes[i]));
        if (memstream_close(f, &s) < 0)
                return -ENOMEM;
        *ret = TAKE_PTR(s);
        return 0;
}

int node_table_format_ids(const NodeTable *t, char **ret) {
        IdSet ids = {};

        for (size_t i = 0; i < t->n_nodes; i++)
                idset_add(&ids, t->nodes[i].id);
        return idset_format(&ids, ret);
}
