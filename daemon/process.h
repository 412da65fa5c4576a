/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <sys/types.h>

#include "macro.h"

/* -ESRCH if there is no such process. */
int process_open(pid_t pid, int *ret_pidfd);
/* Whether it still runs: what was read from /proc before is about this very process then. */
bool process_is_alive(int pidfd);
/* In clock ticks since boot: with the pid, it is one process and no other. */
int process_get_start_time(pid_t pid, uint64_t *ret);
/* The process of a thread. */
int process_get_tgid(pid_t tid, pid_t *ret);
int process_get_uid(pid_t pid, uid_t *ret);
/* RLIMIT_MEMLOCK, or UINT64_MAX if CAP_IPC_LOCK makes it void. */
int process_get_memlock(pid_t pid, uint64_t *ret);
