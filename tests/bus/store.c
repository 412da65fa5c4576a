/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define KEPT_MAX 1024U
/* Of tdpd itself: what drains is watched by it. */
#define DRAIN_WATCH "tdp1-d0-0000000000000001"
#define FIRST_FD    3 /* SD_LISTEN_FDS_START */

typedef struct KeptFd {
        char name[64];
        int fd;
} KeptFd;

static pthread_t thread;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t synced = PTHREAD_COND_INITIALIZER;
static bool on;
static int sock = -1;
static char address[64];
static KeptFd kept[KEPT_MAX];
static size_t n_kept;
static unsigned sync_seen, sync_sent;

static void check(bool good, const char *what) {
        if (good)
                return;
        fprintf(stderr, "store: %s: %s\n", what, strerror(errno));
        abort();
}

static bool has_line(const char *message, const char *line) {
        const char *p = strstr(message, line);

        return p && (p == message || p[-1] == '\n') && (p[strlen(line)] == '\0' || p[strlen(line)] == '\n');
}

static void copy_name(char to[static 64], const char *message) {
        const char *p = strstr(message, "FDNAME=");
        size_t n = p ? strcspn(p + 7, "\n") : 0;

        check(p && n > 0 && n < 64 && !memchr(p + 7, ':', n), "a name that systemd would not take");
        memcpy(to, p + 7, n);
        to[n] = '\0';
}

static void drop(size_t i) {
        close(kept[i].fd);
        kept[i] = kept[--n_kept];
}

static void on_message(const char *message, int fd) {
        char name[64];

        if (has_line(message, "FDSTORE=1")) {
                check(fd >= 0 && has_line(message, "FDPOLL=0") && n_kept < KEPT_MAX, "FDSTORE=1");
                copy_name(kept[n_kept].name, message);
                kept[n_kept++].fd = fd;
                return;
        }
        if (has_line(message, "FDSTOREREMOVE=1")) {
                copy_name(name, message);
                for (size_t i = n_kept; i-- > 0;)
                        if (strcmp(kept[i].name, name) == 0)
                                drop(i);
        } else if (strncmp(message, "X_SYNC=", 7) == 0) {
                sync_seen = (unsigned) atoi(message + 7);
                pthread_cond_broadcast(&synced);
        }
        /* Also the answer to BARRIER=1. */
        if (fd >= 0)
                close(fd);
}

static void *serve(void *arg) {
        union {
                struct cmsghdr head;
                char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
        } control;
        char message[4096];

        for (;;) {
                struct iovec iov = { .iov_base = message, .iov_len = sizeof(message) - 1 };
                struct msghdr mh = {
                        .msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = &control,
                        .msg_controllen = sizeof(control),
                };
                ssize_t n = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC);
                int fd = -1;

                if (n < 0 && errno == EINTR)
                        continue;
                check(n >= 0, "recvmsg");
                message[n] = '\0';
                for (struct cmsghdr *c = CMSG_FIRSTHDR(&mh); c; c = CMSG_NXTHDR(&mh, c))
                        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
                                memcpy(&fd, CMSG_DATA(c), sizeof(fd));
                if (strcmp(message, "X_END") == 0)
                        return NULL;
                pthread_mutex_lock(&lock);
                on_message(message, fd);
                pthread_mutex_unlock(&lock);
        }
}

static void send_text(const char *text) {
        struct sockaddr_un sa = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        strcpy(sa.sun_path, address);
        check(fd >= 0 && sendto(fd, text, strlen(text), 0, (struct sockaddr *) &sa, sizeof(sa)) >= 0,
              "send");
        close(fd);
}

void store_begin(void) {
        struct sockaddr_un sa = { .sun_family = AF_UNIX };

        snprintf(address, sizeof(address), "/tmp/tdpd-test-notify-%i", (int) getpid());
        unlink(address);
        strcpy(sa.sun_path, address);
        sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        check(sock >= 0 && bind(sock, (struct sockaddr *) &sa, sizeof(sa)) >= 0, "bind");
        sync_seen = sync_sent = 0;
        errno = pthread_create(&thread, NULL, serve, NULL);
        check(errno == 0, "pthread_create");
        on = true;
}

bool store_is_on(void) {
        return on;
}

void store_end(void) {
        if (!on)
                return;
        send_text("X_END");
        pthread_join(thread, NULL);
        store_lose("");
        close(sock);
        unlink(address);
        on = false;
}

void store_wait(void) {
        char text[32];

        snprintf(text, sizeof(text), "X_SYNC=%u", ++sync_sent);
        send_text(text);
        pthread_mutex_lock(&lock);
        while (sync_seen != sync_sent)
                pthread_cond_wait(&synced, &lock);
        pthread_mutex_unlock(&lock);
}

size_t store_count(void) {
        size_t n;

        store_wait();
        pthread_mutex_lock(&lock);
        n = n_kept;
        for (size_t i = 0; i < n_kept; i++)
                n -= strcmp(kept[i].name, DRAIN_WATCH) == 0;
        pthread_mutex_unlock(&lock);
        return n;
}

void store_lose(const char *part) {
        pthread_mutex_lock(&lock);
        for (size_t i = n_kept; i-- > 0;)
                if (strstr(kept[i].name, part))
                        drop(i);
        pthread_mutex_unlock(&lock);
}

void store_put(const char *name, int fd) {
        pthread_mutex_lock(&lock);
        check(n_kept < KEPT_MAX, "room");
        snprintf(kept[n_kept].name, sizeof(kept[n_kept].name), "%s", name);
        kept[n_kept++].fd = fd;
        pthread_mutex_unlock(&lock);
}

int store_peek(const char *part) {
        int fd = -1;

        store_wait();
        pthread_mutex_lock(&lock);
        for (size_t i = 0; i < n_kept && fd < 0; i++)
                if (strstr(kept[i].name, part))
                        fd = kept[i].fd;
        pthread_mutex_unlock(&lock);
        return fd;
}

void record_edit(const char *path, const char *key, const char *value) {
        uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
        char line[4096], *out = NULL;
        size_t size;
        FILE *in, *f;

        in = fopen(path, "re");
        f = open_memstream(&out, &size);
        check(in && f, path);
        while (fgets(line, sizeof(line), in) && strncmp(line, "end ", 4) != 0)
                if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ' ')
                        fprintf(f, "%s %s\n", key, value);
                else
                        fputs(line, f);
        fclose(in);
        fflush(f);
        for (size_t i = 0; i < size; i++)
                h = (h ^ (uint8_t) out[i]) * UINT64_C(0x100000001b3);
        fprintf(f, "end %016llx\n", (unsigned long long) h);
        fclose(f);
        f = fopen(path, "we");
        check(f && fputs(out, f) >= 0 && fclose(f) == 0, path);
        free(out);
}

void store_before_fork(void) {
        if (!on)
                return;
        store_wait();
        pthread_mutex_lock(&lock);
}

void store_after_fork(void) {
        if (on)
                pthread_mutex_unlock(&lock);
}

void store_in_child(void) {
        static char names[KEPT_MAX * 64];
        char number[24];
        int high;

        if (!on)
                return;
        setenv("NOTIFY_SOCKET", address, 1);
        /* Out of the way first, so that none of them is overwritten before its turn. */
        high = FIRST_FD + (int) n_kept;
        for (size_t i = 0; i < n_kept; i++) {
                kept[i].fd = fcntl(kept[i].fd, F_DUPFD_CLOEXEC, high);
                check(kept[i].fd >= 0, "F_DUPFD");
                strcat(strcat(names, i > 0 ? ":" : ""), kept[i].name);
        }
        for (size_t i = 0; i < n_kept; i++)
                check(dup2(kept[i].fd, FIRST_FD + (int) i) >= 0, "dup2");
        if (n_kept == 0)
                return;
        snprintf(number, sizeof(number), "%zu", n_kept);
        setenv("LISTEN_FDS", number, 1);
        setenv("LISTEN_FDNAMES", names, 1);
        snprintf(number, sizeof(number), "%i", (int) getpid());
        setenv("LISTEN_PID", number, 1);
}
