/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "drain.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>

struct Drain {
        int fd;
        uint64_t page_size;
        sd_event_source *source;
        drain_done_t done;
        void *userdata;
        size_t n_left, n_files;
        DrainFile files[];
};

Drain *drain_free(Drain *d) {
        if (!d)
                return NULL;
        sd_event_source_disable_unref(d->source);
        safe_close(d->fd);
        free(d);
        return NULL;
}

static int add_file(Drain *d, const MemoryPart *part) {
        DrainFile *f = &d->files[d->n_files];
        char path[40];
        struct stat st;

        if (fstat(part->fd, &st) < 0)
                return -errno;
        /* The file has no name and no link: it is deleted when its last descriptor and mapping go.  The
         * watch holds none of them. */
        snprintf(path, sizeof(path), "/proc/self/fd/%i", part->fd);
        f->watch = inotify_add_watch(d->fd, path, IN_DELETE_SELF);
        if (f->watch < 0)
                return -errno;
        f->device = st.st_dev;
        f->inode = st.st_ino;
        f->node = part->node;
        f->bytes = part->bytes;
        d->n_files++;
        d->n_left++;
        return 0;
}

int drain_new(const Memory *m, Drain **ret) {
        Drain *d;
        int r = 0;

        d = calloc(1, sizeof(*d) + m->n_parts * sizeof(DrainFile));
        if (!d)
                return -ENOMEM;
        d->page_size = m->page_size;
        d->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        if (d->fd < 0)
                r = -errno;
        for (size_t i = 0; i < m->n_parts && r >= 0; i++)
                if (m->parts[i].fd >= 0)
                        r = add_file(d, &m->parts[i]);
        if (r < 0) {
                drain_free(d);
                return r;
        }
        *ret = d;
        return 0;
}

static void note_gone(Drain *d, int watch) {
        for (size_t i = 0; i < d->n_files; i++)
                if (d->files[i].watch == watch) {
                        d->files[i].watch = -1;
                        d->n_left--;
                }
}

bool drain_is_over(Drain *d) {
        union {
                struct inotify_event event;
                char bytes[4096];
        } buf;
        ssize_t n;

        while ((n = read(d->fd, &buf, sizeof(buf))) > 0)
                for (char *p = buf.bytes; p < buf.bytes + n;) {
                        const struct inotify_event *e = (const struct inotify_event *) (void *) p;

                        /* Either one: the watch goes with its file. */
                        if (e->mask & (IN_DELETE_SELF | IN_IGNORED))
                                note_gone(d, e->wd);
                        p += sizeof(*e) + e->len;
                }
        return d->n_left == 0;
}

static int on_event(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        Drain *d = userdata;

        if (drain_is_over(d)) {
                (void) sd_event_source_set_enabled(s, SD_EVENT_OFF);
                d->done(d, d->userdata); /* may free it */
        }
        return 0;
}

int drain_watch(Drain *d, sd_event *event, drain_done_t done, void *userdata) {
        d->done = done;
        d->userdata = userdata;
        d->source = sd_event_source_disable_unref(d->source);
        return sd_event_add_io(event, &d->source, d->fd, EPOLLIN, on_event, d);
}

uint64_t drain_bytes(const Drain *d) {
        uint64_t bytes = 0;

        for (size_t i = 0; i < d->n_files; i++)
                if (d->files[i].watch >= 0)
                        bytes += d->files[i].bytes;
        return bytes;
}

uint64_t drain_page_size(const Drain *d) {
        return d->page_size;
}

const DrainFile *drain_files(const Drain *d, size_t *ret_n) {
        *ret_n = d->n_files;
        return d->files;
}
