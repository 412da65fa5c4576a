/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Messages for people, in the journal if that is where stderr goes; else on stderr. */

#include <errno.h>
#include <syslog.h>

#include "macro.h"

typedef enum LogTarget {
        LOG_TARGET_CONSOLE, /* plain lines on stderr, wherever that goes */
        LOG_TARGET_JOURNAL, /* the journal itself, which must also read stderr */
        LOG_TARGET_AUTO,    /* to be set only: the journal if it reads stderr */
        _LOG_TARGET_MAX,
} LogTarget;

void log_setup(void);
void log_set_max_level(int level);
int log_get_max_level(void);
/* -ENOTCONN: the journal does not read stderr.  The old target stays. */
int log_set_target(LogTarget target);
LogTarget log_get_target(void);

/* syslog's words for levels, from "emerg" to "debug".  From a string: -EINVAL if there is none such. */
const char *log_level_to_string(int level);
int log_level_from_string(const char *s);
const char *log_target_to_string(LogTarget target);
int log_target_from_string(const char *s);

void log_full(int level, const char *format, ...) _printf_(2, 3);
int log_full_errno(int level, int error, const char *format, ...) _printf_(3, 4);

#define log_debug(...)            log_full(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)             log_full(LOG_INFO, __VA_ARGS__)
#define log_warning(...)          log_full(LOG_WARNING, __VA_ARGS__)
#define log_error(...)            log_full(LOG_ERR, __VA_ARGS__)
#define log_warning_errno(r, ...) log_full_errno(LOG_WARNING, r, __VA_ARGS__)
#define log_error_errno(r, ...)   log_full_errno(LOG_ERR, r, __VA_ARGS__)
#define log_oom()                 log_full_errno(LOG_ERR, -ENOMEM, "No memory for the daemon itself")
