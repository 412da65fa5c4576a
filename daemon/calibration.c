/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "calibration.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "number.h"
#include "sysfs.h"

#define FILE_NAME "calibration"
#define MAGIC     "tdpd-calibration"
#define VERSION   1U
#define FILE_MAX  KIB(64)
/* A nanosecond more or less than nothing, and a minute: what is beyond was not measured by us. */
#define NS_MAX UINT64_C(60000000000)

/* Printable ASCII on one line, as it goes into a file of lines and out on the bus. */
static void copy_text(char *to, size_t size, const char *from, size_t n) {
        size_t k = 0;

        for (size_t i = 0; i < n && k + 1 < size && from[i] != '\n' && from[i] != '\0'; i++)
                to[k++] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
        while (k > 0 && to[k - 1] == ' ')
                k--;
        to[k] = '\0';
}

void calibration_get_host(CalibrationHost *ret) {
        char buf[4096];
        struct utsname u;
        ssize_t n = -1;
        const char *p;
        int fd;

        *ret = (CalibrationHost){ .cpu = "unknown", .kernel = "unknown" };
        if (uname(&u) >= 0)
                copy_text(ret->kernel, sizeof(ret->kernel), u.release, strlen(u.release));

        /* The whole of it may be large, the first CPU's part is all that is needed. */
        fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
                n = read(fd, buf, sizeof(buf) - 1);
        safe_close(fd);
        if (n <= 0)
                return;
        buf[n] = '\0';
        p = strstr(buf, "model name");
        p = p ? strchr(p, ':') : NULL;
        if (p)
                copy_text(ret->cpu, sizeof(ret->cpu), p + 1 + strspn(p + 1, " \t"),
                          strlen(p + 1 + strspn(p + 1, " \t")));
}

int calibration_write(FILE *f, const Calibration *c) {
        fprintf(f, MAGIC " %u\ncpu %s\nkernel %s\ntime %" PRIu64 "\n", VERSION, c->host.cpu, c->host.kernel,
                c->measured_at);
        for (size_t i = 0; i < COST_SIZES; i++) {
                const CalibrationLeaf *l = &c->leaves[i];

                if (l->page_size == 0)
                        continue;
                fprintf(f, "leaf %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", l->page_size, l->fault_ns,
                        l->build_ns);
                if (l->missing[0])
                        fprintf(f, "missing %" PRIu64 " %s\n", l->page_size, l->missing);
        }
        for (size_t i = 0; i < c->n_rates; i++)
                fprintf(f, "populate %" PRIu32 " %" PRIu64 " %" PRIu64 "\n", c->rates[i].node,
                        c->rates[i].page_size, c->rates[i].bytes_per_sec);
        /* Nothing is missing if this is there. */
        fputs("end\n", f);
        return fflush(f) != 0 || ferror(f) ? -EIO : 0;
}

/* The next number of a line: true if there is one, without sign and without overflow. */
static bool next_number(const char **p, uint64_t *ret) {
        *p += strspn(*p, " ");
        return number_read(p, ret) >= 0 && (**p == ' ' || **p == '\0');
}

static bool is_end(const char *p) {
        return p[strspn(p, " ")] == '\0';
}

static CalibrationLeaf *find_leaf(Calibration *c, uint64_t page_size) {
        static const uint64_t sizes[COST_SIZES] = { KIB(4), MIB(2), GIB(1) };

        for (size_t i = 0; i < COST_SIZES; i++)
                if (sizes[i] == page_size) {
                        c->leaves[i].page_size = page_size;
                        return &c->leaves[i];
                }
        return NULL;
}

/* < 0: nonsense.  Lines with another first word are a later version's additions. */
static int parse_line(const char *line, Calibration *c) {
        size_t n = strcspn(line, " ");
        const char *p = line + n + strspn(line + n, " ");
        uint64_t a, b, d;
        CalibrationLeaf *l;

        if (strncmp(line, "cpu ", 4) == 0)
                copy_text(c->host.cpu, sizeof(c->host.cpu), p, strlen(p));
        else if (strncmp(line, "kernel ", 7) == 0)
                copy_text(c->host.kernel, sizeof(c->host.kernel), p, strlen(p));
        else if (strncmp(line, "time ", 5) == 0) {
                if (!next_number(&p, &c->measured_at) || !is_end(p))
                        return -EBADMSG;
        } else if (strncmp(line, "leaf ", 5) == 0) {
                if (!next_number(&p, &a) || !next_number(&p, &b) || !next_number(&p, &d) || !is_end(p) ||
                    b > NS_MAX || d > NS_MAX || !(l = find_leaf(c, a)))
                        return -EBADMSG;
                l->fault_ns = b;
                l->build_ns = d;
        } else if (strncmp(line, "missing ", 8) == 0) {
                if (!next_number(&p, &a) || !(l = find_leaf(c, a)))
                        return -EBADMSG;
                p += strspn(p, " ");
                copy_text(l->missing, sizeof(l->missing), p, strlen(p));
        } else if (strncmp(line, "populate ", 9) == 0) {
                if (!next_number(&p, &a) || !next_number(&p, &b) || !next_number(&p, &d) || !is_end(p) ||
                    a > UINT32_MAX || b == 0 || c->n_rates >= CALIBRATION_RATES_MAX)
                        return -EBADMSG;
                c->rates[c->n_rates++] = (CalibrationRate){ (uint32_t) a, b, d };
        }
        return 0;
}

int calibration_parse(const char *text, size_t size, Calibration *ret) {
        Calibration c = { .host = { "unknown", "unknown" } };
        const char *end = text + size;
        bool whole = false;
        uint64_t version;

        for (unsigned n = 0; text < end && !whole; n++) {
                const char *newline = memchr(text, '\n', (size_t) (end - text));
                char line[256];

                /* Our own lines are short, and have no NUL. */
                if (!newline || newline - text >= (ssize_t) sizeof(line) ||
                    memchr(text, '\0', (size_t) (newline - text)))
                        return -EBADMSG;
                memcpy(line, text, (size_t) (newline - text));
                line[newline - text] = '\0';
                text = newline + 1;

                if (n == 0) {
                        const char *p = line + strlen(MAGIC);

                        if (strncmp(line, MAGIC " ", strlen(MAGIC " ")) != 0 || !next_number(&p, &version) ||
                            !is_end(p))
                                return -EBADMSG;
                        if (version != VERSION)
                                return -EPROTONOSUPPORT;
                } else if (streq(line, "end"))
                        whole = true;
                else if (parse_line(line, &c) < 0)
                        return -EBADMSG;
        }
        if (!whole)
                return -EBADMSG;
        *ret = c;
        return 0;
}

int calibration_store(const char *dir, const Calibration *c) {
        char path[PATH_MAX], temporary[PATH_MAX];
        FILE *f;
        int fd, r;

        if (snprintf(path, sizeof(path), "%s/" FILE_NAME, dir) >= (int) sizeof(path) ||
            snprintf(temporary, sizeof(temporary), "%s/." FILE_NAME ".XXXXXX", dir) >=
                            (int) sizeof(temporary))
                return -ENAMETOOLONG;
        fd = mkostemp(temporary, O_CLOEXEC);
        if (fd < 0)
                return -errno;
        f = fdopen(fd, "w");
        if (!f) {
                r = -errno;
                close(fd);
                goto fail;
        }
        r = calibration_write(f, c);
        if (r >= 0 && (fchmod(fd, 0644) < 0 || fsync(fd) < 0))
                r = -errno;
        if (fclose(f) != 0 && r >= 0)
                r = -errno;
        if (r >= 0 && rename(temporary, path) < 0)
                r = -errno;
        if (r >= 0)
                return 0;
fail:
        (void) unlink(temporary);
        return r;
}

static int read_text(const char *dir, char **ret, size_t *ret_size) {
        _cleanup_free_ char *buf = NULL;
        _cleanup_close_ int fd = -1;
        char path[PATH_MAX];
        struct stat st;
        ssize_t n;

        if (snprintf(path, sizeof(path), "%s/" FILE_NAME, dir) >= (int) sizeof(path))
                return -ENAMETOOLONG;
        /* Whatever lies there under that name must not make us wait. */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_size > (off_t) FILE_MAX)
                return -EBADMSG;
        buf = malloc(FILE_MAX);
        if (!buf)
                return -ENOMEM;
        n = read_full(fd, buf, FILE_MAX);
        if (n < 0)
                return (int) n;
        *ret = TAKE_PTR(buf);
        *ret_size = (size_t) n;
        return 0;
}

int calibration_load(const char *dir, const CalibrationHost *host, Calibration *ret, char *why,
                     size_t why_size) {
        _cleanup_free_ char *text = NULL;
        Calibration c;
        size_t size = 0;
        int r;

        r = read_text(dir, &text, &size);
        if (r >= 0)
                r = calibration_parse(text, size, &c);
        if (r == -ENOENT)
                snprintf(why, why_size, "this host was never calibrated: tdpctl calibrate does it");
        else if (r == -EBADMSG)
                snprintf(why, why_size, "%s/" FILE_NAME " is no calibration, or not whole: calibrate again",
                         dir);
        else if (r == -EPROTONOSUPPORT)
                snprintf(why, why_size, "%s/" FILE_NAME " is of another version of tdpd: calibrate again",
                         dir);
        else if (r < 0)
                snprintf(why, why_size, "%s/" FILE_NAME " cannot be read: %s", dir, strerror(-r));
        if (r < 0)
                return r;

        if (!streq(c.host.cpu, host->cpu) || !streq(c.host.kernel, host->kernel)) {
                snprintf(why, why_size,
                         "the calibration is of %s with kernel %s, and this is %s with %s: calibrate "
                         "again",
                         c.host.cpu, c.host.kernel, host->cpu, host->kernel);
                return -ESTALE;
        }
        *ret = c;
        return 0;
}

void calibration_apply(const Calibration *c, CostModel *m) {
        for (size_t i = 0; i < COST_SIZES; i++)
                for (size_t k = 0; k < COST_SIZES; k++) {
                        if (c->leaves[i].page_size != m->leaves[k].page_size)
                                continue;
                        if (c->leaves[i].fault_ns > 0) {
                                m->leaves[k].fault_ns = (double) c->leaves[i].fault_ns;
                                m->leaves[k].fault_is_measured = true;
                        }
                        if (c->leaves[i].build_ns > 0) {
                                m->leaves[k].build_ns = (double) c->leaves[i].build_ns;
                                m->leaves[k].build_is_measured = true;
                        }
                }
        m->measured_at = c->measured_at;
}

uint64_t calibration_rate(const Calibration *c, uint32_t node, uint64_t page_size) {
        for (size_t i = 0; i < c->n_rates; i++)
                if (c->rates[i].node == node && c->rates[i].page_size == page_size)
                        return c->rates[i].bytes_per_sec;
        return 0;
}
