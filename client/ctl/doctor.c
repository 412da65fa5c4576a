/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Findings, and how files are read for them. */

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>

#include "doctor.h"

static const char *const levels[_DOCTOR_LEVEL_MAX] = {
        [DOCTOR_OK] = "ok",
        [DOCTOR_NOTE] = "note",
        [DOCTOR_PROBLEM] = "problem",
};

const char *doctor_level_to_string(enum doctor_level level) {
        return levels[level];
}

void doctor_examine(struct doctor *d) {
        doctor_check_kernel(d);
        doctor_check_memory(d);
        doctor_check_memlock(d);
        doctor_check_cgroups(d);
}

void doctor_done(struct doctor *d) {
        for (size_t i = 0; i < d->n_findings; i++)
                free(d->findings[i].found);
        free(d->findings);
}

size_t doctor_count(const struct doctor *d, enum doctor_level level) {
        size_t n = 0;

        for (size_t i = 0; i < d->n_findings; i++)
                n += d->findings[i].level == level;
        return n;
}

void doctor_report(struct doctor *d, const char *check, enum doctor_level level, const char *means,
                   const char *todo, const char *format, ...) {
        struct finding *findings = reallocarray(d->findings, d->n_findings + 1, sizeof(*findings));
        char *found;
        va_list ap;
        int r;

        if (!findings) {
                d->no_memory = true;
                return;
        }
        d->findings = findings;

        va_start(ap, format);
        r = vasprintf(&found, format, ap);
        va_end(ap);
        if (r < 0) {
                d->no_memory = true;
                return;
        }
        /* Files have any content, cut anywhere: nothing for a terminal, or for JSON. */
        for (char *p = found; *p; p++)
                if (*p < ' ' || *p > '~')
                        *p = '?';
        findings[d->n_findings++] = (struct finding){
                .check = check, .level = level, .found = found, .means = means, .todo = todo
        };
}

static char *path_below(const struct doctor *d, const char *format, va_list ap)
                __attribute__((format(printf, 2, 0)));
static char *path_below(const struct doctor *d, const char *format, va_list ap) {
        _cleanup_free_ char *tail = NULL;
        char *path;

        if (vasprintf(&tail, format, ap) < 0) {
                tail = NULL;
                return NULL;
        }
        return asprintf(&path, "%s%s", d->root, tail) < 0 ? NULL : path;
}

char *doctor_path(const struct doctor *d, const char *format, ...) {
        va_list ap;
        char *path;

        va_start(ap, format);
        path = path_below(d, format, ap);
        va_end(ap);
        return path;
}

bool doctor_exists(const struct doctor *d, const char *path) {
        _cleanup_free_ char *p = doctor_path(d, "%s", path);

        return p && access(p, F_OK) == 0;
}

int doctor_read(const struct doctor *d, char text[static DOCTOR_TEXT_MAX], const char *format, ...) {
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int fd = -1;
        size_t n = 0;
        va_list ap;
        ssize_t k;

        va_start(ap, format);
        path = path_below(d, format, ap);
        va_end(ap);
        if (!path)
                return -ENOMEM;

        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
                return -errno;
        while ((k = read(fd, text + n, DOCTOR_TEXT_MAX - 1 - n)) > 0)
                n += (size_t) k;
        if (k < 0)
                return -errno;
        while (n > 0 && text[n - 1] == '\n')
                n--;
        text[n] = '\0';
        return (int) n;
}
