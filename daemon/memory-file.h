/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Memory of ours, as /proc shows it in whoever has it. */

#include <sys/types.h>

/* Then the VM's name, ':' and the part's. */
#define MEMORY_FILE_PREFIX "/memfd:tdpd:"

/* What "name" in a folder /proc/PID/fd is.  1: a file that is called like ours; 0: any other, which is not
 * looked at, as some of them would block, on a dead file system for ever. */
int memory_file_identify(int folder, const char *name, dev_t *ret_device, ino_t *ret_inode);
