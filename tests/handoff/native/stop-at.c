/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Loaded into "tdpctl migrate": each message that it has sent is a line "WHO WHAT" in the file STOP_AT_LOG:
 * WHO is "a" (this host's tdpd or QEMU) or "b" (what is reached by ssh), WHAT a method of D-Bus or a command
 * of QMP. After the STOP_AT_COUNT-th one that is STOP_AT_MESSAGE it stops itself (SIGSTOP), or after each
 * one if that is "every". What it starts is not watched.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define HEAD 1024

static pid_t self; /* 0: not to be watched */
static int log_fd = -1;
static char wanted[80];
static unsigned count;

__attribute__((constructor)) static void set_up(void) {
        const char *path = getenv("STOP_AT_LOG"), *message = getenv("STOP_AT_MESSAGE");
        const char *n = getenv("STOP_AT_COUNT");

        if (!path)
                return;
        log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        snprintf(wanted, sizeof(wanted), "%s", message ? message : "");
        count = n ? (unsigned) atoi(n) : 1;
        self = log_fd >= 0 ? getpid() : 0;
        unsetenv("LD_PRELOAD");
        unsetenv("STOP_AT_LOG");
}

/* A local socket has a name at its other end; that of ssh, a pair or a pipe, has none. */
static char host_of(int fd) {
        struct sockaddr_un sa = {};
        socklen_t size = sizeof(sa);

        return getpeername(fd, (struct sockaddr *) &sa, &size) == 0 && size > sizeof(sa.sun_family) ? 'a'
                                                                                                    : 'b';
}

static bool is_connection(int fd) {
        struct stat st;

        return fd > STDERR_FILENO && fstat(fd, &st) == 0 && (S_ISSOCK(st.st_mode) || S_ISFIFO(st.st_mode));
}

static bool take_word(const char *p, const char *end, char word[static 64]) {
        size_t n = 0;

        while (p < end && n < 63 && *p != '\0' && *p != '"')
                word[n++] = *p++;
        word[n] = '\0';
        return n > 0;
}

/* What the bytes begin: a call of D-Bus, a command of QMP, or a line for "incoming". */
static bool read_message(const char *p, size_t n, char word[static 64]) {
        static const char member[] = { 3, 1, 's', 0 }, execute[] = "\"execute\":";
        const char *found;

        if (n > 16 && p[0] == 'l' && p[3] == 1) {
                if (p[1] != 1)
                        return false;
                found = memmem(p + 16, n - 16, member, sizeof(member));
                return found && take_word(found + sizeof(member) + 4, p + n, word);
        }
        if (n == 0 || p[0] != '{')
                return false;
        found = memmem(p, n, execute, sizeof(execute) - 1);
        if (!found) {
                strcpy(word, "incoming");
                return true;
        }
        found += sizeof(execute) - 1;
        while (found < p + n && (*found == ' ' || *found == '"'))
                found++;
        return take_word(found, p + n, word);
}

static void sent(int fd, const char *bytes, size_t n) {
        char word[64], line[80];

        if (self == 0 || getpid() != self || !is_connection(fd) || !read_message(bytes, n, word))
                return;
        snprintf(line, sizeof(line), "%c %s\n", host_of(fd), word);
        if (write(log_fd, line, strlen(line)) < 0)
                abort();
        line[strlen(line) - 1] = '\0';
        if (strcmp(wanted, "every") == 0 || (strcmp(wanted, line) == 0 && --count == 0))
                kill(self, SIGSTOP);
}

static void sent_parts(int fd, const struct iovec *v, size_t n) {
        char head[HEAD];
        size_t have = 0;

        for (size_t i = 0; i < n && have < sizeof(head); i++) {
                size_t k = v[i].iov_len < sizeof(head) - have ? v[i].iov_len : sizeof(head) - have;

                memcpy(head + have, v[i].iov_base, k);
                have += k;
        }
        sent(fd, head, have);
}

#define REAL(name) ((typeof(&name)) dlsym(RTLD_NEXT, #name))

ssize_t send(int fd, const void *p, size_t n, int flags) {
        ssize_t k = REAL(send)(fd, p, n, flags);

        if (k > 0)
                sent(fd, p, (size_t) k);
        return k;
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags) {
        ssize_t k = REAL(sendmsg)(fd, m, flags);

        if (k > 0)
                sent_parts(fd, m->msg_iov, m->msg_iovlen);
        return k;
}

ssize_t writev(int fd, const struct iovec *v, int n) {
        ssize_t k = REAL(writev)(fd, v, n);

        if (k > 0)
                sent_parts(fd, v, (size_t) n);
        return k;
}
