/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The kernel's part: whether our KVM is there, is the one that was installed, and is allowed to work. */

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "doctor.h"

#define MODULE "updates/tdpd/kvm.ko"
#define RELOAD                                                                                              \
        "Reboot, or stop all VMs and run \"modprobe -r kvm_amd kvm_intel kvm; modprobe -a kvm_amd "         \
        "kvm_intel\"."

/* Kernels other than this one that our modules are installed for: "" if there are none. */
static void other_kernels(const struct doctor *d, const char *release, char *text, size_t size) {
        _cleanup_free_ char *modules = doctor_path(d, "/lib/modules");
        DIR *dir = modules ? opendir(modules) : NULL;
        const struct dirent *e;
        size_t n = 0;

        text[0] = '\0';
        while (dir && (e = readdir(dir))) {
                _cleanup_free_ char *path = doctor_path(d, "/lib/modules/%s/" MODULE, e->d_name);

                if (e->d_name[0] == '.' || strcmp(e->d_name, release) == 0 || !path ||
                    access(path, F_OK) < 0 || n + strlen(e->d_name) + 3 > size)
                        continue;
                n += (size_t) snprintf(text + n, size - n, "%s%s", n > 0 ? ", " : "", e->d_name);
        }
        if (dir)
                closedir(dir);
}

static void report_foreign_module(struct doctor *d, const char *release, bool installed) {
        static const char means[] = "KVM cannot build mappings: it is not the one that comes with tdpd.";
        char others[512];

        other_kernels(d, release, others, sizeof(others));
        if (installed)
                doctor_report(d, "module", DOCTOR_PROBLEM, means, RELOAD,
                              "tdpd's kvm is installed for this kernel, %s, and another one is loaded",
                              release);
        else if (others[0])
                doctor_report(d, "module", DOCTOR_PROBLEM, means,
                              "Boot one of these kernels, or install tdpd-kvm-modules for the one that runs.",
                              "this kernel is %s, and tdpd's modules are installed for %s", release, others);
        else
                doctor_report(d, "module", DOCTOR_PROBLEM, means,
                              "Install the package tdpd-kvm-modules, and load its modules.",
                              "the kvm module of kernel %s is not tdpd's", release);
}

/* The build ID is a note in the loaded module, and byte by byte the same in its file. */
static int holds_note(const char *path, const char *note, size_t size) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct stat st;
        void *p;
        int r;

        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_size == 0)
                return 0;
        p = mmap(NULL, (size_t) st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
                return -errno;
        r = memmem(p, (size_t) st.st_size, note, size) != NULL;
        munmap(p, (size_t) st.st_size);
        return r;
}

static void check_same_module(struct doctor *d, const char *release) {
        _cleanup_free_ char *path = doctor_path(d, "/lib/modules/%s/" MODULE, release);
        char note[DOCTOR_TEXT_MAX];
        int size, r;

        size = doctor_read(d, note, "/sys/module/kvm/notes/.note.gnu.build-id");
        if (size <= 0 || !path) /* built into the kernel, or without an ID: there is nothing to compare */
                return;
        r = holds_note(path, note, (size_t) size);
        if (r < 0)
                doctor_report(d, "module-version", DOCTOR_NOTE,
                              "After the next boot KVM may be another one, without tdpd's part.",
                              "Install the package tdpd-kvm-modules for this kernel.",
                              "the loaded kvm is tdpd's, and none is installed for kernel %s", release);
        else if (r == 0)
                doctor_report(d, "module-version", DOCTOR_NOTE,
                              "The loaded modules are another build of them, from before an upgrade as it seems.",
                              RELOAD, "the loaded kvm is not the one that is installed");
        else
                doctor_report(d, "module-version", DOCTOR_OK, "Nothing waits for a reload.", NULL,
                              "the loaded kvm is the one that is installed for kernel %s", release);
}

static void check_module(struct doctor *d) {
        char release[DOCTOR_TEXT_MAX], mode[DOCTOR_TEXT_MAX];
        _cleanup_free_ char *ours = NULL;

        if (doctor_read(d, release, "/proc/sys/kernel/osrelease") < 0)
                strcpy(release, "of unknown version");
        if (!doctor_exists(d, "/sys/module/kvm")) {
                doctor_report(d, "module", DOCTOR_PROBLEM, "There is no KVM, so there are no VMs to map.",
                              "Load kvm_intel or kvm_amd. If that fails, enable VMX or SVM in the firmware.",
                              "kvm is not loaded");
                return;
        }
        if (doctor_read(d, mode, "/sys/module/kvm/parameters/gtdp") < 0) {
                ours = doctor_path(d, "/lib/modules/%s/" MODULE, release);
                report_foreign_module(d, release, ours && access(ours, F_OK) == 0);
                return;
        }
        if (strcmp(mode, "off") == 0) {
                doctor_report(d, "module", DOCTOR_PROBLEM, "KVM builds no mappings: it was told so.",
                              "Remove kvm.gtdp=off from the kernel's command line or from /etc/modprobe.d, and "
                              "load kvm anew.",
                              "kvm is tdpd's, with gtdp=off");
                return;
        }
        doctor_report(d, "module", strcmp(mode, "force") == 0 ? DOCTOR_NOTE : DOCTOR_OK,
                      strcmp(mode, "force") == 0
                                      ? "KVM builds every VM by itself, whatever tdpd decides. This is for tests."
                                      : "KVM builds the mappings that tdpd asks for.",
                      strcmp(mode, "force") == 0 ? "Load kvm with gtdp=allow, its default." : NULL,
                      "kvm is tdpd's, with gtdp=%.32s", mode);
        check_same_module(d, release);
        if (doctor_exists(d, "/dev/kvm-gtdp"))
                doctor_report(d, "device", DOCTOR_OK, "tdpd can reach KVM.", NULL, "/dev/kvm-gtdp is there");
        else
                doctor_report(d, "device", DOCTOR_PROBLEM, "tdpd cannot reach KVM.",
                              "See \"dmesg | grep kvm\": nested paging may be missing. In a container, the host's "
                              "device is needed.",
                              "there is no /dev/kvm-gtdp");
}

static bool is_on(const char *text) {
        return text[0] == 'Y' || text[0] == '1';
}

static void check_paging(struct doctor *d) {
        static const struct {
                const char *module, *parameter;
        } vendors[] = { { "kvm_intel", "ept" }, { "kvm_amd", "npt" } };
        char text[DOCTOR_TEXT_MAX];

        for (size_t i = 0; i < ELEMENTSOF(vendors); i++) {
                const char *module = vendors[i].module, *parameter = vendors[i].parameter;

                if (doctor_read(d, text, "/sys/module/%s/parameters/%s", module, parameter) < 0)
                        continue;
                if (!is_on(text))
                        doctor_report(d, "paging", DOCTOR_PROBLEM,
                                      "Without nested paging there is no second-level page table to build.",
                                      "Load the module without that parameter. If it is off all the same, the "
                                      "processor or the firmware does not have it.",
                                      "%s has %s off", module, parameter);
                else if (doctor_read(d, text, "/sys/module/kvm/parameters/tdp_mmu") >= 0 && !is_on(text))
                        doctor_report(d, "paging", DOCTOR_PROBLEM,
                                      "Mappings are built in the TDP MMU only, and KVM was told not to use it.",
                                      "Remove kvm.tdp_mmu=0, and load kvm anew.", "kvm has tdp_mmu off");
                else
                        doctor_report(d, "paging", DOCTOR_OK, "VMs have second-level page tables.", NULL,
                                      "%s has %s on", module, parameter);

                if (doctor_read(d, text, "/sys/module/%s/parameters/nested", module) >= 0)
                        doctor_report(d, "nested", DOCTOR_OK,
                                      is_on(text) ? "What nested guests use on top of a built mapping still comes on "
                                                    "demand."
                                                  : "Guests cannot run guests of their own.",
                                      NULL, "%s has nested %s", module, is_on(text) ? "on" : "off");
                return;
        }
        doctor_report(d, "paging", DOCTOR_PROBLEM, "KVM cannot run VMs.",
                      "Load kvm_intel or kvm_amd. If that fails, enable VMX or SVM in the firmware.",
                      "neither kvm_intel nor kvm_amd is loaded");
}

static void check_nx_huge_pages(struct doctor *d) {
        char text[DOCTOR_TEXT_MAX], itlb[DOCTOR_TEXT_MAX];

        if (doctor_read(d, text, "/sys/module/kvm/parameters/nx_huge_pages") < 0)
                return;
        if (!is_on(text)) {
                doctor_report(d, "nx-huge-pages", DOCTOR_OK, "Large leaves stay large.", NULL,
                              "the mitigation is off (%.32s)", text);
                return;
        }
        if (doctor_read(d, itlb, "/sys/devices/system/cpu/vulnerabilities/itlb_multihit") < 0)
                strcpy(itlb, "unknown");
        doctor_report(d, "nx-huge-pages", DOCTOR_PROBLEM,
                      "Large leaves are split where guests execute, and KVM takes the small ones away again, which "
                      "makes holes. By itself, tdpd does not build.",
                      strncmp(itlb, "Not affected", 12) == 0
                                      ? "This processor does not need it: remove kvm.nx_huge_pages=force."
                                      : "If all guests are trusted, load kvm with nx_huge_pages=off. If not, keep it.",
                      "the mitigation is on; iTLB multihit: %.64s", itlb);
}

void doctor_check_kernel(struct doctor *d) {
        check_module(d);
        check_paging(d);
        check_nx_huge_pages(d);
}
