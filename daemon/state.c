/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "name.h"
#include "sysfs.h"

#define COMMITTED ".vm" /* of VMs */
#define PREPARED  ".new"
#define FILE_MAX  (VM_NAME_MAX + 16U)

/* A folder that somebody has filled with other things does not fill our memory. */
#define ENTRIES_MAX 65536U

struct State {
        char *path;
        const char *suffix; /* of what is committed */
        bool durable;
        int fd;
};

State *state_free(State *s) {
        if (!s)
                return NULL;
        safe_close(s->fd);
        free(s->path);
        free(s);
        return NULL;
}

const char *state_path(const State *s) {
        return s->path;
}

int state_open(const char *path, State **ret) {
        return state_open_as(path, COMMITTED, false, ret);
}

int state_open_as(const char *path, const char *suffix, bool durable, State **ret) {
        _cleanup_(state_freep) State *s = NULL;

        s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        s->fd = -1;
        s->suffix = suffix;
        s->durable = durable;
        s->path = strdup(path);
        if (!s->path)
                return -ENOMEM;
        if (mkdir(path, 0700) < 0 && errno != EEXIST && errno != EROFS)
                return -errno;
        s->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (s->fd < 0)
                return -errno;
        /* Two that take over from the same records would undo each other.  The lock ends with us. */
        if (flock(s->fd, LOCK_EX | LOCK_NB) < 0)
                return errno == EWOULDBLOCK ? -EBUSY : -errno;
        *ret = TAKE_PTR(s);
        return 0;
}

static void file_name(char ret[static FILE_MAX], const char *name, const char *suffix) {
        snprintf(ret, FILE_MAX, "%s%s", name, suffix);
}

static int write_all(int fd, const char *text, size_t size) {
        while (size > 0) {
                ssize_t k = write(fd, text, size);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0)
                        return k < 0 ? -errno : -EIO;
                text += k;
                size -= (size_t) k;
        }
        return 0;
}

int state_prepare(State *s, const char *name, const char *text, size_t size) {
        _cleanup_close_ int fd = -1;
        char file[FILE_MAX];
        int r;

        file_name(file, name, PREPARED);
        /* Not into what an earlier one, or somebody else, has left there: that may be a link. */
        if (unlinkat(s->fd, file, 0) < 0 && errno != ENOENT)
                return -errno;
        fd = openat(s->fd, file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return -errno;
        r = write_all(fd, text, size);
        if (r >= 0 && s->durable && fsync(fd) < 0)
                r = -errno;
        /* Some file systems tell at the end only. */
        if (close(TAKE_FD(fd)) < 0 && r >= 0)
                r = -errno;
        if (r < 0)
                (void) unlinkat(s->fd, file, 0);
        return r;
}

int state_commit(State *s, const char *name) {
        char from[FILE_MAX], to[FILE_MAX];

        file_name(from, name, PREPARED);
        file_name(to, name, s->suffix);
        if (renameat(s->fd, from, s->fd, to) < 0)
                return -errno;
        return s->durable && fsync(s->fd) < 0 ? -errno : 0;
}

int state_write(State *s, const char *name, const char *text, size_t size) {
        int r = state_prepare(s, name, text, size);

        if (r < 0)
                return r;
        r = state_commit(s, name);
        if (r < 0)
                (void) state_forget_prepared(s, name);
        return r;
}

int state_unlink(State *s, const char *file) {
        return unlinkat(s->fd, file, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int state_forget_prepared(State *s, const char *name) {
        char file[FILE_MAX];

        file_name(file, name, PREPARED);
        return state_unlink(s, file);
}

int state_remove(State *s, const char *name) {
        char file[FILE_MAX];

        file_name(file, name, s->suffix);
        return state_unlink(s, file);
}

static int read_text(int fd, size_t size_max, char **ret, size_t *ret_size) {
        _cleanup_free_ char *buf = NULL;
        size_t n = 0;
        ssize_t k;

        /* Most are small, and there may be thousands. */
        do {
                char *grown = realloc(buf, n + KIB(4));

                if (!grown)
                        return -ENOMEM;
                buf = grown;
                k = read_full(fd, buf + n, KIB(4));
                if (k < 0)
                        return (int) k;
                n += (size_t) k;
                if (n > size_max)
                        return -EFBIG;
        } while (k == (ssize_t) KIB(4));
        *ret = TAKE_PTR(buf);
        *ret_size = n;
        return 0;
}

static int read_entry(State *s, size_t size_max, StateEntry *e) {
        _cleanup_close_ int fd = -1;
        struct stat st;

        /* A FIFO would keep us waiting, and a device might do anything. */
        fd = openat(s->fd, e->file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (S_ISDIR(st.st_mode))
                return -EISDIR;
        if (!S_ISREG(st.st_mode))
                return -EINVAL;
        return read_text(fd, size_max, &e->text, &e->size);
}

static int set_names(const State *s, StateEntry *e, const char *file) {
        size_t n = strlen(file), suffix = 0;

        e->file = strdup(file);
        if (!e->file)
                return -ENOMEM;
        if (n > strlen(s->suffix) && streq(file + n - strlen(s->suffix), s->suffix))
                suffix = strlen(s->suffix);
        else if (n > strlen(PREPARED) && streq(file + n - strlen(PREPARED), PREPARED)) {
                suffix = strlen(PREPARED);
                e->prepared = true;
        }
        if (suffix == 0)
                return 0;
        e->name = strndup(file, n - suffix);
        if (!e->name)
                return -ENOMEM;
        if (!vm_name_is_valid(e->name)) {
                free(TAKE_PTR(e->name));
                e->prepared = false;
        }
        return 0;
}

void state_entries_free(StateEntry *entries, size_t n) {
        for (size_t i = 0; i < n; i++) {
                free(entries[i].file);
                free(entries[i].name);
                free(entries[i].text);
        }
        free(entries);
}

static int compare(const void *a, const void *b) {
        const StateEntry *x = a, *y = b;

        if (x->prepared != y->prepared)
                return x->prepared ? 1 : -1;
        return strcmp(x->file, y->file);
}

static int list(State *s, DIR *d, size_t size_max, StateEntry **entries, size_t *n) {
        StateEntry *grown;
        struct dirent *de;
        size_t room = 0;
        int r;

        for (;;) {
                errno = 0;
                de = readdir(d);
                if (!de)
                        return -errno;
                if (streq(de->d_name, ".") || streq(de->d_name, ".."))
                        continue;
                /* The folder is also one that the configuration is read from, and handoffs and what drains
                 * have one in it. */
                if (streq(de->d_name, "tdpd.conf") || streq(de->d_name, "tdpd.conf.d") ||
                    streq(de->d_name, "handoff") || streq(de->d_name, "draining"))
                        continue;
                if (*n >= ENTRIES_MAX)
                        return -E2BIG;
                if (*n == room) {
                        room = MAX_OF(2 * room, (size_t) 64);
                        grown = reallocarray(*entries, room, sizeof(*grown));
                        if (!grown)
                                return -ENOMEM;
                        *entries = grown;
                }
                (*entries)[*n] = (StateEntry){};
                (*n)++;
                r = set_names(s, &(*entries)[*n - 1], de->d_name);
                if (r >= 0)
                        r = read_entry(s, size_max, &(*entries)[*n - 1]);
                if (r == -ENOMEM)
                        return r;
                (*entries)[*n - 1].error = r;
        }
}

int state_list(State *s, size_t size_max, StateEntry **ret, size_t *ret_n) {
        StateEntry *entries = NULL;
        size_t n = 0;
        DIR *d;
        int fd, r;

        fd = openat(s->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        d = fdopendir(fd);
        if (!d) {
                r = -errno;
                close(fd);
                return r;
        }
        r = list(s, d, size_max, &entries, &n);
        closedir(d);
        if (r < 0) {
                state_entries_free(entries, n);
                return r;
        }
        if (n > 0)
                qsort(entries, n, sizeof(*entries), compare);
        *ret = entries;
        *ret_n = n;
        return 0;
}
