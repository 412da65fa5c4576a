/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What of this host concerns tdpd: for each thing what was found, what that means, and what to do. */

#include <stdbool.h>
#include <stddef.h>

#include "cleanup.h"

enum doctor_level {
        DOCTOR_OK,
        DOCTOR_NOTE,    /* it works, and could be better, or should be known */
        DOCTOR_PROBLEM, /* tdpd cannot do, or will not do, what it is there for */
        _DOCTOR_LEVEL_MAX,
};

struct finding {
        const char *check;
        enum doctor_level level;
        char *found;
        const char *means;
        const char *todo; /* NULL: nothing */
};

struct doctor {
        const char *root; /* below which proc, sys, dev and lib are looked for: "" for this host */
        struct finding *findings;
        size_t n_findings;
        bool no_memory;
};

const char *doctor_level_to_string(enum doctor_level level);

/* All that files tell. */
void doctor_examine(struct doctor *d);
void doctor_done(struct doctor *d);
size_t doctor_count(const struct doctor *d, enum doctor_level level);

/* ---- For the checks ---- */

/* Texts that are kept are constants; "found" is formatted. */
void doctor_report(struct doctor *d, const char *check, enum doctor_level level, const char *means,
                   const char *todo, const char *format, ...) _printf_(6, 7);

/* A file's text, without a newline at its end; longer ones are cut. A length, or a negative errno. */
#define DOCTOR_TEXT_MAX 4096
int doctor_read(const struct doctor *d, char text[static DOCTOR_TEXT_MAX], const char *format, ...)
                _printf_(3, 4);
bool doctor_exists(const struct doctor *d, const char *path);
/* The path below the root, or NULL if memory is short. */
char *doctor_path(const struct doctor *d, const char *format, ...) _printf_(2, 3);

void doctor_check_kernel(struct doctor *d);
void doctor_check_memory(struct doctor *d);
void doctor_check_memlock(struct doctor *d);
void doctor_check_cgroups(struct doctor *d);
