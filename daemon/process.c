/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "process.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/pidfd.h>

#include "sysfs.h"

int process_open(pid_t pid, int *ret_pidfd) {
        int fd;

        if (pid <= 0)
                return -ESRCH;
        fd = pidfd_open(pid, 0); /* close-on-exec by itself */
        if (fd < 0)
                return errno == EINVAL ? -ESRCH : -errno; /* EINVAL: a thread, not a process */
        *ret_pidfd = fd;
        return 0;
}

bool process_is_alive(int pidfd) {
        struct pollfd p = { .fd = pidfd, .events = POLLIN };

        return poll(&p, 1, 0) == 0;
}

int process_get_start_time(pid_t pid, uint64_t *ret) {
        _cleanup_free_ char *stat = NULL;
        const char *p;
        int r;

        r = sysfs_read(&stat, "/proc/%i/stat", (int) pid);
        if (r < 0)
                return r == -ENOENT ? -ESRCH : r;
        /* The second field is the program's name, which may have spaces and parentheses; this is the 22nd.
         */
        p = strrchr(stat, ')');
        for (unsigned field = 2; p && field < 22; field++)
                p = strchr(p + 1, ' ');
        if (!p || sscanf(p, " %" SCNu64, ret) != 1)
                return -EBADMSG;
        return 0;
}

static int status_field(pid_t pid, const char *key, char **ret) {
        _cleanup_free_ char *status = NULL;
        const char *p;
        int r;

        r = sysfs_read(&status, "/proc/%i/status", (int) pid);
        if (r < 0)
                return r == -ENOENT ? -ESRCH : r;
        p = strstr(status, key);
        if (!p)
                return -EBADMSG;
        *ret = strdup(p + strlen(key));
        return *ret ? 0 : -ENOMEM;
}

int process_get_tgid(pid_t tid, pid_t *ret) {
        _cleanup_free_ char *field = NULL;
        int r, tgid;

        r = status_field(tid, "\nTgid:", &field);
        if (r < 0)
                return r;
        if (sscanf(field, "%i", &tgid) != 1 || tgid <= 0)
                return -EBADMSG;
        *ret = tgid;
        return 0;
}

int process_get_uid(pid_t pid, uid_t *ret) {
        _cleanup_free_ char *field = NULL;
        unsigned real, effective;
        int r;

        r = status_field(pid, "\nUid:", &field);
        if (r < 0)
                return r;
        if (sscanf(field, "%u %u", &real, &effective) != 2)
                return -EBADMSG;
        /* A set-uid program is not its caller's. */
        *ret = real == effective ? real : 0;
        return 0;
}

int process_get_memlock(pid_t pid, uint64_t *ret) {
        static const char key[] = "\nMax locked memory";
        _cleanup_free_ char *field = NULL, *limits = NULL;
        uint64_t caps, soft;
        const char *p;
        int r;

        r = status_field(pid, "\nCapEff:", &field);
        if (r < 0)
                return r;
        if (sscanf(field, "%" SCNx64, &caps) != 1)
                return -EBADMSG;
        if (caps & UINT64_C(1) << CAP_IPC_LOCK) {
                *ret = UINT64_MAX;
                return 0;
        }

        /* prlimit() on another user's process needs CAP_SYS_RESOURCE; everybody may read the file. */
        r = sysfs_read(&limits, "/proc/%i/limits", (int) pid);
        if (r < 0)
                return r == -ENOENT ? -ESRCH : r;
        p = strstr(limits, key);
        if (!p)
                return -EBADMSG;
        p += strlen(key);
        p += strspn(p, " ");
        if (strncmp(p, "unlimited", strlen("unlimited")) == 0)
                soft = UINT64_MAX;
        else if (sscanf(p, "%" SCNu64, &soft) != 1)
                return -EBADMSG;
        *ret = soft;
        return 0;
}
