/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fdstore.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <systemd/sd-daemon.h>

#define BARRIER_USEC (UINT64_C(5) * 1000000)

struct FdStore {
        bool there;
        size_t max, count;
        StoredFd *received;
        size_t n_received;
        /* What the manager is to let go of, and could not be told. */
        FdName *late;
        size_t n_late;
};

struct FdBarrier {
        sd_event_source *io, *timer;
        fdstore_done_t done;
        void *userdata;
};

FdStore *fdstore_free(FdStore *s) {
        if (!s)
                return NULL;
        for (size_t i = 0; i < s->n_received; i++) {
                safe_close(s->received[i].fd);
                free(s->received[i].text);
        }
        free(s->received);
        free(s->late);
        free(s);
        return NULL;
}

/* FileDescriptorStoreMax=, as systemd tells it from version 254 on; else it is what our unit says. */
static size_t find_max(void) {
        const char *s = getenv("FDSTORE");
        unsigned long v;
        char *end;

        if (!s || *s < '0' || *s > '9')
                return FD_NAMES_MAX;
        v = strtoul(s, &end, 10);
        return *end != '\0' ? FD_NAMES_MAX : MIN_OF(v, (unsigned long) FD_NAMES_MAX);
}

static int take_received(FdStore *s) {
        char **names = NULL;
        int n, r = 0;

        n = sd_listen_fds_with_names(true, &names);
        if (n <= 0)
                return n;
        s->received = calloc((size_t) n, sizeof(*s->received));
        if (!s->received)
                r = -ENOMEM;
        for (int i = 0; i < n; i++) {
                if (r >= 0) {
                        StoredFd *f = &s->received[s->n_received++];

                        f->text = names[i];
                        f->fd = SD_LISTEN_FDS_START + i;
                        f->known = fdname_parse(f->text, &f->name) >= 0;
                } else
                        free(names[i]);
        }
        free(names);
        s->count = s->n_received;
        return r;
}

int fdstore_new(FdStore **ret) {
        _cleanup_(fdstore_freep) FdStore *s = NULL;
        int r;

        s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        s->there = getenv("NOTIFY_SOCKET") != NULL;
        s->max = s->there ? find_max() : 0;
        r = take_received(s);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(s);
        return 0;
}

bool fdstore_is_there(const FdStore *s) {
        return s->there;
}

size_t fdstore_room(const FdStore *s) {
        return s->max > s->count ? s->max - s->count : 0;
}

size_t fdstore_count(const FdStore *s) {
        return s->count;
}

int fdstore_push(FdStore *s, FdName name, int fd) {
        char text[FD_NAME_MAX], message[FD_NAME_MAX + 40];
        int r;

        if (!s->there)
                return 0;
        /* It may be of the same name, and later it would take away this one too. */
        r = fdstore_remove_late(s);
        if (r < 0)
                return r;
        if (fdstore_room(s) == 0)
                return -ENOSPC;
        fdname_format(name, text);
        /* A handle hangs up when its VM goes, and we want to see that ourselves. */
        snprintf(message, sizeof(message), "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", text);
        r = sd_pid_notify_with_fds(0, false, message, &fd, 1);
        if (r <= 0)
                return r < 0 ? r : -ENOTCONN;
        s->count++;
        return 0;
}

static int send_remove(FdStore *s, FdName name) {
        char text[FD_NAME_MAX], message[FD_NAME_MAX + 40];
        int r;

        fdname_format(name, text);
        snprintf(message, sizeof(message), "FDSTOREREMOVE=1\nFDNAME=%s", text);
        r = sd_notify(false, message);
        if (r <= 0)
                return r < 0 ? r : -ENOTCONN;
        if (s->count > 0)
                s->count--;
        return 0;
}

int fdstore_remove_late(FdStore *s) {
        int r;

        for (; s->n_late > 0; s->n_late--) {
                r = send_remove(s, s->late[s->n_late - 1]);
                if (r < 0)
                        return r;
        }
        return 0;
}

int fdstore_remove(FdStore *s, FdName name) {
        FdName *grown;
        int r;

        if (!s->there)
                return 0;
        r = send_remove(s, name);
        if (r >= 0)
                return 0;
        grown = reallocarray(s->late, s->n_late + 1, sizeof(*grown));
        if (!grown)
                return -ENOMEM;
        s->late = grown;
        s->late[s->n_late++] = name;
        return r;
}

FdBarrier *fdbarrier_free(FdBarrier *b) {
        if (!b)
                return NULL;
        sd_event_source_disable_unref(b->io);
        sd_event_source_disable_unref(b->timer);
        free(b);
        return NULL;
}

static int on_barrier(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        FdBarrier *b = userdata;

        b->done(b->userdata); /* frees it */
        return 0;
}

static int on_barrier_late(sd_event_source *source, uint64_t usec, void *userdata) {
        FdBarrier *b = userdata;

        b->done(b->userdata);
        return 0;
}

int fdstore_barrier(FdStore *s, sd_event *event, fdstore_done_t done, void *userdata, FdBarrier **ret) {
        _cleanup_close_ int ours = -1, theirs = -1;
        FdBarrier *b;
        int fds[2], r;

        if (!s->there)
                return -ENOTCONN;
        (void) fdstore_remove_late(s);
        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        ours = fds[0];
        theirs = fds[1];
        b = calloc(1, sizeof(*b));
        if (!b)
                return -ENOMEM;
        b->done = done;
        b->userdata = userdata;
        /* The manager closes its end: a hang-up is all there is to see. */
        r = sd_event_add_io(event, &b->io, ours, 0, on_barrier, b);
        if (r >= 0)
                r = sd_event_source_set_io_fd_own(b->io, true);
        if (r >= 0)
                TAKE_FD(ours);
        if (r >= 0)
                r = sd_event_add_time_relative(event, &b->timer, CLOCK_MONOTONIC, BARRIER_USEC, 0,
                                               on_barrier_late, b);
        if (r >= 0) {
                r = sd_pid_notify_with_fds(0, false, "BARRIER=1", &theirs, 1);
                if (r == 0)
                        r = -ENOTCONN;
        }
        if (r < 0) {
                fdbarrier_free(b);
                return r;
        }
        *ret = b;
        return 0;
}

StoredFd *fdstore_received(FdStore *s, size_t *ret_n) {
        *ret_n = s->n_received;
        return s->received;
}

StoredFd *fdstore_find(FdStore *s, FdName name) {
        for (size_t i = 0; i < s->n_received; i++) {
                StoredFd *f = &s->received[i];

                if (f->fd >= 0 && f->known && f->name.lease == name.lease && f->name.kind == name.kind &&
                    f->name.index == name.index)
                        return f;
        }
        return NULL;
}

int fdstore_take(FdStore *s, FdName name) {
        StoredFd *f = fdstore_find(s, name);

        return f ? TAKE_FD(f->fd) : -ENOENT;
}
