/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>

static int max_level = LOG_INFO;
static bool to_journal;

void log_setup(void) {
        to_journal = getenv("JOURNAL_STREAM") != NULL;
        if (getenv("TDPD_DEBUG"))
                max_level = LOG_DEBUG;
}

void log_set_max_level(int level) {
        max_level = level;
}

static void log_line(int level, int error, const char *format, va_list ap) {
        char line[1024];

        if (level > max_level)
                return;

        vsnprintf(line, sizeof(line), format, ap);

        /* One call for each line, so that lines of different threads do not mix. */
        if (to_journal && error)
                fprintf(stderr, "<%i>%s: %s\n", level, line, strerror(error));
        else if (to_journal)
                fprintf(stderr, "<%i>%s\n", level, line);
        else if (error)
                fprintf(stderr, "tdpd: %s: %s\n", line, strerror(error));
        else
                fprintf(stderr, "tdpd: %s\n", line);
}

void log_full(int level, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        log_line(level, 0, format, ap);
        va_end(ap);
}

int log_full_errno(int level, int error, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        log_line(level, abs(error), format, ap);
        va_end(ap);
        return -abs(error);
}
