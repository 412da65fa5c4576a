/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Messages on stderr, with the journal's level prefix if stderr goes to the journal. */

#include <errno.h>
#include <syslog.h>

#include "macro.h"

void log_setup(void);
void log_set_max_level(int level);
void log_full(int level, const char *format, ...) _printf_(2, 3);
int log_full_errno(int level, int error, const char *format, ...) _printf_(3, 4);

#define log_debug(...)            log_full(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)             log_full(LOG_INFO, __VA_ARGS__)
#define log_warning(...)          log_full(LOG_WARNING, __VA_ARGS__)
#define log_error(...)            log_full(LOG_ERR, __VA_ARGS__)
#define log_warning_errno(r, ...) log_full_errno(LOG_WARNING, r, __VA_ARGS__)
#define log_error_errno(r, ...)   log_full_errno(LOG_ERR, r, __VA_ARGS__)
#define log_oom()                 log_full_errno(LOG_ERR, -ENOMEM, "No memory for the daemon itself")
