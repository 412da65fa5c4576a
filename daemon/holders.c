/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "holders.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "memory-file.h"
#include "node.h"

/* More would not be read by anybody, and would be a gift to who makes processes. */
#define HOLDERS_MAX 4096U
#define FILES_MAX   4096U
#define MOUNTS_MAX  16U

typedef struct File {
        dev_t dev;
        ino_t ino;
        bool mapped;
        Holder holder;
} File;

typedef struct Scan {
        const char *proc_root;
        char *mounts[MOUNTS_MAX]; /* of hugetlbfs */
        size_t n_mounts;
        Holders found;
        File *files;
        size_t n_files;
        bool incomplete;
} Scan;

static const char *const kind_table[_HOLDER_KIND_MAX] = {
        [HOLDER_VM] = "vm",
        [HOLDER_PROCESS] = "process",
        [HOLDER_FILE] = "file",
};

const char *holder_kind_to_string(HolderKind k) {
        return k < _HOLDER_KIND_MAX ? kind_table[k] : NULL;
}

void holders_done(Holders *h) {
        free(h->holders);
        *h = (Holders){};
}

/* "\040(deleted)" and other octal escapes; anything that is no plain ASCII becomes "?". */
static void copy_name(char *to, size_t size, const char *from, size_t len) {
        size_t n = 0;

        for (size_t i = 0; i < len && n + 1 < size; i++) {
                unsigned v;

                if (from[i] == '\\' && len - i >= 4 && sscanf(from + i + 1, "%3o", &v) == 1) {
                        to[n++] = v >= ' ' && v < 127 ? (char) v : '?';
                        i += 3;
                } else
                        to[n++] = from[i] >= ' ' && from[i] < 127 ? from[i] : '?';
        }
        to[n] = '\0';
}

int holders_parse_line(const char *line, NumaLine *ret) {
        bool huge = false;
        uint64_t kib = 0;
        int end = 0;

        memset(ret, 0, sizeof(*ret));
        if (sscanf(line, "%" SCNx64 "%n", &ret->address, &end) != 1)
                return -EBADMSG;
        for (const char *p = line + end; *p;) {
                size_t len;
                unsigned node;
                uint64_t n;

                p += strspn(p, " ");
                len = strcspn(p, " \n");
                if (len == 0)
                        break;
                if (len == 4 && strncmp(p, "huge", 4) == 0)
                        huge = true;
                else if (strncmp(p, "file=", 5) == 0)
                        copy_name(ret->file, sizeof(ret->file), p + 5, len - 5);
                else if (sscanf(p, "kernelpagesize_kB=%" SCNu64, &n) == 1)
                        kib = n;
                else if (sscanf(p, "N%u=%" SCNu64, &node, &n) == 2 && node < ELEMENTSOF(ret->pages))
                        ret->pages[node] = n;
                p += len;
        }
        if (!huge || kib == 0)
                return 0;
        if (kib > UINT64_MAX / 1024)
                return -ERANGE;
        ret->page_size = kib * 1024;
        return 1;
}

static int add(Scan *s, const Holder *h) {
        Holder *grown;

        for (size_t i = 0; i < s->found.n; i++) {
                Holder *o = &s->found.holders[i];

                if (o->pid == h->pid && o->page_size == h->page_size && o->node == h->node &&
                    streq(o->file, h->file)) {
                        o->pages += h->pages;
                        return 0;
                }
        }
        if (s->found.n >= HOLDERS_MAX) {
                s->incomplete = true;
                return 0;
        }
        grown = reallocarray(s->found.holders, s->found.n + 1, sizeof(*grown));
        if (!grown)
                return -ENOMEM;
        s->found.holders = grown;
        grown[s->found.n++] = *h;
        return 0;
}

/* Names of our files are "tdpd:VM:nodeN". */
static void name_vm(Holder *h) {
        static const char prefix[] = MEMORY_FILE_PREFIX;
        const char *name, *end;

        if (strncmp(h->file, prefix, sizeof(prefix) - 1) != 0)
                return;
        name = h->file + sizeof(prefix) - 1;
        end = strrchr(name, ':');
        if (!end)
                return;
        h->kind = HOLDER_VM;
        copy_name(h->name, sizeof(h->name), name, (size_t) (end - name));
}

static File *find_file(Scan *s, dev_t dev, ino_t ino) {
        for (size_t i = 0; i < s->n_files; i++)
                if (s->files[i].dev == dev && s->files[i].ino == ino)
                        return &s->files[i];
        return NULL;
}

static int add_file(Scan *s, const File *f) {
        File *grown;

        if (s->n_files >= FILES_MAX) {
                s->incomplete = true;
                return 0;
        }
        grown = reallocarray(s->files, s->n_files + 1, sizeof(*grown));
        if (!grown)
                return -ENOMEM;
        s->files = grown;
        grown[s->n_files++] = *f;
        return 0;
}

/* What of it is mapped is told with its node by numa_maps, and not again as a file. */
static int note_mapped(Scan *s, const char *line) {
        unsigned major, minor;
        unsigned long ino;
        File *f;

        if (sscanf(line, "%*x-%*x %*s %*x %x:%x %lu", &major, &minor, &ino) != 3 || ino == 0)
                return 0;
        f = find_file(s, makedev(major, minor), ino);
        if (!f)
                return add_file(s, &(File){ .dev = makedev(major, minor), .ino = ino, .mapped = true });
        f->mapped = true;
        return 0;
}

static FILE *open_of(Scan *s, pid_t pid, const char *file) {
        char path[PATH_MAX];
        FILE *f;

        snprintf(path, sizeof(path), "%s/%i/%s", s->proc_root, (int) pid, file);
        f = fopen(path, "re");
        /* It may have ended; that we may not look is something else. */
        if (!f && (errno == EACCES || errno == EPERM))
                s->incomplete = true;
        return f;
}

static int scan_maps(Scan *s, const Holder *process) {
        _cleanup_fclose_ FILE *maps = NULL, *numa = NULL;
        _cleanup_free_ char *line = NULL, *other = NULL;
        size_t size = 0, other_size = 0;
        NumaLine *n;
        int r = 0;

        numa = open_of(s, process->pid, "numa_maps");
        if (!numa)
                return 0;
        n = malloc(sizeof(*n));
        if (!n)
                return -ENOMEM;
        while (r >= 0 && getline(&line, &size, numa) > 0) {
                uint64_t address = 0;

                if (holders_parse_line(line, n) <= 0)
                        continue;
                for (int node = 0; node < (int) ELEMENTSOF(n->pages) && r >= 0; node++) {
                        Holder h = *process;

                        if (n->pages[node] == 0)
                                continue;
                        h.page_size = n->page_size;
                        h.node = node;
                        h.pages = n->pages[node];
                        snprintf(h.file, sizeof(h.file), "%s", n->file);
                        name_vm(&h);
                        r = add(s, &h);
                }
                /* Both files are in the order of addresses. */
                if (!maps)
                        maps = open_of(s, process->pid, "maps");
                while (r >= 0 && maps && address < n->address && getline(&other, &other_size, maps) > 0)
                        if (sscanf(other, "%" SCNx64, &address) == 1 && address == n->address)
                                r = note_mapped(s, other);
        }
        free(n);
        return r;
}

static int read_mounts(Scan *s) {
        _cleanup_fclose_ FILE *f = NULL;
        _cleanup_free_ char *line = NULL;
        char path[PATH_MAX], point[256];
        size_t size = 0;

        snprintf(path, sizeof(path), "%s/self/mountinfo", s->proc_root);
        f = fopen(path, "re");
        while (f && s->n_mounts < MOUNTS_MAX && getline(&line, &size, f) > 0)
                if (strstr(line, " - hugetlbfs ") && sscanf(line, "%*u %*u %*u:%*u %*s %255s", point) == 1) {
                        s->mounts[s->n_mounts] = strdup(point);
                        if (!s->mounts[s->n_mounts++])
                                return -ENOMEM;
                }
        return 0;
}

/* By its name alone: a look at a file of another kind waits for ever if its server has gone. */
static bool may_be_huge(const Scan *s, const char *target) {
        if (strncmp(target, "/memfd:", 7) == 0)
                return true;
        for (size_t i = 0; i < s->n_mounts; i++) {
                size_t n = strlen(s->mounts[i]);

                if (strncmp(target, s->mounts[i], n) == 0 && target[n] == '/')
                        return true;
        }
        return false;
}

static int look_at_fd(Scan *s, const Holder *process, const char *folder, const char *fd) {
        char path[PATH_MAX + 257], target[160];
        struct statfs fs;
        struct stat st;
        ssize_t n;
        File f;

        snprintf(path, sizeof(path), "%s/%s", folder, fd);
        n = readlink(path, target, sizeof(target) - 1);
        if (n <= 0)
                return 0;
        target[n] = '\0';
        if (!may_be_huge(s, target))
                return 0;
        if (statfs(path, &fs) < 0 || fs.f_type != HUGETLBFS_MAGIC || stat(path, &st) < 0 ||
            !S_ISREG(st.st_mode) || fs.f_bsize <= 0 || find_file(s, st.st_dev, st.st_ino))
                return 0;
        f = (File){ .dev = st.st_dev, .ino = st.st_ino, .holder = *process };
        f.holder.kind = HOLDER_FILE;
        f.holder.node = -1;
        f.holder.page_size = (uint64_t) fs.f_bsize;
        f.holder.pages = (uint64_t) st.st_blocks * 512 / (uint64_t) fs.f_bsize;
        copy_name(f.holder.file, sizeof(f.holder.file), target, (size_t) n);
        return add_file(s, &f);
}

static int scan_fds(Scan *s, const Holder *process) {
        _cleanup_closedir_ DIR *d = NULL;
        char folder[PATH_MAX];
        struct dirent *de;
        int r = 0;

        snprintf(folder, sizeof(folder), "%s/%i/fd", s->proc_root, (int) process->pid);
        d = opendir(folder);
        if (!d) {
                s->incomplete = s->incomplete || errno == EACCES || errno == EPERM;
                return 0;
        }
        while (r >= 0 && (de = readdir(d)))
                if (isdigit((unsigned char) de->d_name[0]))
                        r = look_at_fd(s, process, folder, de->d_name);
        return r;
}

static int scan_process(Scan *s, pid_t pid) {
        Holder process = { .kind = HOLDER_PROCESS, .pid = pid, .node = -1 };
        char path[PATH_MAX], name[64] = "";
        struct stat st;
        FILE *f;
        int r;

        snprintf(path, sizeof(path), "%s/%i", s->proc_root, (int) pid);
        if (stat(path, &st) < 0)
                return 0;
        process.uid = st.st_uid;
        f = open_of(s, pid, "comm");
        if (!f)
                return 0;
        if (fgets(name, sizeof(name), f))
                copy_name(process.name, sizeof(process.name), name, strcspn(name, "\n"));
        fclose(f);

        r = scan_maps(s, &process);
        return r < 0 ? r : scan_fds(s, &process);
}

int holders_scan(const char *proc_root, bool (*go_on)(void *userdata), void *userdata, Holders *ret) {
        _cleanup_closedir_ DIR *d = NULL;
        Scan s = { .proc_root = proc_root };
        struct dirent *de;
        int r = 0;

        d = opendir(proc_root);
        if (!d)
                return -errno;
        r = read_mounts(&s);
        while (r >= 0 && (de = readdir(d))) {
                int pid, end = 0;

                if (sscanf(de->d_name, "%i%n", &pid, &end) != 1 || de->d_name[end] != '\0' || pid <= 0)
                        continue;
                if (go_on && !go_on(userdata)) {
                        s.incomplete = true;
                        break;
                }
                r = scan_process(&s, pid);
        }
        for (size_t i = 0; i < s.n_files && r >= 0; i++)
                if (!s.files[i].mapped && s.files[i].holder.pages > 0) {
                        name_vm(&s.files[i].holder);
                        r = add(&s, &s.files[i].holder);
                }
        free(s.files);
        for (size_t i = 0; i < s.n_mounts; i++)
                free(s.mounts[i]);
        if (r < 0) {
                holders_done(&s.found);
                return r;
        }
        s.found.complete = !s.incomplete;
        *ret = s.found;
        return 0;
}
