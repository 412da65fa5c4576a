/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How busy the host is: pressure stall information, and the load.  Both in hundredths. */

#include "macro.h"

/* The share of time, in 1/100 of a percent, that some task waited, over ten seconds ("some avg10=").
 * -EBADMSG if the text is of another kind. */
int psi_parse(const char *text, uint64_t *ret);
/* Of the last minute: 150 is 1.5 tasks. */
int loadavg_parse(const char *text, uint64_t *ret);

/* From a procfs.  -ENOENT, or -EOPNOTSUPP: this kernel does not measure pressure. */
int psi_read_memory(const char *proc_root, uint64_t *ret);
int loadavg_read(const char *proc_root, uint64_t *ret);
