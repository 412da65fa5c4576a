/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "config-table.h"
#include "log.h"

#define FILE_MAX_BYTES MIB(1)
#define DROPINS_MAX    1000U

/* The first one wins, as for systemd's own files. */
static const char *const dirs[] = { "/etc/tdpd", "/run/tdpd", "/usr/local/lib/tdpd", "/usr/lib/tdpd" };

typedef struct DropIn {
        char *name;
        char *path;
} DropIn;

typedef struct DropIns {
        DropIn *items;
        size_t n;
} DropIns;

static void dropins_done(DropIns *d) {
        for (size_t i = 0; i < d->n; i++) {
                free(d->items[i].name);
                free(d->items[i].path);
        }
        free(d->items);
}

/* For what comes from the system, for which there is no better text. */
static int refuse_errno(ConfigError *error, const char *path, int r) {
        if (r == -ENOMEM)
                return r;
        config_refuse(error, "%.512s: cannot be read: %s", path, strerror(-r));
        return r;
}

/* -ENOENT only if there is no such file, without an error's text then. */
static int load_file(Config *c, const char *path, ConfigError *error) {
        _cleanup_fclose_ FILE *f = NULL;
        _cleanup_close_ int fd = -1;
        _cleanup_free_ char *text = NULL;
        struct stat st, null;
        size_t n;

        /* Not to wait for whoever writes into a pipe. */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
                return errno == ENOENT ? -ENOENT : refuse_errno(error, path, -errno);
        if (fstat(fd, &st) < 0)
                return refuse_errno(error, path, -errno);
        /* What stands for nothing, to mask another file. */
        if (S_ISCHR(st.st_mode) && stat("/dev/null", &null) == 0 && st.st_rdev == null.st_rdev)
                return 0;
        if (!S_ISREG(st.st_mode))
                return config_refuse(error, "%.512s: is no regular file: remove it, or put a file there",
                                     path);

        f = fdopen(fd, "r");
        if (!f)
                return refuse_errno(error, path, -errno);
        TAKE_FD(fd);
        text = malloc(FILE_MAX_BYTES + 1);
        if (!text)
                return -ENOMEM;
        n = fread(text, 1, FILE_MAX_BYTES + 1, f);
        if (ferror(f))
                return refuse_errno(error, path, -EIO);
        if (n > FILE_MAX_BYTES)
                return config_refuse(error, "%.512s: is larger than %" PRIu64 " bytes, which is the most",
                                     path, FILE_MAX_BYTES);
        log_debug("Reading %s", path);
        return config_parse(c, path, text, n, error);
}

static int compare_dropins(const void *a, const void *b) {
        return strcmp(((const DropIn *) a)->name, ((const DropIn *) b)->name);
}

static int is_dropin(const struct dirent *d) {
        size_t n = strlen(d->d_name);

        return d->d_name[0] != '.' && n > strlen(".conf") && streq(d->d_name + n - strlen(".conf"), ".conf");
}

static int add_dropin(DropIns *all, const char *dir, const char *name, ConfigError *error) {
        DropIn *items, *new;

        /* Of a directory that comes first. */
        for (size_t i = 0; i < all->n; i++)
                if (streq(all->items[i].name, name))
                        return 0;
        if (all->n >= DROPINS_MAX)
                return config_refuse(error, "%.512s: there are more than %u drop-ins, which is the most",
                                     dir, DROPINS_MAX);

        items = realloc(all->items, (all->n + 1) * sizeof(*items));
        if (!items)
                return -ENOMEM;
        all->items = items;
        new = &items[all->n];
        *new = (DropIn){ .name = strdup(name) };
        if (!new->name || asprintf(&new->path, "%s/%s", dir, name) < 0) {
                free(new->name);
                return -ENOMEM;
        }
        all->n++;
        return 0;
}

static int list_dropins(const char *dir, DropIns *all, ConfigError *error) {
        _cleanup_closedir_ DIR *d = NULL;
        struct dirent *e;
        int r;

        d = opendir(dir);
        if (!d)
                return errno == ENOENT ? 0 : refuse_errno(error, dir, -errno);
        while ((errno = 0, e = readdir(d)))
                if (is_dropin(e)) {
                        r = add_dropin(all, dir, e->d_name, error);
                        if (r < 0)
                                return r;
                }
        return errno == 0 ? 0 : refuse_errno(error, dir, -errno);
}

static int load_main(Config *c, const char *root, ConfigError *error) {
        int r = -ENOENT;

        for (size_t i = 0; i < ELEMENTSOF(dirs) && r == -ENOENT; i++) {
                _cleanup_free_ char *path = NULL;

                if (asprintf(&path, "%s%s/tdpd.conf", root, dirs[i]) < 0) {
                        path = NULL;
                        return -ENOMEM;
                }
                r = load_file(c, path, error);
        }
        if (r != -ENOENT)
                return r;
        log_debug("No %s, going on with the defaults", CONFIG_PATH_DEFAULT);
        return 0;
}

static int load_dropins(Config *c, const char *root, ConfigError *error) {
        _cleanup_(dropins_done) DropIns all = {};
        int r;

        for (size_t i = 0; i < ELEMENTSOF(dirs); i++) {
                _cleanup_free_ char *path = NULL;

                if (asprintf(&path, "%s%s/tdpd.conf.d", root, dirs[i]) < 0) {
                        path = NULL;
                        return -ENOMEM;
                }
                r = list_dropins(path, &all, error);
                if (r < 0)
                        return r;
        }
        if (all.n > 0)
                qsort(all.items, all.n, sizeof(*all.items), compare_dropins);
        for (size_t i = 0; i < all.n; i++) {
                r = load_file(c, all.items[i].path, error);
                /* It can also go while we read, or be a link to nowhere. */
                if (r == -ENOENT)
                        return refuse_errno(error, all.items[i].path, r);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int check(const Config *c, ConfigError *error) {
        int r;

        for (size_t i = 0; i < config_n_sections; i++)
                if (config_sections[i].check) {
                        r = config_sections[i].check(c, error);
                        if (r < 0)
                                return r;
                }
        return 0;
}

int config_load(const ConfigSource *source, Config *ret, ConfigError *error) {
        _cleanup_(config_done) Config c = {};
        int r;

        error->text[0] = '\0';
        r = config_init(&c);
        if (r >= 0 && source->file) {
                r = load_file(&c, source->file, error);
                if (r == -ENOENT)
                        r = refuse_errno(error, source->file, r);
        } else if (r >= 0) {
                r = load_main(&c, source->root ?: "", error);
                if (r >= 0)
                        r = load_dropins(&c, source->root ?: "", error);
        }
        if (r >= 0)
                r = check(&c, error);
        if (r < 0) {
                if (r == -ENOMEM)
                        config_refuse(error, "no memory to read the configuration");
                return r;
        }

        *ret = c;
        c = (Config){};
        return 0;
}
