/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What the kernel does to memory by itself, and how much of it tdpd may lock. */

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <string.h>

#include "doctor.h"
#include "size.h"

/* Of "always [madvise] never": the word in brackets. */
static bool chosen_word(char *text, const char **ret) {
        char *from = strchr(text, '['), *to = from ? strchr(from, ']') : NULL;

        if (!to)
                return false;
        *to = '\0';
        *ret = from + 1;
        return true;
}

static void check_thp(struct doctor *d) {
        char text[DOCTOR_TEXT_MAX];
        const char *word;

        if (doctor_read(d, text, "/sys/kernel/mm/transparent_hugepage/enabled") < 0)
                doctor_report(d, "thp", DOCTOR_NOTE,
                              "VMs that are attached with ordinary memory get leaves of 4K. Memory that tdpd "
                              "reserves in huge pages is not concerned.",
                              "Reserve their memory through tdpd, in pages of 2M or 1G.",
                              "this kernel has no transparent huge pages");
        else if (!chosen_word(text, &word))
                doctor_report(d, "thp", DOCTOR_NOTE, "It cannot be told whether they are used.", NULL,
                              "transparent huge pages are \"%.64s\"", text);
        else if (strcmp(word, "never") == 0)
                doctor_report(d, "thp", DOCTOR_NOTE,
                              "VMs that are attached with ordinary memory get leaves of 4K. Memory that tdpd "
                              "reserves in huge pages is not concerned.",
                              "Write \"madvise\" to /sys/kernel/mm/transparent_hugepage/enabled, or reserve their "
                              "memory through tdpd.",
                              "transparent huge pages are off (never)");
        else
                doctor_report(d, "thp", DOCTOR_OK,
                              "Ordinary memory of VMs that are attached can have leaves of 2M, if their VMM asks for "
                              "it.",
                              NULL, "transparent huge pages are on (%.32s)", word);
}

static void check_ksm(struct doctor *d) {
        char text[DOCTOR_TEXT_MAX], shared[DOCTOR_TEXT_MAX];

        if (doctor_read(d, text, "/sys/kernel/mm/ksm/run") < 0)
                doctor_report(d, "ksm", DOCTOR_OK, "Nothing merges pages of VMs.", NULL,
                              "this kernel has no KSM");
        else if (strcmp(text, "1") == 0) {
                if (doctor_read(d, shared, "/sys/kernel/mm/ksm/pages_sharing") < 0)
                        strcpy(shared, "unknown");
                doctor_report(d, "ksm", DOCTOR_NOTE,
                              "Merged pages are read-only until the guest writes: a build of ordinary memory copies "
                              "them again, and what is pinned is never merged, so scanning it is in vain.",
                              "Write 2 to /sys/kernel/mm/ksm/run, or start QEMU with \"-machine mem-merge=off\".",
                              "it merges pages, %.32s are shared now", shared);
        } else
                doctor_report(d, "ksm", DOCTOR_OK, "Nothing merges pages of VMs.", NULL,
                              "it is not running (%.32s)", text);
}

static void check_numa_balancing(struct doctor *d) {
        char text[DOCTOR_TEXT_MAX];

        if (doctor_read(d, text, "/proc/sys/kernel/numa_balancing") < 0 || strcmp(text, "0") == 0)
                doctor_report(d, "numa-balancing", DOCTOR_OK,
                              "The kernel leaves memory where it was placed.", NULL,
                              "automatic NUMA balancing is off, or not in this kernel");
        else
                doctor_report(d, "numa-balancing", DOCTOR_NOTE,
                              "What is pinned stays mapped and where it is, but is sampled all the same, which costs "
                              "the VMM faults. VMs that are not built lose parts of their mapping each time.",
                              "If VMs are placed by node anyway, set kernel.numa_balancing=0 (sysctl).",
                              "automatic NUMA balancing is on (%.32s)", text);
}

void doctor_check_memory(struct doctor *d) {
        check_thp(d);
        check_numa_balancing(d);
        check_ksm(d);
}

/* 0: none runs, as far as can be seen. */
static long find_tdpd(const struct doctor *d) {
        _cleanup_free_ char *proc = doctor_path(d, "/proc");
        DIR *dir = proc ? opendir(proc) : NULL;
        char comm[DOCTOR_TEXT_MAX];
        const struct dirent *e;
        long pid = 0;

        while (dir && pid == 0 && (e = readdir(dir)))
                if (isdigit((unsigned char) e->d_name[0]) &&
                    doctor_read(d, comm, "/proc/%s/comm", e->d_name) >= 0 && strcmp(comm, "tdpd") == 0)
                        pid = strtol(e->d_name, NULL, 10);
        if (dir)
                closedir(dir);
        return pid;
}

/* UINT64_MAX: unlimited. */
static int parse_memlock(const char *limits, uint64_t *ret) {
        static const char key[] = "Max locked memory";
        const char *p = strstr(limits, key);

        if (!p)
                return -EBADMSG;
        p += strlen(key);
        p += strspn(p, " ");
        if (strncmp(p, "unlimited", 9) == 0) {
                *ret = UINT64_MAX;
                return 0;
        }
        return sscanf(p, "%" SCNu64, ret) == 1 ? 0 : -EBADMSG;
}

static uint64_t total_memory(const struct doctor *d) {
        char text[DOCTOR_TEXT_MAX];
        uint64_t kib;

        if (doctor_read(d, text, "/proc/meminfo") < 0 || sscanf(text, "MemTotal: %" SCNu64, &kib) != 1)
                return UINT64_MAX;
        return kib > UINT64_MAX >> 10 ? UINT64_MAX : kib << 10;
}

void doctor_check_memlock(struct doctor *d) {
        char limits[DOCTOR_TEXT_MAX], a[SIZE_TEXT_MAX], b[SIZE_TEXT_MAX];
        uint64_t limit, total = total_memory(d);
        long pid = find_tdpd(d);

        if (pid == 0)
                doctor_report(d, "memlock", DOCTOR_NOTE, "How much memory it may lock is not known.",
                              "Start it with \"systemctl start tdpd\", and ask again.", "tdpd does not run");
        else if (doctor_read(d, limits, "/proc/%ld/limits", pid) < 0 || parse_memlock(limits, &limit) < 0)
                doctor_report(d, "memlock", DOCTOR_NOTE, "How much memory it may lock is not known.",
                              "Ask again as root.", "the limits of tdpd (pid %ld) cannot be read", pid);
        else if (limit == UINT64_MAX)
                doctor_report(d, "memlock", DOCTOR_OK, "It may pin the memory of VMs of any size.", NULL,
                              "tdpd (pid %ld) may lock memory without a limit", pid);
        else if (limit >= total)
                doctor_report(d, "memlock", DOCTOR_OK,
                              "It may pin the memory of all VMs that fit this host.", NULL,
                              "tdpd (pid %ld) may lock %s, this host has %s", pid, size_format(limit, a),
                              size_format(total, b));
        else
                doctor_report(d, "memlock", DOCTOR_PROBLEM,
                              "VMs with more memory than that, or together more than that, cannot be pinned.",
                              "Run tdpd by its unit, with LimitMEMLOCK=infinity: see \"systemctl cat tdpd\".",
                              "tdpd (pid %ld) may lock %s, this host has %s", pid, size_format(limit, a),
                              total == UINT64_MAX ? "an unknown amount" : size_format(total, b));
}
