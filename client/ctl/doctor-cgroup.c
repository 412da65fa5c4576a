/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Limits on huge pages that control groups have: a VMM in one dies by SIGBUS while the pool has free pages.
 */

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "doctor.h"

#define CGROUPS    "/sys/fs/cgroup"
#define DEPTH_MAX  6
#define GROUPS_MAX 10000
#define NAMED_MAX  3

struct limits {
        unsigned n_groups, n_limits, n_zero;
        char named[512]; /* the first few */
        size_t length;
};

static bool has_word(const char *list, const char *word) {
        size_t n = strlen(word);

        for (const char *p = list; (p = strstr(p, word)); p += n)
                if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
                        return true;
        return false;
}

/* hugetlb.2MB.max, hugetlb.1GB.rsvd.max */
static bool is_limit(const char *name) {
        size_t n = strlen(name);

        return strncmp(name, "hugetlb.", 8) == 0 && n > 12 && strcmp(name + n - 4, ".max") == 0;
}

static void look_at(const struct doctor *d, const char *group, const char *name, struct limits *l) {
        char text[DOCTOR_TEXT_MAX];
        int k;

        if (doctor_read(d, text, CGROUPS "%s/%s", group, name) < 0 || strcmp(text, "max") == 0)
                return;
        l->n_limits++;
        l->n_zero += strcmp(text, "0") == 0;
        if (l->n_limits > NAMED_MAX)
                return;
        k = snprintf(l->named + l->length, sizeof(l->named) - l->length, "%s%.96s/%s=%.24s",
                     l->length > 0 ? ", " : "", group, name, text);
        if (k > 0)
                l->length += (size_t) k < sizeof(l->named) - l->length ? (size_t) k : 0;
}

static void walk(const struct doctor *d, const char *group, unsigned depth, struct limits *l) {
        _cleanup_free_ char *path = doctor_path(d, CGROUPS "%s", group);
        DIR *dir = path ? opendir(path) : NULL;
        const struct dirent *e;

        l->n_groups++;
        while (dir && (e = readdir(dir))) {
                if (is_limit(e->d_name))
                        look_at(d, group, e->d_name, l);
                else if (e->d_type == DT_DIR && e->d_name[0] != '.' && depth < DEPTH_MAX &&
                         l->n_groups < GROUPS_MAX) {
                        _cleanup_free_ char *child = NULL;

                        if (asprintf(&child, "%s/%s", group, e->d_name) >= 0)
                                walk(d, child, depth + 1, l);
                        else
                                child = NULL;
                }
        }
        if (dir)
                closedir(dir);
}

void doctor_check_cgroups(struct doctor *d) {
        struct limits l = {};
        char text[DOCTOR_TEXT_MAX];

        if (doctor_read(d, text, CGROUPS "/cgroup.controllers") < 0) {
                doctor_report(d, "cgroups", DOCTOR_NOTE,
                              "Limits on huge pages are not looked at. There may be some in the hierarchy "
                              "\"hugetlb\" of version 1.",
                              NULL, "this host does not use version 2 of control groups alone");
                return;
        }
        if (!has_word(text, "hugetlb")) {
                doctor_report(d, "cgroups", DOCTOR_OK, "No control group limits huge pages.", NULL,
                              "there is no hugetlb controller");
                return;
        }
        walk(d, "", 0, &l);
        if (l.n_limits == 0)
                doctor_report(d, "cgroups", DOCTOR_OK, "No control group limits huge pages.", NULL,
                              "the hugetlb controller is there, and %u groups have no limits", l.n_groups);
        else
                doctor_report(d, "cgroups", l.n_zero > 0 ? DOCTOR_PROBLEM : DOCTOR_NOTE,
                              "A VMM in such a group, or below it, is refused huge pages above the limit, or dies by "
                              "SIGBUS, however many are free in the pool.",
                              "Write \"max\" to the files, or run VMMs in other groups.",
                              "%u limits on huge pages: %s%s", l.n_limits, l.named,
                              l.n_limits > NAMED_MAX ? ", ..." : "");
}
