/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Cleanup attributes and ownership transfer, as in systemd. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(f)   __attribute__((cleanup(f)))
#define _printf_(a, b) __attribute__((format(printf, a, b)))
#define _unused_       __attribute__((unused))

#define DEFINE_CLEANUP_FUNC(type, func)                                                                     \
        static inline void func##p(type *p) {                                                               \
                if (*p)                                                                                     \
                        *p = func(*p);                                                                      \
        }                                                                                                   \
        struct cleanup_func_needs_semicolon

static inline void freep(void *p) {
        free(*(void **) p);
}

static inline int close_keep_errno(int fd) {
        int saved = errno;

        if (fd >= 0)
                (void) close(fd);
        errno = saved;
        return -1;
}

static inline void closep(int *fd) {
        *fd = close_keep_errno(*fd);
}

static inline void fclosep(FILE **f) {
        if (*f)
                (void) fclose(*f);
}

#define _cleanup_free_   _cleanup_(freep)
#define _cleanup_close_  _cleanup_(closep)
#define _cleanup_fclose_ _cleanup_(fclosep)

#define TAKE_PTR(p)                                                                                         \
        ({                                                                                                  \
                typeof(p) *_take_p = &(p);                                                                  \
                typeof(p) _take_v = *_take_p;                                                               \
                *_take_p = NULL;                                                                            \
                _take_v;                                                                                    \
        })

#define TAKE_FD(fd)                                                                                         \
        ({                                                                                                  \
                int *_take_fdp = &(fd);                                                                     \
                int _take_fd = *_take_fdp;                                                                  \
                *_take_fdp = -1;                                                                            \
                _take_fd;                                                                                   \
        })

#define ELEMENTSOF(x) (sizeof(x) / sizeof((x)[0]))
