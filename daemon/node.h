/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A snapshot of the host's NUMA nodes.  It is taken anew for each question: pools and nodes change behind
 * our back, and a cached number is the classic way to promise pages twice. */

#include "idset.h"
#include "pool.h"

#define NODE_ID_MAX 1024U /* MAX_NUMNODES of x86 */

typedef struct Node {
        unsigned id;
        IdSet cpus;
        uint64_t mem_total; /* bytes; 0 for a node without memory */
        uint64_t mem_free;
        uint64_t mem_cache; /* file pages that the kernel can drop */
        bool waited_for;    /* as in Pool, for pages of the base size */
        Pool *pools;
        size_t n_pools;
} Node;

typedef struct NodeTable {
        Node *nodes; /* by ascending id; ids may be sparse */
        size_t n_nodes;
} NodeTable;

int node_table_load(const char *sysfs_root, NodeTable **ret);
NodeTable *node_table_free(NodeTable *t);
DEFINE_CLEANUP(NodeTable, node_table_free);

const Node *node_table_find(const NodeTable *t, unsigned id);
const Pool *node_find_pool(const Node *n, uint64_t page_size);

/* All page sizes of the host, the base page first, ascending; "2 MiB, 1 GiB" for messages. */
int node_table_page_sizes(const NodeTable *t, uint64_t **ret, size_t *ret_n);
int node_table_format_page_sizes(const NodeTable *t, char **ret);
int node_table_format_ids(const NodeTable *t, char **ret);

uint64_t base_page_size(void);
