/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* To be preloaded, see fail.h. Before main, and in programs that are not tdpd, all calls pass. */
#include "fail.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

static FailControl *control;
static uintptr_t program_begin, program_end;
static bool sanitized; /* then a thread that finds no memory to start with is the program's end */

static int find_program(struct dl_phdr_info *info, size_t size, void *userdata) {
        for (size_t i = 0; i < info->dlpi_phnum; i++) {
                const ElfW(Phdr) *p = &info->dlpi_phdr[i];

                if (p->p_type == PT_LOAD && (p->p_flags & PF_X)) {
                        program_begin = info->dlpi_addr + p->p_vaddr;
                        program_end = program_begin + p->p_memsz;
                }
        }
        return 1; /* the first one is the program */
}

__attribute__((constructor)) static void set_up(void) {
        const char *path = getenv(FAIL_ENV);
        void *p;
        int fd;

        if (!path || strncmp(program_invocation_short_name, "tdpd", 4) != 0)
                return;
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
                return;
        p = mmap(NULL, sizeof(FailControl), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (p == MAP_FAILED)
                return;
        dl_iterate_phdr(find_program, NULL);
        sanitized = dlsym(RTLD_DEFAULT, "__asan_init") != NULL;
        control = p;
        control->loaded = true;
}

static bool fails(const char *call, const void *caller) {
        bool own = (uintptr_t) caller >= program_begin && (uintptr_t) caller < program_end;

        if (!control || !atomic_load(&control->armed) || (!own && !control->libraries) ||
            (!own && sanitized && gettid() != getpid()) || strcmp(control->call, call) != 0 ||
            atomic_fetch_sub(&control->countdown, 1) != 1)
                return false;
        control->fired = true;
        errno = control->error;
        return true;
}

#define CALLER __builtin_return_address(0)

#define REAL(name)                                                                                          \
        ({                                                                                                  \
                static typeof(&name) _real;                                                                 \
                if (!_real)                                                                                 \
                        _real = (typeof(&name)) dlsym(RTLD_NEXT, #name);                                    \
                _real;                                                                                      \
        })

/* ---- Allocations ------------------------------------------------------- */

/* dlsym() may allocate before it has found what allocates. */
static _Alignas(max_align_t) char early[4096];
static size_t early_used;
/* This model because ASan, while it starts, has not yet found what the others call. */
/* volatile: gcc thinks that dlsym() does not come back here. */
static __thread volatile bool looking __attribute__((tls_model("initial-exec")));

static bool is_early(const void *p) {
        return (const char *) p >= early && (const char *) p < early + sizeof(early);
}

static void *early_alloc(size_t size) {
        void *p = early + early_used;

        size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
        if (size > sizeof(early) - early_used)
                abort();
        early_used += size;
        return p;
}

#define REAL_ALLOC(name)                                                                                    \
        ({                                                                                                  \
                static typeof(&name) _real;                                                                 \
                if (!_real && !looking) {                                                                   \
                        looking = true;                                                                     \
                        _real = (typeof(&name)) dlsym(RTLD_NEXT, #name);                                    \
                        looking = false;                                                                    \
                }                                                                                           \
                _real;                                                                                      \
        })

void *malloc(size_t size) {
        typeof(&malloc) real = REAL_ALLOC(malloc);

        if (fails(FAIL_ALLOCATION, CALLER))
                return NULL;
        return real ? real(size) : early_alloc(size);
}

void *calloc(size_t n, size_t size) {
        typeof(&calloc) real = REAL_ALLOC(calloc);

        if (fails(FAIL_ALLOCATION, CALLER))
                return NULL;
        return real ? real(n, size) : early_alloc(n * size);
}

void *realloc(void *p, size_t size) {
        if (is_early(p))
                abort();
        return fails(FAIL_ALLOCATION, CALLER) ? NULL : REAL_ALLOC(realloc)(p, size);
}

void *reallocarray(void *p, size_t n, size_t size) {
        return fails(FAIL_ALLOCATION, CALLER) ? NULL : REAL_ALLOC(reallocarray)(p, n, size);
}

void free(void *p) {
        typeof(&free) real = REAL_ALLOC(free);

        if (real && !is_early(p))
                real(p);
}

char *strdup(const char *s) {
        return fails(FAIL_ALLOCATION, CALLER) ? NULL : REAL(strdup)(s);
}

char *strndup(const char *s, size_t n) {
        return fails(FAIL_ALLOCATION, CALLER) ? NULL : REAL(strndup)(s, n);
}

FILE *open_memstream(char **p, size_t *size) {
        return fails(FAIL_ALLOCATION, CALLER) ? NULL : REAL(open_memstream)(p, size);
}

int vasprintf(char **ret, const char *format, va_list ap) {
        return fails(FAIL_ALLOCATION, CALLER) ? -1 : REAL(vasprintf)(ret, format, ap);
}

int asprintf(char **ret, const char *format, ...) {
        va_list ap;
        int r;

        if (fails(FAIL_ALLOCATION, CALLER))
                return -1;
        va_start(ap, format);
        r = REAL(vasprintf)(ret, format, ap);
        va_end(ap);
        return r;
}

/* ---- System calls ------------------------------------------------------ */

/* Those whose arguments are passed on as they are; "64" is what file offsets of 64 bits make of a name. */
#define PASS(type, failure, name, call, parameters, ...)                                                    \
        type name parameters {                                                                              \
                return fails(call, CALLER) ? (failure) : REAL(name)(__VA_ARGS__);                           \
        }

/* What goes to the service manager is of another kind than all the rest. */
static const char *message_kind(const struct msghdr *m) {
        const struct sockaddr_un *to = m->msg_name;
        const char *manager = getenv("NOTIFY_SOCKET");

        return to && manager && strcmp(to->sun_path, manager) == 0 ? "notify" : "sendmsg";
}

PASS(int, -1, memfd_create, "memfd_create", (const char *s, unsigned flags), s, flags)
PASS(int, -1, ftruncate64, "ftruncate", (int fd, off64_t size), fd, size)
PASS(void *, MAP_FAILED, mmap64, "mmap", (void *p, size_t n, int prot, int flags, int fd, off64_t at), p, n,
     prot, flags, fd, at)
PASS(int, -1, madvise, "madvise", (void *p, size_t n, int advice), p, n, advice)
PASS(ssize_t, -1, read, "read", (int fd, void *p, size_t n), fd, p, n)
PASS(int, -1, rename, "rename", (const char *from, const char *to), from, to)
PASS(int, -1, renameat, "rename", (int a, const char *from, int b, const char *to), a, from, b, to)
PASS(int, -1, fsync, "fsync", (int fd), fd)
PASS(ssize_t, -1, sendmsg, message_kind(m), (int fd, const struct msghdr *m, int flags), fd, m, flags)
PASS(ssize_t, -1, readlinkat, "readlinkat", (int fd, const char *s, char *p, size_t n), fd, s, p, n)
PASS(DIR *, NULL, opendir, "open", (const char *s), s)
PASS(FILE *, NULL, fopen64, "open", (const char *s, const char *mode), s, mode)
PASS(int, -1, eventfd, "eventfd", (unsigned n, int flags), n, flags)

/* Not in glibc's headers of all versions, or in another library. */
long mbind(void *p, unsigned long n, int mode, const unsigned long *mask, unsigned long max, unsigned flags);
int pidfd_open(pid_t pid, unsigned flags);
int pidfd_getfd(int pidfd, int fd, unsigned flags);
PASS(long, -1, mbind, "mbind",
     (void *p, unsigned long n, int mode, const unsigned long *mask, unsigned long max, unsigned flags), p,
     n, mode, mask, max, flags)
PASS(int, -1, pidfd_open, "pidfd_open", (pid_t pid, unsigned flags), pid, flags)
PASS(int, -1, pidfd_getfd, "pidfd_getfd", (int pidfd, int fd, unsigned flags), pidfd, fd, flags)

/* What wakes the event loop (8 bytes for an eventfd) cannot fail, and nobody could wait for it if it did. */
ssize_t write(int fd, const void *p, size_t n) {
        return n != sizeof(uint64_t) && fails("write", CALLER) ? -1 : REAL(write)(fd, p, n);
}

/* Returns its error instead of setting errno. */
int pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*f)(void *), void *arg) {
        return fails("pthread_create", CALLER) ? errno : REAL(pthread_create)(ret, attr, f, arg);
}

int prlimit64(pid_t pid, enum __rlimit_resource what, const struct rlimit64 *new, struct rlimit64 *old) {
        return fails("prlimit", CALLER) ? -1 : REAL(prlimit64)(pid, what, new, old);
}

/* The one argument that there may be more is passed on, whether it is there or not. */
#define PASS_VARIADIC(name, call, parameters, ...)                                                          \
        int name parameters {                                                                               \
                va_list ap;                                                                                 \
                void *more;                                                                                 \
                if (fails(call, CALLER))                                                                    \
                        return -1;                                                                          \
                va_start(ap, last);                                                                         \
                more = va_arg(ap, void *);                                                                  \
                va_end(ap);                                                                                 \
                return REAL(name)(__VA_ARGS__, more);                                                       \
        }

#define last what
PASS_VARIADIC(fcntl64, "fcntl", (int fd, int what, ...), fd, what)
PASS_VARIADIC(ioctl, "ioctl", (int fd, unsigned long what, ...), fd, what)
PASS_VARIADIC(open64, "open", (const char *s, int what, ...), s, what)
PASS_VARIADIC(openat64, "open", (int fd, const char *s, int what, ...), fd, s, what)
