/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

static const char *const levels[] = {
        [LOG_EMERG] = "emerg",     [LOG_ALERT] = "alert",   [LOG_CRIT] = "crit", [LOG_ERR] = "err",
        [LOG_WARNING] = "warning", [LOG_NOTICE] = "notice", [LOG_INFO] = "info", [LOG_DEBUG] = "debug",
};

static const char *const targets[_LOG_TARGET_MAX] = {
        [LOG_TARGET_CONSOLE] = "console",
        [LOG_TARGET_JOURNAL] = "journal",
        [LOG_TARGET_AUTO] = "auto",
};

/* Workers log as well, while the event loop changes these. */
static _Atomic int max_level = LOG_INFO;
static _Atomic bool to_journal;

/* The variable is inherited by whatever a service starts, even if its stderr goes elsewhere: it names the
 * stream. */
static bool journal_reads_stderr(void) {
        const char *stream = getenv("JOURNAL_STREAM");
        uintmax_t device, inode;
        struct stat st;
        int end = 0;

        return stream && sscanf(stream, "%ju:%ju%n", &device, &inode, &end) == 2 && stream[end] == '\0' &&
               fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

void log_setup(void) {
        to_journal = journal_reads_stderr();
        if (getenv("TDPD_DEBUG"))
                max_level = LOG_DEBUG;
}

void log_set_max_level(int level) {
        max_level = level;
}

int log_get_max_level(void) {
        return max_level;
}

int log_set_target(LogTarget target) {
        if (target == LOG_TARGET_JOURNAL && !journal_reads_stderr())
                return -ENOTCONN;
        to_journal = target == LOG_TARGET_AUTO ? journal_reads_stderr() : target == LOG_TARGET_JOURNAL;
        return 0;
}

LogTarget log_get_target(void) {
        return to_journal ? LOG_TARGET_JOURNAL : LOG_TARGET_CONSOLE;
}

static int find(const char *const *table, size_t n, const char *s) {
        for (size_t i = 0; i < n; i++)
                if (streq(table[i], s))
                        return (int) i;
        return -EINVAL;
}

const char *log_level_to_string(int level) {
        return level >= 0 && level < (int) ELEMENTSOF(levels) ? levels[level] : NULL;
}

int log_level_from_string(const char *s) {
        return find(levels, ELEMENTSOF(levels), s);
}

const char *log_target_to_string(LogTarget target) {
        return target < _LOG_TARGET_MAX ? targets[target] : NULL;
}

int log_target_from_string(const char *s) {
        return find(targets, ELEMENTSOF(targets), s);
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
