/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What the daemon that comes next has to know of memory that drains, as text; in the way of record.h.  Lines
 * come in this order, and "file" as often as there are parts:
 *
 *      tdpd-drain 1
 *      boot-id ID
 *      name VM
 *      lease HEX
 *      uid N
 *      page-size BYTES
 *      file NODE BYTES DEVICE INODE
 *      end CHECKSUM
 */

#include "drain.h"
#include "name.h"
#include "record-text.h"

#define DRAIN_RECORD_VERSION  1U
#define DRAIN_RECORD_SIZE_MAX KIB(256) /* NODE_ID_MAX files, of less than 90 bytes each, and the rest */
#define DRAIN_FILES_MAX       NODE_ID_MAX

typedef struct DrainRecord {
        char boot_id[BOOT_ID_LEN + 1];
        char name[VM_NAME_MAX + 1];
        uint64_t lease; /* that the VM had */
        uint32_t uid;
        uint64_t page_size;
        DrainFile *files; /* without watches; those that are gone are not written */
        size_t n_files;
} DrainRecord;

void drain_record_done(DrainRecord *r);
/* -ENOMEM. */
int drain_record_format(const DrainRecord *r, char **ret, size_t *ret_size);
/* -EBADMSG with "fault" set, or -ENOMEM. */
int drain_record_parse(const char *text, size_t size, DrainRecord *ret, RecordFault *fault);
