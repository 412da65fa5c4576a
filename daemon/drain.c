/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "drain.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <utlist.h>

struct Drain {
        DrainWatch *w;
        uint64_t page_size;
        drain_done_t done;
        void *userdata;
        Drain *prev, *next;
        size_t n_files;
        DrainFile files[];
};

struct DrainWatch {
        int fd; /* -1: the kernel had none for us */
        sd_event_source *io;
        sd_event_source *late; /* somebody is to be told, from the event loop */
        Drain *drains;
};

DrainWatch *drain_watch_free(DrainWatch *w) {
        if (!w)
                return NULL;
        sd_event_source_disable_unref(w->io);
        sd_event_source_disable_unref(w->late);
        safe_close(w->fd);
        free(w);
        return NULL;
}

int drain_watch_fd(const DrainWatch *w) {
        return w->fd;
}

bool drain_watch_is_one(int fd) {
        static const char expected[] = "anon_inode:inotify";
        char path[40], target[sizeof(expected)];
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/self/fd/%i", fd);
        n = readlink(path, target, sizeof(target));
        return n == (ssize_t) strlen(expected) && memcmp(target, expected, strlen(expected)) == 0;
}

Drain *drain_free(Drain *d) {
        if (!d)
                return NULL;
        /* The watch stays: the next daemon may need it, and it goes with its file. */
        DL_DELETE(d->w->drains, d);
        free(d);
        return NULL;
}

static bool is_over(const Drain *d) {
        for (size_t i = 0; i < d->n_files; i++)
                if (!d->files[i].gone)
                        return false;
        return true;
}

static void note_gone(DrainWatch *w, int watch) {
        Drain *d;

        DL_FOREACH (w->drains, d)
                for (size_t i = 0; i < d->n_files; i++)
                        if (d->files[i].watch == watch)
                                d->files[i].gone = true;
}

static void note_watched(Drain *d, dev_t device, ino_t inode, int watch, bool *seen) {
        for (size_t i = 0; i < d->n_files; i++)
                if (d->files[i].device == device && d->files[i].inode == inode) {
                        d->files[i].watch = watch;
                        seen[i] = true;
                }
}

/* The kernel lists what is still watched: for what came from the daemon before, and if it has dropped
 * events.  What had a watch and has none any more is gone. */
static int compare(DrainWatch *w, Drain *d) {
        _cleanup_free_ bool *seen = calloc(d->n_files + 1, sizeof(*seen));
        _cleanup_free_ char *line = NULL;
        char path[40];
        size_t size = 0;
        FILE *f;
        int r;

        if (!seen)
                return -ENOMEM;
        snprintf(path, sizeof(path), "/proc/self/fdinfo/%i", w->fd);
        f = fopen(path, "re");
        if (!f)
                return -errno;
        while (getline(&line, &size, f) > 0) {
                unsigned long inode;
                unsigned device; /* as the kernel has it: 20 bits are the minor number's */
                int watch;

                if (sscanf(line, "inotify wd:%x ino:%lx sdev:%x", (unsigned *) &watch, &inode, &device) == 3)
                        note_watched(d, makedev(device >> 20, device & 0xfffff), inode, watch, seen);
        }
        r = ferror(f) ? -EIO : 0;
        fclose(f);
        for (size_t i = 0; i < d->n_files && r >= 0; i++)
                if (d->files[i].watch >= 0 && !seen[i])
                        d->files[i].gone = true;
        return r;
}

static void note_lost(DrainWatch *w) {
        Drain *d;

        DL_FOREACH (w->drains, d)
                if (compare(w, d) < 0)
                        for (size_t i = 0; i < d->n_files; i++)
                                d->files[i].watch = -1; /* to be looked for */
}

static void read_events(DrainWatch *w) {
        union {
                struct inotify_event event;
                char bytes[4096];
        } buf;
        ssize_t n;

        while ((n = read(w->fd, &buf, sizeof(buf))) > 0)
                for (char *p = buf.bytes; p < buf.bytes + n;) {
                        const struct inotify_event *e = (const struct inotify_event *) (void *) p;

                        if (e->mask & IN_Q_OVERFLOW)
                                note_lost(w);
                        /* Either one: the watch goes with its file. */
                        else if (e->mask & (IN_DELETE_SELF | IN_IGNORED))
                                note_gone(w, e->wd);
                        p += sizeof(*e) + e->len;
                }
}

static void tell(DrainWatch *w) {
        Drain *d;

        for (;;) {
                DL_FOREACH (w->drains, d)
                        if (d->done && is_over(d))
                                break;
                if (!d)
                        return;
                TAKE_PTR(d->done)(d, d->userdata); /* may free it, and others */
        }
}

static void tell_late(DrainWatch *w) {
        (void) sd_event_source_set_enabled(w->late, SD_EVENT_ONESHOT);
}

static int on_late(sd_event_source *s, void *userdata) {
        tell(userdata);
        return 0;
}

static int on_event(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        read_events(userdata);
        tell(userdata);
        return 0;
}

int drain_watch_new(sd_event *event, int fd, DrainWatch **ret) {
        DrainWatch *w;
        int r;

        w = calloc(1, sizeof(*w));
        if (!w) {
                safe_close(fd);
                return -ENOMEM;
        }
        w->fd = fd >= 0 ? fd : inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        r = sd_event_add_defer(event, &w->late, on_late, w);
        if (r >= 0 && w->fd >= 0)
                r = sd_event_add_io(event, &w->io, w->fd, EPOLLIN, on_event, w);
        if (r >= 0)
                r = sd_event_source_set_enabled(w->late, SD_EVENT_OFF);
        if (r < 0) {
                drain_watch_free(w);
                return r;
        }
        *ret = w;
        return 0;
}

static Drain *allocate(DrainWatch *w, uint64_t page_size, size_t n) {
        Drain *d = calloc(1, sizeof(*d) + n * sizeof(DrainFile));

        if (!d)
                return NULL;
        d->page_size = page_size;
        d->w = w;
        DL_APPEND(w->drains, d);
        return d;
}

static int add_file(Drain *d, const MemoryPart *part) {
        DrainFile *f = &d->files[d->n_files];
        char path[40];
        struct stat st;

        if (fstat(part->fd, &st) < 0)
                return -errno;
        *f = (DrainFile){
                .device = st.st_dev,
                .inode = st.st_ino,
                .node = part->node,
                .bytes = part->bytes,
                .watch = -1,
        };
        d->n_files++;
        if (d->w->fd < 0)
                return 0;
        /* The file has no name and no link: it is deleted when its last descriptor and mapping go.  The
         * watch holds none of them. */
        snprintf(path, sizeof(path), "/proc/self/fd/%i", part->fd);
        f->watch = inotify_add_watch(d->w->fd, path, IN_DELETE_SELF);
        return 0;
}

int drain_new(DrainWatch *w, const Memory *m, Drain **ret) {
        Drain *d = allocate(w, m->page_size, m->n_parts);
        int r = 0;

        if (!d)
                return -ENOMEM;
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

int drain_new_from(DrainWatch *w, uint64_t page_size, const DrainFile *files, size_t n, Drain **ret) {
        Drain *d = allocate(w, page_size, n);

        if (!d)
                return -ENOMEM;
        for (; d->n_files < n; d->n_files++) {
                d->files[d->n_files] = files[d->n_files];
                d->files[d->n_files].gone = false;
                d->files[d->n_files].watch = -1;
        }
        /* What cannot be compared is looked for. */
        if (w->fd >= 0)
                (void) compare(w, d);
        *ret = d;
        return 0;
}

bool drain_is_over(Drain *d) {
        read_events(d->w);
        tell_late(d->w); /* others, that were in there */
        return is_over(d);
}

void drain_notify(Drain *d, drain_done_t done, void *userdata) {
        d->done = done;
        d->userdata = userdata;
        tell_late(d->w);
}

void drain_note_looked_for(Drain *d, size_t i, bool found) {
        DrainFile *f = &d->files[i];

        f->gone = f->gone || (!found && f->missed);
        f->missed = !found;
        tell_late(d->w);
}

uint64_t drain_bytes(const Drain *d) {
        uint64_t bytes = 0;

        for (size_t i = 0; i < d->n_files; i++)
                if (!d->files[i].gone)
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
