/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "drain-scan.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "clock.h"
#include "memory-file.h"

#define SCAN_USEC UINT64_C(2000000)

typedef struct Target {
        dev_t device;
        ino_t inode;
        DrainPids pids;
} Target;

struct DrainScan {
        const char *proc_root;
        Worker *worker;
        uint64_t started;
        bool complete;
        drain_scan_done_t done;
        void *userdata;
        size_t n_targets;
        Target targets[];
};

DrainScan *drain_scan_free(DrainScan *s) {
        if (!s)
                return NULL;
        worker_free(s->worker);
        free(s);
        return NULL;
}

static void add_pid(DrainPids *pids, pid_t pid) {
        for (size_t i = 0; i < pids->n; i++)
                if (pids->pids[i] == pid)
                        return;
        if (pids->n < DRAIN_PIDS_MAX)
                pids->pids[pids->n++] = pid;
}

static void note(DrainScan *s, dev_t device, ino_t inode, pid_t pid) {
        for (size_t i = 0; i < s->n_targets; i++)
                if (s->targets[i].device == device && s->targets[i].inode == inode)
                        add_pid(&s->targets[i].pids, pid);
}

static void scan_maps(DrainScan *s, pid_t pid) {
        _cleanup_free_ char *line = NULL;
        char path[PATH_MAX];
        size_t size = 0;
        FILE *f;

        snprintf(path, sizeof(path), "%s/%i/maps", s->proc_root, (int) pid);
        f = fopen(path, "re");
        if (!f)
                return;
        while (getline(&line, &size, f) > 0) {
                unsigned major, minor;
                unsigned long inode;

                if (strstr(line, MEMORY_FILE_PREFIX) &&
                    sscanf(line, "%*x-%*x %*s %*x %x:%x %lu", &major, &minor, &inode) == 3)
                        note(s, makedev(major, minor), inode, pid);
        }
        fclose(f);
}

static void scan_fds(DrainScan *s, pid_t pid) {
        _cleanup_closedir_ DIR *d = NULL;
        char path[PATH_MAX];
        struct dirent *de;
        dev_t device;
        ino_t inode;

        snprintf(path, sizeof(path), "%s/%i/fd", s->proc_root, (int) pid);
        d = opendir(path);
        while (d && (de = readdir(d)))
                if (memory_file_identify(dirfd(d), de->d_name, &device, &inode) > 0)
                        note(s, device, inode, pid);
}

/* A process that ends meanwhile, or that a security module hides from us, is none that can be told: memory
 * would drain for ever if that were a doubt. */
static int scan_step(Worker *w, size_t lane, size_t piece, void *userdata) {
        _cleanup_closedir_ DIR *d = NULL;
        DrainScan *s = userdata;
        struct dirent *de;

        d = opendir(s->proc_root);
        if (!d)
                return -errno;
        s->complete = true;
        while ((de = readdir(d))) {
                pid_t pid;

                if (clock_usec() - s->started > SCAN_USEC || worker_is_canceled(w)) {
                        s->complete = false;
                        break;
                }
                if (!isdigit((unsigned char) de->d_name[0]))
                        continue;
                pid = atoi(de->d_name);
                if (pid == getpid())
                        continue;
                scan_maps(s, pid);
                scan_fds(s, pid);
        }
        return 0;
}

static void on_scanned(Worker *w, int result, void *userdata) {
        DrainScan *s = userdata;

        s->done(s, s->userdata);
}

int drain_scan_start(sd_event *event, const char *proc_root, const DrainFile *files, size_t n_files,
                     drain_scan_done_t done, void *userdata, DrainScan **ret) {
        WorkerLane lane = { .n_threads = 1, .n_pieces = 1 };
        DrainScan *s;
        int r;

        s = calloc(1, sizeof(*s) + n_files * sizeof(Target));
        if (!s)
                return -ENOMEM;
        s->proc_root = proc_root;
        s->started = clock_usec();
        s->done = done;
        s->userdata = userdata;
        for (; s->n_targets < n_files; s->n_targets++)
                s->targets[s->n_targets] = (Target){
                        .device = files[s->n_targets].device,
                        .inode = files[s->n_targets].inode,
                };
        r = worker_start(event, &lane, 1, scan_step, on_scanned, s, &s->worker);
        if (r < 0) {
                free(s);
                return r;
        }
        *ret = s;
        return 0;
}

bool drain_scan_is_complete(const DrainScan *s) {
        return s->complete;
}

uint64_t drain_scan_usec(const DrainScan *s) {
        return clock_usec() - s->started;
}

int drain_scan_find(const DrainScan *s, const DrainFile *file, DrainPids *pids) {
        int found = -ENOENT;

        for (size_t i = 0; i < s->n_targets; i++) {
                const Target *t = &s->targets[i];

                if (t->device != file->device || t->inode != file->inode)
                        continue;
                found = (int) t->pids.n;
                for (size_t k = 0; k < t->pids.n; k++)
                        add_pid(pids, t->pids.pids[k]);
        }
        return found;
}
