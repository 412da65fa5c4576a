/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* QEMU's command line: what the user wrote, and what is added. */

#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include "cleanup.h"
#include "log.h"
#include "qemu-args.h"
#include "size.h"

/* QEMU's options without a value; all others take the next word. From QEMU's qemu-options.hx, 2.x to 9.x. */
static const char *const flags[] = {
        "h",
        "help",
        "version",
        "S",
        "s",
        "snapshot",
        "no-fd-bootchk",
        "enable-fips",
        "mem-prealloc",
        "nographic",
        "curses",
        "portrait",
        "alt-grab",
        "ctrl-grab",
        "no-quit",
        "sdl",
        "full-screen",
        "win2k-hack",
        "no-acpi",
        "no-hpet",
        "no-reboot",
        "no-shutdown",
        "preconfig",
        "singlestep",
        "one-insn-per-tb",
        "daemonize",
        "usb",
        "enable-kvm",
        "only-migratable",
        "nodefaults",
        "no-user-config",
        "semihosting",
        "old-param",
        "no-nodefaults",
        "enable-sync-profile",
        "xen-attach",
        "xen-domid-restrict",
        "no-frame",
        "localtime",
        "no-kvm",
        "nodefconfig",
};

static bool is_flag(const char *option) {
        for (size_t i = 0; i < ELEMENTSOF(flags); i++)
                if (strcmp(flags[i], option) == 0)
                        return true;
        return false;
}

/* Whether the comma-separated value has a "key=". ret (may be NULL) points behind it. */
static bool has_key(const char *value, const char *key, const char **ret) {
        size_t n = strlen(key);

        for (const char *p = value; p; p = strchr(p, ',')) {
                if (*p == ',')
                        p++;
                if (strncmp(p, key, n) == 0 && p[n] == '=') {
                        if (ret)
                                *ret = p + n + 1;
                        return true;
                }
        }
        return false;
}

/* "8G", "8192" (MiB) or "size=8G,slots=2,maxmem=16G" */
static int parse_memory(const char *value, uint64_t *ret) {
        _cleanup_free_ char *number = NULL;
        const char *p = value;
        uint64_t n;
        int r;

        (void) has_key(value, "size", &p);
        number = strndup(p, strcspn(p, ","));
        if (!number)
                return -ENOMEM;

        r = size_parse(number, &n);
        if (r < 0)
                return r;
        if (strspn(number, "0123456789") == strlen(number) &&
            __builtin_mul_overflow(n, UINT64_C(1) << 20, &n))
                return -ERANGE;

        *ret = n;
        return 0;
}

static int check_memory(const char *value, uint64_t memory, struct qemu_args *args) {
        char buf[SIZE_TEXT_MAX];
        uint64_t n;

        if (parse_memory(value, &n) < 0)
                return log_error(-EINVAL,
                                 "QEMU's \"-m %s\" cannot be compared with --memory=%s. Leave "
                                 "-m out: it is added.",
                                 value, size_format(memory, buf));
        if (n != memory)
                return log_error(-EINVAL,
                                 "QEMU's \"-m %s\" contradicts --memory=%s. Leave -m out: it is added.",
                                 value, size_format(memory, buf));
        args->memory = true;
        return 0;
}

/* "4", "cpus=4" or "4,maxcpus=8": how many vCPUs there can be, to be shared among the guest's nodes.  With
 * sockets and the like QEMU works that out, and shares them by itself. */
static uint32_t count_cpus(const char *value) {
        static const char *const topology[] = { "sockets=", "dies=", "clusters=", "cores=", "threads=" };
        unsigned long cpus = 0, max = 0;
        const char *p = value;

        for (size_t i = 0; i < ELEMENTSOF(topology); i++)
                if (strstr(value, topology[i]))
                        return 0;
        while (p) {
                if (strncmp(p, "maxcpus=", 8) == 0)
                        max = strtoul(p + 8, NULL, 10);
                else if (strncmp(p, "cpus=", 5) == 0)
                        cpus = strtoul(p + 5, NULL, 10);
                else if (p == value)
                        cpus = strtoul(p, NULL, 10);
                p = strchr(p, ',');
                p = p ? p + 1 : NULL;
        }
        max = max > 0 ? max : cpus;
        return max <= UINT16_MAX ? (uint32_t) max : 0; /* else QEMU refuses it */
}

static int check_option(const char *option, const char *value, uint64_t memory, struct qemu_args *args) {
        static const struct {
                const char *option, *why;
        } refused[] = {
                { "mem-path", "the guest's memory comes from tdpd" },
                { "mem-prealloc", "tdpd has populated the memory already" },
                { "numa", "tdpd adds the guest's nodes together with its memory" },
                { "daemonize",
                  "tdpctl has to stay with QEMU until it ends; start tdpctl in the background instead" },
                { "preconfig", "the mapping is built when the machine is complete" },
        };

        for (size_t i = 0; i < ELEMENTSOF(refused); i++)
                if (strcmp(refused[i].option, option) == 0)
                        return log_error(-EINVAL,
                                         "QEMU's option -%s cannot be used with \"tdpctl run\": %s.", option,
                                         refused[i].why);

        if (strcmp(option, "S") == 0)
                args->stopped = true;
        else if (strcmp(option, "enable-kvm") == 0 || strcmp(option, "accel") == 0)
                args->accelerator = true;
        else if (strcmp(option, "m") == 0 && value)
                return check_memory(value, memory, args);
        else if (strcmp(option, "smp") == 0 && value)
                args->max_cpus = count_cpus(value);
        else if ((strcmp(option, "machine") == 0 || strcmp(option, "M") == 0) && value) {
                if (has_key(value, "memory-backend", NULL))
                        return log_error(-EINVAL,
                                         "QEMU's \"-%s %s\" names a memory backend, but the "
                                         "guest's memory comes "
                                         "from tdpd. Leave memory-backend out.",
                                         option, value);
                if (has_key(value, "accel", NULL))
                        args->accelerator = true;
        }
        return 0;
}

int qemu_args_scan(char *const *argv, uint64_t memory, struct qemu_args *ret) {
        struct qemu_args args = {};
        int r;

        for (size_t i = 1; argv[i]; i++) {
                const char *option = argv[i], *value = NULL;

                if (option[0] != '-')
                        continue;
                option += option[1] == '-' ? 2 : 1;
                if (!is_flag(option) && argv[i + 1])
                        value = argv[++i];

                r = check_option(option, value, memory, &args);
                if (r < 0)
                        return r;
        }

        *ret = args;
        return 0;
}

struct builder {
        char **words;
        size_t n;
        int error;
};

static void add(struct builder *b, const char *format, ...) _printf_(2, 3);
static void add(struct builder *b, const char *format, ...) {
        va_list ap;

        if (b->error < 0)
                return;
        va_start(ap, format);
        if (vasprintf(&b->words[b->n], format, ap) < 0) {
                b->words[b->n] = NULL;
                b->error = -ENOMEM;
        } else
                b->n++;
        va_end(ap);
}

static void add_memory(struct builder *b, const struct qemu_args *scanned, const struct qemu_part *parts,
                       size_t n_parts) {
        uint64_t total = 0;

        for (size_t i = 0; i < n_parts; i++) {
                add(b, "-object");
                /* By path: /dev/fdset/N is not accepted for memory backends. */
                add(b, "memory-backend-file,id=tdpd%zu,size=%llu,mem-path=/proc/self/fd/%d,share=on", i,
                    (unsigned long long) parts[i].bytes, parts[i].fd);
                total += parts[i].bytes;
        }

        if (!scanned->memory) {
                add(b, "-m");
                add(b, "size=%lluB", (unsigned long long) total);
        }

        if (n_parts == 1) {
                /* Several -machine options are merged. */
                add(b, "-machine");
                add(b, "memory-backend=tdpd0");
        } else
                for (size_t i = 0; i < n_parts; i++) {
                        uint32_t from = (uint32_t) (i * scanned->max_cpus / n_parts),
                                 to = (uint32_t) ((i + 1) * scanned->max_cpus / n_parts);

                        add(b, "-numa");
                        if (from < to)
                                add(b, "node,nodeid=%zu,cpus=%u-%u,memdev=tdpd%zu", i, from, to - 1, i);
                        else
                                add(b, "node,nodeid=%zu,memdev=tdpd%zu", i, i);
                }
}

int qemu_args_build(char *const *argv, const struct qemu_args *scanned, const struct qemu_part *parts,
                    size_t n_parts, int config_fd, bool stop, bool incoming, char ***ret) {
        struct builder b = {};
        size_t n = 0;

        while (argv[n])
                n++;

        b.words = calloc(n + 4 * n_parts + 16, sizeof(char *));
        if (!b.words)
                return -ENOMEM;

        for (size_t i = 0; i < n; i++)
                add(&b, "%s", argv[i]);
        if (!scanned->accelerator) {
                add(&b, "-accel");
                add(&b, "kvm");
        }
        add_memory(&b, scanned, parts, n_parts);
        add(&b, "-readconfig");
        add(&b, "/proc/self/fd/%d", config_fd);
        if (stop && !scanned->stopped)
                add(&b, "-S");
        if (incoming) {
                add(&b, "-incoming");
                add(&b, "defer");
        }

        if (b.error < 0) {
                qemu_args_free(b.words);
                return b.error;
        }
        *ret = b.words;
        return 0;
}

char **qemu_args_free(char **argv) {
        for (size_t i = 0; argv && argv[i]; i++)
                free(argv[i]);
        free(argv);
        return NULL;
}

/* As options on the command line they would cost the user QEMU's default monitor (Ctrl-A c with -nographic).
 */
int qemu_args_open_config(int qmp_fd, const char *qmp_path) {
        _cleanup_close_ int fd = -1;

        fd = memfd_create("tdpd-qmp", MFD_CLOEXEC);
        if (fd < 0)
                return -errno;
        if (dprintf(fd,
                    "[chardev \"tdpd-qmp\"]\n"
                    "  backend = \"socket\"\n"
                    "  fd = \"%d\"\n"
                    "[mon \"tdpd-qmp\"]\n"
                    "  chardev = \"tdpd-qmp\"\n"
                    "  mode = \"control\"\n",
                    qmp_fd) < 0)
                return -errno;
        if (qmp_path && dprintf(fd,
                                "[chardev \"tdpd-control\"]\n"
                                "  backend = \"socket\"\n"
                                "  path = \"%s\"\n"
                                "  server = \"on\"\n"
                                "  wait = \"off\"\n"
                                "[mon \"tdpd-control\"]\n"
                                "  chardev = \"tdpd-control\"\n"
                                "  mode = \"control\"\n",
                                qmp_path) < 0)
                return -errno;
        return TAKE_FD(fd);
}
