/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fake-sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"
#include "tree.h"

#define LIMITS_MAX 8

typedef struct Limit {
        unsigned node;
        char kib[16];
        int nr, free, compact; /* opened before they are watched, as we would wait for ourselves */
        uint64_t room, compacted, last;
} Limit;

static char root[64];
static int group_fd = -1;
static pthread_t thread;
static Limit limits[LIMITS_MAX];
static atomic_uint n_limits, global_writes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const char *fake_sysfs_root(void) {
        return root;
}

int fake_sysfs_setup(void **state) {
        snprintf(root, sizeof(root), "/tmp/tdpd-sysfs-XXXXXX");
        assert_non_null(mkdtemp(root));
        return 0;
}

static void kernel_stop(void) {
        if (group_fd < 0)
                return;
        pthread_cancel(thread);
        pthread_join(thread, NULL);
        close(group_fd); /* lets all go on that still wait */
        group_fd = -1;
        for (unsigned i = 0; i < n_limits; i++) {
                close(limits[i].nr);
                close(limits[i].free);
                close(limits[i].compact);
        }
        n_limits = 0;
}

int fake_sysfs_teardown(void **state) {
        (void) fixture_teardown(state);
        kernel_stop();
        return tree_remove(root);
}

void put(const char *text, const char *format, ...) {
        char relative[160];
        va_list ap;

        va_start(ap, format);
        vsnprintf(relative, sizeof(relative), format, ap);
        va_end(ap);
        tree_put(root, relative, text);
}

void put_node(unsigned id, const char *cpus, const char *mem_kib) {
        char meminfo[128];

        snprintf(meminfo, sizeof(meminfo),
                 "\nNode %u MemTotal:       %s kB\nNode %u MemFree:        %s kB\n", id, mem_kib, id,
                 mem_kib);
        put(cpus, "devices/system/node/node%u/cpulist", id);
        put(meminfo, "devices/system/node/node%u/meminfo", id);
        put("", "devices/system/node/node%u/compact", id);
}

void put_pool(unsigned id, const char *kib, const char *pages) {
        put(pages, "devices/system/node/node%u/hugepages/hugepages-%skB/nr_hugepages", id, kib);
        put(pages, "devices/system/node/node%u/hugepages/hugepages-%skB/free_hugepages", id, kib);
        put("0\n", "devices/system/node/node%u/hugepages/hugepages-%skB/surplus_hugepages", id, kib);
        put("0\n", "kernel/mm/hugepages/hugepages-%skB/resv_hugepages", kib);
        put("4711\n", "kernel/mm/hugepages/hugepages-%skB/nr_hugepages", kib);
}

uint64_t get(const char *format, ...) {
        char path[256], relative[160];
        uint64_t v = 0;
        va_list ap;
        FILE *f;

        va_start(ap, format);
        vsnprintf(relative, sizeof(relative), format, ap);
        va_end(ap);
        snprintf(path, sizeof(path), "%s/%s", root, relative);
        f = fopen(path, "re");
        assert_non_null(f);
        assert_int_equal(fscanf(f, "%" SCNu64, &v), 1);
        fclose(f);
        return v;
}

static uint64_t read_fd(int fd) {
        char text[32] = "";

        return pread(fd, text, sizeof(text) - 1, 0) > 0 ? strtoull(text, NULL, 10) : 0;
}

static void write_fd(int fd, uint64_t v) {
        char text[32];
        int n = snprintf(text, sizeof(text), "%" PRIu64 "\n", v);

        if (pwrite(fd, text, (size_t) n, 0) != n)
                abort();
}

/* What set_max_huge_pages() does, once something was written. */
static void settle(Limit *l) {
        uint64_t nr = read_fd(l->nr), avail = read_fd(l->free), room;

        if (nr == l->last)
                return;
        room = read_fd(l->compact) == 1 ? l->compacted : l->room;
        if (nr > l->last && nr > room)
                nr = room > l->last ? room : l->last;
        write_fd(l->nr, nr);
        write_fd(l->free, nr > l->last ? avail + (nr - l->last) : avail - (l->last - nr));
        l->last = nr;
}

static void *kernel_main(void *arg) {
        char buf[4096] __attribute__((aligned(8)));

        for (;;) {
                ssize_t n = read(group_fd, buf, sizeof(buf));
                struct fanotify_event_metadata *e = (struct fanotify_event_metadata *) buf;

                if (n <= 0)
                        return NULL;
                pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
                for (; FAN_EVENT_OK(e, n); e = FAN_EVENT_NEXT(e, n)) {
                        struct fanotify_response response = { .fd = e->fd, .response = FAN_ALLOW };

                        if (e->mask & FAN_MODIFY)
                                global_writes++;
                        pthread_mutex_lock(&lock);
                        for (unsigned i = 0; i < n_limits; i++)
                                settle(&limits[i]);
                        pthread_mutex_unlock(&lock);
                        if ((e->mask & FAN_OPEN_PERM) &&
                            write(group_fd, &response, sizeof(response)) != sizeof(response))
                                abort();
                        close(e->fd);
                }
                pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
        }
}

static int open_below(const char *format, ...) {
        char path[256], relative[160];
        va_list ap;
        int fd;

        va_start(ap, format);
        vsnprintf(relative, sizeof(relative), format, ap);
        va_end(ap);
        snprintf(path, sizeof(path), "%s/%s", root, relative);
        fd = open(path, O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0);
        return fd;
}

static void mark(int fd, uint64_t mask) {
        char link[64];

        snprintf(link, sizeof(link), "/proc/self/fd/%i", fd);
        assert_int_equal(fanotify_mark(group_fd, FAN_MARK_ADD, mask, AT_FDCWD, link), 0);
}

void fake_kernel_start(void) {
        group_fd = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC);
        if (group_fd < 0) {
                print_message("no fanotify: %s\n", strerror(errno));
                skip();
        }
        global_writes = 0;
        assert_int_equal(pthread_create(&thread, NULL, kernel_main, NULL), 0);
}

void fake_kernel_limit(unsigned node, const char *kib, uint64_t room, uint64_t compacted) {
        Limit l = { .node = node, .room = room, .compacted = compacted };
        bool known = false;
        int global;

        pthread_mutex_lock(&lock);
        for (unsigned i = 0; i < n_limits; i++)
                if (limits[i].node == node && strcmp(limits[i].kib, kib) == 0) {
                        known = true;
                        limits[i].room = room;
                        limits[i].compacted = compacted;
                }
        pthread_mutex_unlock(&lock);
        if (known)
                return;

        assert_true(n_limits < LIMITS_MAX);
        snprintf(l.kib, sizeof(l.kib), "%s", kib);
        global = open_below("kernel/mm/hugepages/hugepages-%skB/nr_hugepages", kib);
        l.nr = open_below("devices/system/node/node%u/hugepages/hugepages-%skB/nr_hugepages", node, kib);
        l.free = open_below("devices/system/node/node%u/hugepages/hugepages-%skB/free_hugepages", node, kib);
        l.compact = open_below("devices/system/node/node%u/compact", node);
        l.last = read_fd(l.nr);
        pthread_mutex_lock(&lock);
        limits[n_limits] = l;
        n_limits++;
        pthread_mutex_unlock(&lock);
        mark(l.nr, FAN_OPEN_PERM);
        mark(l.free, FAN_OPEN_PERM);
        mark(global, FAN_MODIFY);
        close(global);
}

unsigned fake_kernel_global_writes(void) {
        return global_writes;
}
