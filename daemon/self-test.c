/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "self-test.h"

#include <errno.h>
#include <inttypes.h>

#include "format.h"
#include "log-message.h"
#include "log.h"
#include "process.h"

void self_test_memlock(const char *sysfs_root) {
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        uint64_t limit, need = 0;
        int r;

        r = process_get_memlock(getpid(), &limit);
        if (r < 0) {
                log_warning_errno(r, "How much memory tdpd may lock cannot be found out");
                return;
        }
        if (limit == UINT64_MAX)
                return;
        r = node_table_load(sysfs_root, &nodes);
        if (r < 0)
                return; /* without nodes nothing can be placed, and those who ask are told */
        for (size_t i = 0; i < nodes->n_nodes; i++)
                need += nodes->nodes[i].mem_total;
        if (limit >= need)
                return;
        log_message(MESSAGE_MEMLOCK_LOW, FIELDS(FIELD_NUMBER("TDP_MEMLOCK", limit), FIELD_BYTES(need)),
                    "tdpd may lock %s (RLIMIT_MEMLOCK), and its VMs could need up to %s, which this host has: "
                    "mappings beyond that cannot be pinned. Its unit needs LimitMEMLOCK=infinity, or "
                    "CAP_IPC_LOCK",
                    format_bytes(limit), format_bytes(need));
}
