/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Files of running VMs, for those who control them. */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "cleanup.h"
#include "runtime.h"

#define MARK_TRIES 10
#define MARK_USEC  20000

static int append(char **ret, const char *folder, const char *name) {
        if (asprintf(ret, "%s/%s", folder, name) < 0) {
                *ret = NULL;
                return -ENOMEM;
        }
        return 0;
}

static int find_base(char **ret) {
        const char *told = getenv("TDPCTL_RUNTIME_DIR"), *xdg = getenv("XDG_RUNTIME_DIR");

        if (told && told[0] == '/') {
                *ret = strdup(told);
                return *ret ? 0 : -ENOMEM;
        }
        if (geteuid() == 0)
                return append(ret, "/run", "tdpctl");
        return xdg && xdg[0] == '/' ? append(ret, xdg, "tdpctl") : -ENOENT;
}

int runtime_init(struct runtime *r, const char *name) {
        struct sockaddr_un address;
        int e;

        *r = (struct runtime){ .lock_fd = -1 };
        if (name[0] == '\0' || name[0] == '.' || strpbrk(name, "/\"\n"))
                return -EINVAL;
        e = find_base(&r->base);
        if (e >= 0)
                e = append(&r->folder, r->base, name);
        if (e >= 0)
                e = append(&r->qmp, r->folder, "qmp");
        if (e >= 0)
                e = append(&r->vm, r->folder, "vm.json");
        if (e >= 0)
                e = append(&r->migration, r->folder, "migration");
        if (e >= 0 && (strlen(r->qmp) >= sizeof(address.sun_path) || strpbrk(r->qmp, "\"\n")))
                e = -ENAMETOOLONG;
        if (e < 0)
                runtime_done(r);
        return e;
}

void runtime_done(struct runtime *r) {
        free(r->base);
        free(r->folder);
        free(r->qmp);
        free(r->vm);
        free(r->migration);
        r->lock_fd = close_keep_errno(r->lock_fd);
        *r = (struct runtime){ .lock_fd = -1 };
}

/* One that is there must be ours, and nobody else's to look into. */
static int make_private(const char *path) {
        struct stat st;

        if (mkdir(path, 0700) < 0 && errno != EEXIST)
                return -errno;
        if (lstat(path, &st) < 0)
                return -errno;
        if (!S_ISDIR(st.st_mode))
                return -ENOTDIR;
        if (st.st_uid != geteuid() || (st.st_mode & 0077) != 0)
                return -EPERM;
        return 0;
}

int runtime_make_base(const struct runtime *r) {
        return make_private(r->base);
}

int runtime_create(struct runtime *r) {
        int e;

        e = make_private(r->base);
        if (e >= 0)
                e = make_private(r->folder);
        if (e < 0)
                return e;

        r->lock_fd = open(r->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (r->lock_fd < 0)
                return -errno;
        if (flock(r->lock_fd, LOCK_EX | LOCK_NB) < 0) {
                e = errno == EWOULDBLOCK ? -EBUSY : -errno;
                r->lock_fd = close_keep_errno(r->lock_fd);
                return e;
        }
        /* What one that died has left. */
        (void) unlink(r->qmp);
        (void) unlink(r->vm);
        (void) unlink(r->migration);
        return 0;
}

int runtime_wait(const struct runtime *r, uint64_t usec) {
        _cleanup_close_ int fd = -1;

        fd = open(r->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT ? 0 : -errno;
        for (uint64_t waited = 0; flock(fd, LOCK_SH | LOCK_NB) < 0; waited += MARK_USEC) {
                if (errno != EWOULDBLOCK)
                        return -errno;
                if (waited >= usec)
                        return -EBUSY;
                (void) usleep(MARK_USEC);
        }
        return 0;
}

void runtime_remove(struct runtime *r) {
        if (r->lock_fd < 0)
                return;
        (void) unlink(r->qmp);
        (void) unlink(r->vm);
        (void) unlink(r->migration);
        (void) rmdir(r->folder);
        r->lock_fd = close_keep_errno(r->lock_fd);
}

int runtime_read(const struct runtime *r, json_object **ret) {
        json_object *o;

        if (access(r->vm, R_OK) < 0)
                return -errno;
        o = json_object_from_file(r->vm);
        if (!o)
                return -EBADMSG;
        *ret = o;
        return 0;
}

int runtime_mark(const struct runtime *r, const char *text) {
        _cleanup_close_ int fd = -1;

        fd = open(r->migration, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return -errno;
        /* Who looks whether it is held has it for a moment. */
        for (unsigned i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
                if (errno != EWOULDBLOCK || i == MARK_TRIES)
                        return errno == EWOULDBLOCK ? -EBUSY : -errno;
                (void) usleep(MARK_USEC);
        }
        runtime_mark_set(fd, text);
        return TAKE_FD(fd);
}

void runtime_mark_set(int fd, const char *text) {
        if (fd < 0)
                return;
        /* In one write, and of no other length than what is read: a reader never sees a part. */
        char line[RUNTIME_MARK_MAX] = {};

        (void) strncpy(line, text, sizeof(line) - 1);
        (void) !pwrite(fd, line, sizeof(line), 0);
}

void runtime_unmark(const struct runtime *r, int fd) {
        if (fd < 0)
                return;
        (void) unlink(r->migration);
        close_keep_errno(fd);
}

bool runtime_is_orphaned(const struct runtime *r, char text[static RUNTIME_MARK_MAX]) {
        _cleanup_close_ int fd = -1;

        fd = open(r->migration, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0)
                return false;
        memset(text, 0, RUNTIME_MARK_MAX);
        (void) !pread(fd, text, RUNTIME_MARK_MAX - 1, 0);
        return true;
}

static int make_address(const char *path, struct sockaddr_un *ret) {
        *ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
        if (strlen(path) >= sizeof(ret->sun_path))
                return -ENAMETOOLONG;
        strcpy(ret->sun_path, path);
        return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

int unix_connect(const char *path) {
        _cleanup_close_ int fd = -1;
        struct sockaddr_un address;

        fd = make_address(path, &address);
        if (fd == -ENAMETOOLONG)
                return fd;
        if (fd < 0 || connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0)
                return -errno;
        return TAKE_FD(fd);
}

int unix_listen(const char *path) {
        _cleanup_close_ int fd = -1;
        struct sockaddr_un address;

        fd = make_address(path, &address);
        if (fd == -ENAMETOOLONG)
                return fd;
        if (fd < 0 || bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0 || listen(fd, 1) < 0)
                return -errno;
        return TAKE_FD(fd);
}
