/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "macro.h"

/* Reads or writes a small file of sysfs or procfs as text.  "path" is a printf format. */
int sysfs_read(char **ret, const char *path, ...) _printf_(2, 3);
int sysfs_read_u64(uint64_t *ret, const char *path, ...) _printf_(2, 3);
int sysfs_write_u64(uint64_t v, const char *path, ...) _printf_(2, 3);

/* Until the end of the file, or "size" is there: how much there is. */
ssize_t read_full(int fd, void *buf, size_t size);
