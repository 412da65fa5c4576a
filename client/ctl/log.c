/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Messages for people. */

#include <stdarg.h>
#include <stdbool.h>

#include "log.h"

static bool quiet;

void log_set_quiet(void) {
        quiet = true;
}

static void print(const char *format, va_list ap) __attribute__((format(printf, 1, 0)));
static void print(const char *format, va_list ap) {
        fputs("tdpctl: ", stderr);
        vfprintf(stderr, format, ap);
        fputc('\n', stderr);
}

int log_error(int r, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        print(format, ap);
        va_end(ap);
        return r;
}

void log_notice(const char *format, ...) {
        va_list ap;

        if (quiet)
                return;
        va_start(ap, format);
        print(format, ap);
        va_end(ap);
}
