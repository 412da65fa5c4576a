/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

#define SYSFS_FILE_MAX KIB(64)

ssize_t read_full(int fd, void *buf, size_t size) {
        size_t n = 0;

        while (n < size) {
                ssize_t k = read(fd, (char *) buf + n, size - n);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k < 0)
                        return -errno;
                if (k == 0)
                        break;
                n += (size_t) k;
        }
        return (ssize_t) n;
}

static int read_file(const char *path, char **ret) {
        _cleanup_close_ int fd = -1;
        _cleanup_free_ char *buf = NULL;
        ssize_t n;

        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (fd < 0)
                return -errno;
        buf = malloc(SYSFS_FILE_MAX + 1);
        if (!buf)
                return -ENOMEM;

        n = read_full(fd, buf, SYSFS_FILE_MAX);
        if (n < 0)
                return (int) n;
        if (n == (ssize_t) SYSFS_FILE_MAX)
                return -E2BIG;
        buf[n] = '\0';
        *ret = TAKE_PTR(buf);
        return 0;
}

static int path_vformat(char path[static PATH_MAX], const char *format, va_list ap) {
        int n = vsnprintf(path, PATH_MAX, format, ap);

        return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

int sysfs_read(char **ret, const char *format, ...) {
        char path[PATH_MAX];
        va_list ap;
        int r;

        va_start(ap, format);
        r = path_vformat(path, format, ap);
        va_end(ap);
        return r < 0 ? r : read_file(path, ret);
}

int sysfs_read_u64(uint64_t *ret, const char *format, ...) {
        _cleanup_free_ char *s = NULL;
        char path[PATH_MAX], *end;
        unsigned long long v;
        va_list ap;
        int r;

        va_start(ap, format);
        r = path_vformat(path, format, ap);
        va_end(ap);
        if (r < 0)
                return r;

        r = read_file(path, &s);
        if (r < 0)
                return r;
        errno = 0;
        v = strtoull(s, &end, 10);
        if (errno != 0 || end == s || *s == '-' || (*end != '\n' && *end != '\0'))
                return -EBADMSG;
        *ret = v;
        return 0;
}

int sysfs_write_u64(uint64_t v, const char *format, ...) {
        _cleanup_close_ int fd = -1;
        char path[PATH_MAX], text[24];
        int r, n = snprintf(text, sizeof(text), "%" PRIu64 "\n", v);
        va_list ap;

        va_start(ap, format);
        r = path_vformat(path, format, ap);
        va_end(ap);
        if (r < 0)
                return r;

        /* Not created: a file that the kernel does not have is an error.  Not truncated: in a tree of plain
         * files a reader would find nothing for a moment, and what is behind the line's end is not read. */
        fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        if (fd < 0)
                return -errno;
        if (write(fd, text, (size_t) n) < 0)
                return -errno;
        return 0;
}
