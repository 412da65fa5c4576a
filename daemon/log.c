/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "log.h"

/* Where we are in our source is no news to anybody who reads the journal. */
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <systemd/sd-journal.h>

#include "log-message.h"

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

static const struct {
        const char *id;
        int level;
} messages[_LOG_MESSAGE_MAX] = {
#define LOG_MESSAGE_ENTRY(name, l, i) [MESSAGE_##name] = { .id = (i), .level = (l) },
        LOG_MESSAGES(LOG_MESSAGE_ENTRY)
#undef LOG_MESSAGE_ENTRY
};

const char *log_message_id(LogMessage m) {
        return m < _LOG_MESSAGE_MAX ? messages[m].id : NULL;
}

int log_message_level(LogMessage m) {
        return m < _LOG_MESSAGE_MAX ? messages[m].level : -EINVAL;
}

#define ENTRY_LINE_MAX (sizeof("MESSAGE=") + LOG_LINE_MAX)

/* One entry, with what the journal is to find it by. */
typedef struct Entry {
        struct iovec iov[4 + LOG_FIELDS_MAX];
        int n;
        char buffer[ENTRY_LINE_MAX + (3 + LOG_FIELDS_MAX) * LOG_FIELD_TEXT_MAX];
        size_t used;
} Entry;

static void entry_add(Entry *e, size_t max, const char *format, ...) _printf_(3, 4);
static void entry_add(Entry *e, size_t max, const char *format, ...) {
        char *start = e->buffer + e->used;
        va_list ap;
        int n;

        va_start(ap, format);
        n = vsnprintf(start, max, format, ap);
        va_end(ap);
        if (n < 0)
                return;
        e->iov[e->n++] = (struct iovec){ .iov_base = start, .iov_len = MIN_OF((size_t) n, max - 1) };
        e->used += MIN_OF((size_t) n + 1, max);
}

/* All lines take the same way to the journal: on two ways they would overtake each other. */
static int send_to_journal(int level, const char *id, int error, const LogField *fields, const char *line) {
        Entry e;

        e.n = 0;
        e.used = 0;
        entry_add(&e, ENTRY_LINE_MAX, "MESSAGE=%s", line);
        entry_add(&e, LOG_FIELD_TEXT_MAX, "PRIORITY=%i", level);
        if (id)
                entry_add(&e, LOG_FIELD_TEXT_MAX, "MESSAGE_ID=%s", id);
        if (error)
                entry_add(&e, LOG_FIELD_TEXT_MAX, "ERRNO=%i", error);
        for (size_t i = 0; fields && fields[i].name && i < LOG_FIELDS_MAX; i++)
                if (fields[i].text && fields[i].text[0] != '\0')
                        entry_add(&e, LOG_FIELD_TEXT_MAX, "%s=%s", fields[i].name, fields[i].text);
                else if (!fields[i].text)
                        entry_add(&e, LOG_FIELD_TEXT_MAX, "%s=%" PRIu64, fields[i].name, fields[i].number);
        return sd_journal_sendv(e.iov, e.n);
}

/* Names and texts of callers are in there: they begin no line of their own, and drive no terminal. */
static void make_printable(char *line) {
        for (char *p = line; *p != '\0'; p++)
                if ((unsigned char) *p < ' ' || *p == 127)
                        *p = '?';
}

static void log_line(int level, const char *id, int error, const LogField *fields, const char *format,
                     va_list ap) {
        char line[LOG_LINE_MAX];
        int n;

        if (level > max_level)
                return;

        n = vsnprintf(line, sizeof(line), format, ap);
        if (error && n >= 0 && (size_t) n < sizeof(line))
                snprintf(line + n, sizeof(line) - (size_t) n, ": %s", strerror(error));
        make_printable(line);

        if (to_journal && send_to_journal(level, id, error, fields, line) >= 0)
                return;
        /* One call for each line, so that lines of different threads do not mix. */
        if (to_journal)
                fprintf(stderr, "<%i>%s\n", level, line);
        else
                fprintf(stderr, "tdpd: %s\n", line);
}

void log_full(int level, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        log_line(level, NULL, 0, NULL, format, ap);
        va_end(ap);
}

int log_full_errno(int level, int error, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        log_line(level, NULL, abs(error), NULL, format, ap);
        va_end(ap);
        return -abs(error);
}

void log_message(LogMessage m, const LogField *fields, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        log_line(messages[m].level, messages[m].id, 0, fields, format, ap);
        va_end(ap);
}

int log_message_errno(LogMessage m, int error, const LogField *fields, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        log_line(messages[m].level, messages[m].id, abs(error), fields, format, ap);
        va_end(ap);
        return -abs(error);
}
