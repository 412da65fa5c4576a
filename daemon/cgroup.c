/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cgroup.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "sysfs.h"

/* The unified tree, the same beside old ones, and hugetlb's old one. */
static const struct {
        const char *folder;
        bool old;
} trees[] = {
        { "", false },
        { "/unified", false },
        { "/hugetlb", true },
};

static const struct {
        const char *limit, *used;
        bool rsvd;
} files[2][2] = {
        { { "rsvd.max", "rsvd.current", true }, { "max", "current", false } },
        { { "rsvd.limit_in_bytes", "rsvd.usage_in_bytes", true },
          { "limit_in_bytes", "usage_in_bytes", false } },
};

void cgroup_room_done(CgroupRoom *r) {
        free(r->cgroup);
        *r = (CgroupRoom){};
}

bool cgroup_path_is_valid(const char *cgroup) {
        size_t n = strlen(cgroup);

        if (*cgroup != '/' || n >= PATH_MAX - 256 || (n > 1 && cgroup[n - 1] == '/'))
                return false;
        for (const char *p = cgroup; (p = strchr(p, '/')); p++) {
                size_t len = strcspn(p + 1, "/");

                if ((len == 0 && n > 1) || (len == 1 && p[1] == '.') ||
                    (len == 2 && p[1] == '.' && p[2] == '.'))
                        return false;
        }
        return true;
}

bool cgroup_is_below(const char *a, const char *b) {
        size_t n = strlen(b);

        if (n == 1) /* the root */
                return true;
        return strncmp(a, b, n) == 0 && (a[n] == '/' || a[n] == '\0');
}

int cgroup_of_process(pid_t pid, char **ret) {
        _cleanup_free_ char *text = NULL, *found = NULL;
        char *saved;
        int r;

        r = sysfs_read(&text, "/proc/%i/cgroup", (int) pid);
        if (r == -ENOENT)
                return -ESRCH;
        if (r < 0)
                return r;
        for (char *line = strtok_r(text, "\n", &saved); line; line = strtok_r(NULL, "\n", &saved)) {
                char *controllers = strchr(line, ':'),
                     *path = controllers ? strchr(controllers + 1, ':') : NULL;
                bool unified;

                if (!path)
                        continue;
                *path++ = '\0';
                unified = controllers[1] == '\0';
                /* hugetlb's own tree says more, where there is one. */
                if (!unified && !strstr(controllers, "hugetlb"))
                        continue;
                if (found && unified)
                        continue;
                free(found);
                found = strdup(path);
                if (!found)
                        return -ENOMEM;
        }
        if (!found)
                return -ENODATA;
        *ret = TAKE_PTR(found);
        return 0;
}

int cgroup_get_owner(const char *sysfs_root, const char *cgroup, uid_t *ret) {
        char path[PATH_MAX], *slash;
        _cleanup_free_ char *level = strdup(cgroup);
        struct stat st;

        if (!level)
                return -ENOMEM;
        for (;; *slash = '\0') {
                for (size_t i = 0; i < ELEMENTSOF(trees); i++) {
                        if ((size_t) snprintf(path, sizeof(path), "%s/fs/cgroup%s%s", sysfs_root,
                                              trees[i].folder, level) >= sizeof(path))
                                return -ENAMETOOLONG;
                        if (stat(path, &st) < 0)
                                continue;
                        *ret = st.st_uid;
                        return 0;
                }
                slash = strrchr(level, '/');
                if (!slash)
                        return -ENOENT;
        }
}

static void format_size(char buf[static 24], uint64_t page_size) {
        if (page_size >= GIB(1))
                snprintf(buf, 24, "%" PRIu64 "GB", page_size / GIB(1));
        else if (page_size >= MIB(1))
                snprintf(buf, 24, "%" PRIu64 "MB", page_size / MIB(1));
        else
                snprintf(buf, 24, "%" PRIu64 "KB", page_size / KIB(1));
}

/* "max" is what the unified tree has for none. */
static int read_value(uint64_t *ret, const char *folder, const char *cgroup, const char *size,
                      const char *file) {
        _cleanup_free_ char *s = NULL;
        int r;

        r = sysfs_read(&s, "%s%s/hugetlb.%s.%s", folder, streq(cgroup, "/") ? "" : cgroup, size, file);
        if (r < 0)
                return r;
        if (strncmp(s, "max", 3) == 0) {
                *ret = UINT64_MAX;
                return 0;
        }
        return sysfs_read_u64(ret, "%s%s/hugetlb.%s.%s", folder, streq(cgroup, "/") ? "" : cgroup, size,
                              file);
}

static int look_at(const char *folder, bool old, const char *cgroup, const char *size, uint64_t extra,
                   CgroupRoom *least) {
        for (size_t i = 0; i < ELEMENTSOF(files[old]); i++) {
                uint64_t limit, used, more = files[old][i].rsvd ? 0 : extra, room;
                char *copy;
                int r;

                r = read_value(&limit, folder, cgroup, size, files[old][i].limit);
                if (r == -ENOENT || r == -ENODEV || (r >= 0 && limit >= INT64_MAX / 4096 * 4096))
                        continue;
                if (r >= 0)
                        r = read_value(&used, folder, cgroup, size, files[old][i].used);
                if (r < 0)
                        return r;
                used += more;
                room = limit > used ? limit - used : 0;
                if (least->cgroup && room >= least->room)
                        continue;
                copy = strdup(cgroup);
                if (!copy)
                        return -ENOMEM;
                free(least->cgroup);
                *least = (CgroupRoom){ .cgroup = copy, .limit = limit, .used = used, .room = room };
                snprintf(least->file, sizeof(least->file), "hugetlb.%s.%s", size, files[old][i].limit);
        }
        return 0;
}

int cgroup_get_room(const char *sysfs_root, const char *cgroup, uint64_t page_size, uint64_t extra,
                    CgroupRoom *ret) {
        CgroupRoom least = { .limit = UINT64_MAX, .room = UINT64_MAX };
        char size[24], folder[PATH_MAX];
        int r = 0;

        format_size(size, page_size);
        for (size_t i = 0; i < ELEMENTSOF(trees) && r >= 0; i++) {
                _cleanup_free_ char *level = strdup(cgroup);

                if (!level) {
                        r = -ENOMEM;
                        break;
                }
                if ((size_t) snprintf(folder, sizeof(folder), "%s/fs/cgroup%s", sysfs_root,
                                      trees[i].folder) >= sizeof(folder))
                        return -ENAMETOOLONG;
                while (r >= 0) {
                        char *slash = strrchr(level, '/');

                        r = look_at(folder, trees[i].old, *level ? level : "/", size, extra, &least);
                        if (!slash || *level == '\0')
                                break;
                        *slash = '\0';
                }
        }
        if (r < 0) {
                cgroup_room_done(&least);
                return r;
        }
        *ret = least;
        return 0;
}
