/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What all records have in common: text between a first line that says what it is, and a last one with a
 * checksum. A record is taken as a whole or not at all.
 */

#include <stdio.h>

#include "macro.h"

#define BOOT_ID_LEN 36U

typedef struct RecordFrame {
        const char *magic; /* "tdpd-record ", before the version */
        unsigned version;
        size_t size_max;
} RecordFrame;

/* Why a record is not taken.  The word is for programs: */
typedef struct RecordFault {
        const char *word; /* no-record, newer, truncated, damaged, unknown-key, bad-value, too-large */
        char text[160];
} RecordFault;

int record_fail(RecordFault *fault, const char *word, const char *format, ...) _printf_(3, 4);
/* Of all that stands before "end". */
uint64_t record_checksum(const char *text, size_t size);

/* The lines between the first and the last one, as a string. -EBADMSG with "fault" set, or -ENOMEM. */
int record_open(const RecordFrame *frame, const char *text, size_t size, char **ret, RecordFault *fault);
/* Writes the last line, and ends what open_memstream() began; r < 0: an error from before. */
int record_close(FILE *f, char *const *text, size_t *size, int r);

/* Digits only, and no zero in front: what we have written looks like that. */
int record_read_u64(const char *s, uint64_t *ret);
int record_read_hex(const char *s, uint64_t *ret); /* 16 digits */
