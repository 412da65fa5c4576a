/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "cleanup.h"

/* Messages for people, on standard error, with "tdpctl: " before them. */

/* Returns r, so that it can be returned. */
int log_error(int r, const char *format, ...) _printf_(2, 3);

/* Remarks, which --quiet silences. */
void log_notice(const char *format, ...) _printf_(1, 2);
void log_set_quiet(void);

/* Has what is said go there, too. */
void log_set_sink(void (*sink)(const char *kind, const char *text, void *userdata), void *userdata);
