/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Messages for people. */

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "log.h"

static bool quiet;
static void (*log_sink)(const char *kind, const char *text, void *userdata);
static void *log_sink_userdata;

void log_set_sink(void (*sink)(const char *kind, const char *text, void *userdata), void *userdata) {
        log_sink = sink;
        log_sink_userdata = userdata;
}

void log_set_quiet(void) {
        quiet = true;
}

static void print(const char *kind, const char *format, va_list ap) __attribute__((format(printf, 2, 0)));
static void print(const char *kind, const char *format, va_list ap) {
        char text[4096];

        (void) vsnprintf(text, sizeof(text), format, ap);
        /* It may be what somebody else wrote, on another host: that drives no terminal. */
        for (char *p = text; *p != '\0'; p++)
                if (((unsigned char) *p < ' ' && *p != '\n' && *p != '\t') || *p == 127)
                        *p = '?';
        if (log_sink)
                log_sink(kind, text, log_sink_userdata);
        fprintf(stderr, "tdpctl: %s\n", text);
}

int log_error(int r, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        print("error", format, ap);
        va_end(ap);
        return r;
}

void log_notice(const char *format, ...) {
        va_list ap;

        if (quiet)
                return;
        va_start(ap, format);
        print("notice", format, ap);
        va_end(ap);
}
