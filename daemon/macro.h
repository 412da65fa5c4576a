/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The few idioms that every file uses: cleanup attributes and passing of ownership. */

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define _cleanup_(f)   __attribute__((cleanup(f)))
#define _printf_(a, b) __attribute__((format(printf, a, b)))
#define ELEMENTSOF(x)  (sizeof(x) / sizeof((x)[0]))
#define DEFINE_CLEANUP(type, f)                                                                             \
        static inline void f##p(type **p) {                                                                 \
                f(*p);                                                                                      \
        }                                                                                                   \
        struct f##_semicolon
#define TAKE_PTR(p)                                                                                         \
        ({                                                                                                  \
                typeof(p) _taken = (p);                                                                     \
                (p) = NULL;                                                                                 \
                _taken;                                                                                     \
        })
#define TAKE_FD(fd)                                                                                         \
        ({                                                                                                  \
                int _taken = (fd);                                                                          \
                (fd) = -1;                                                                                  \
                _taken;                                                                                     \
        })
#define MIN_OF(a, b) ((a) < (b) ? (a) : (b))
#define MAX_OF(a, b) ((a) > (b) ? (a) : (b))

#define KIB(n) ((uint64_t) (n) << 10)
#define MIB(n) ((uint64_t) (n) << 20)
#define GIB(n) ((uint64_t) (n) << 30)

static inline void freep(void *p) {
        free(*(void **) p);
}

static inline int safe_close(int fd) {
        if (fd >= 0)
                close(fd);
        return -1;
}

static inline void closep(int *fd) {
        safe_close(*fd);
}

static inline void fclosep(FILE **f) {
        if (*f)
                fclose(*f);
}

static inline void closedirp(DIR **d) {
        if (*d)
                closedir(*d);
}

static inline bool streq(const char *a, const char *b) {
        return strcmp(a, b) == 0;
}

#define _cleanup_free_     _cleanup_(freep)
#define _cleanup_close_    _cleanup_(closep)
#define _cleanup_fclose_   _cleanup_(fclosep)
#define _cleanup_closedir_ _cleanup_(closedirp)
