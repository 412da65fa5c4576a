/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "adopt.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <utlist.h>

#include "decide.h"
#include "discover.h"
#include "format.h"
#include "kvm-uevent.h"
#include "log-message.h"
#include "memory-file.h"
#include "name.h"
#include "process.h"
#include "slots.h"
#include "vm.h"

/* VMMs set up memory within moments, unless they allocate all of it first: that may take minutes. */
#define FIRST_USEC (UINT64_C(500) * 1000)
#define LAST_USEC  (UINT64_C(10) * 1000000)
#define TRIES_MAX  40U
/* VMs that never get memory are looked at for minutes: of one user, they must not keep others' waiting. */
#define CANDIDATES_MAX      1024U
#define CANDIDATES_USER_MAX 64U

typedef struct Candidate {
        struct Adopt *adopt;
        pid_t pid;
        uid_t uid;
        bool told; /* that its user has too many: said once, until all of these are done */
        int pidfd;
        sd_event_source *timer;
        uint64_t delay_usec;
        unsigned tries;
        uint64_t bytes; /* at the last look */
        struct Candidate *prev, *next;
} Candidate;

typedef struct Adopt {
        Manager *manager;
        KVMMonitor *monitor;
        Candidate *candidates;
        unsigned n;
        bool told; /* that there are too many, until half of them are done */
} Adopt;

static void candidate_free(Candidate *c) {
        DL_DELETE(c->adopt->candidates, c);
        if (--c->adopt->n <= CANDIDATES_MAX / 2)
                c->adopt->told = false;
        sd_event_source_disable_unref(c->timer);
        safe_close(c->pidfd);
        free(c);
}

typedef struct FileId {
        dev_t device;
        ino_t inode;
} FileId;

static int file_id_compare(const void *a, const void *b) {
        const FileId *x = a, *y = b;

        if (x->device != y->device)
                return x->device < y->device ? -1 : 1;
        return x->inode < y->inode ? -1 : x->inode > y->inode;
}

/* All our memory's files, sorted. */
static int our_memory(Manager *m, FileId **ret, size_t *ret_n) {
        size_t n = 0, size = 0;
        FileId *ids;
        VM *vm, *tmp;

        HASH_ITER (hh, m->vms, vm, tmp)
                size += vm->memory ? vm->memory->n_parts : 0;
        ids = calloc(size + 1, sizeof(*ids));
        if (!ids)
                return -ENOMEM;
        HASH_ITER (hh, m->vms, vm, tmp)
                for (size_t i = 0; vm->memory && i < vm->memory->n_parts; i++) {
                        struct stat st;

                        if (fstat(vm->memory->parts[i].fd, &st) >= 0)
                                ids[n++] = (FileId){ st.st_dev, st.st_ino };
                }
        qsort(ids, n, sizeof(*ids), file_id_compare);
        *ret = ids;
        *ret_n = n;
        return 0;
}

/* > 0 if it has memory of ours open: then whoever reserved it will attach it, under that name. */
static int has_our_memory(Manager *m, pid_t pid) {
        _cleanup_free_ FileId *ours = NULL;
        struct dirent *de;
        int found = 0, r;
        char path[64];
        size_t n;
        _cleanup_closedir_ DIR *d = NULL;

        r = our_memory(m, &ours, &n);
        if (r < 0)
                return r;
        snprintf(path, sizeof(path), "/proc/%i/fd", (int) pid);
        d = opendir(path);
        if (!d)
                return -errno;
        while (!found && (de = readdir(d))) {
                FileId id;

                if (isdigit((unsigned char) de->d_name[0]) &&
                    memory_file_identify(dirfd(d), de->d_name, &id.device, &id.inode) > 0)
                        found = bsearch(&id, ours, n, sizeof(id), file_id_compare) ? 1 : 0;
        }
        return found;
}

/* The VMM's own name for it, as far as it is one for us, and one that is free. */
static int choose_name(Manager *m, const VMFacts *f, pid_t pid, char *buf, size_t size) {
        char plain[sizeof(f->name)] = "";
        size_t n = 0;

        for (const char *p = f->name; *p != '\0'; p++)
                plain[n++] = isalnum((unsigned char) *p) || strchr("._-", *p) ? *p : '-';
        plain[n] = '\0';
        if (!vm_name_is_valid(plain))
                snprintf(buf, size, "pid-%i", (int) pid);
        else if (vm_check_name(m, plain, NULL) >= 0)
                snprintf(buf, size, "%s", plain);
        else
                snprintf(buf, size, "%s-%i", plain, (int) pid);
        return vm_check_name(m, buf, NULL) < 0 ? -EEXIST : 0;
}

/* How much memory it has now.  -ENODATA: it is not complete, as far as one can see. */
static int look_at_slots(Candidate *c, int vm_fd, Slots *ret) {
        _cleanup_close_ int handle = -1;
        uint64_t before = c->bytes;
        int r;

        handle = handle_attach(c->adopt->manager->options.device, vm_fd, false);
        if (handle < 0)
                return handle;
        r = slots_read(handle, ret);
        if (r < 0)
                return r;
        c->bytes = ret->bytes;
        return ret->bytes > 0 && ret->bytes == before ? 0 : -ENODATA;
}

static int attach(Candidate *c, int vm_fd_taken, const Slots *slots) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_close_ int vm_fd = vm_fd_taken;
        Manager *m = c->adopt->manager;
        DecideRequest request = {
                .has_uid = true,
                .pid = c->pid,
                .pid_is_vmm = true,
                .bytes = slots->bytes,
                .page_size = slots->page_size,
        };
        VMOptions facts = { .warm = true }, options = { .auto_slots = true, .warm = true };
        char name[VM_NAME_MAX + 1], rule_name[RULE_NAME_MAX + 1];
        const Rule *rule;
        VMFacts vmm = {};
        VM *vm;
        int r;

        r = process_get_uid(c->pid, &request.uid);
        if (r < 0)
                return r;
        (void) decide_read_vmm(c->pid, &vmm);
        r = choose_name(m, &vmm, c->pid, name, sizeof(name));
        if (r < 0)
                return r;
        /* Rules are about the guest's own name; ours may have a number added. */
        request.name = vmm.name[0] ? vmm.name : NULL;
        options.name = vmm.name;
        r = decide_prepare(m, &request, &facts, &rule);
        if (r < 0)
                return r;
        if (!rule || !rule->adopt) {
                log_debug("Process %i has a VM of %s, and no rule adopts it", (int) c->pid,
                          format_bytes(slots->bytes));
                return 0;
        }
        snprintf(rule_name, sizeof(rule_name), "%s", rule->name);

        r = vm_attach(m, NULL, request.uid, name, TAKE_FD(vm_fd), c->pid, TAKE_FD(c->pidfd), &options, &vm,
                      &error);
        if (r < 0)
                log_message(MESSAGE_NOT_ADOPTED,
                            FIELDS(FIELD_TEXT("TDP_VM", name), FIELD_NUMBER("TDP_PID", (uint64_t) c->pid),
                                   FIELD_TEXT("TDP_RULE", rule_name)),
                            "VM %s of process %i: rule \"%s\" adopts it, and it cannot be: %s", name,
                            (int) c->pid, rule_name, error.message ?: strerror(-r));
        else
                log_message(MESSAGE_VM_ADOPTED,
                            FIELDS(FIELD_VM(vm), FIELD_BYTES(vm->bytes),
                                   FIELD_NUMBER("TDP_PID", (uint64_t) c->pid),
                                   FIELD_TEXT("TDP_RULE", rule_name)),
                            "VM %s of user %u: adopted from process %i by rule \"%s\"", vm->name, vm->uid,
                            (int) c->pid, rule_name);
        return 0;
}

/* > 0: look again later. */
static int look(Candidate *c) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(slots_done) Slots slots = {};
        Manager *m = c->adopt->manager;
        _cleanup_close_ int vm_fd = -1;
        int r;

        if (!process_is_alive(c->pidfd) || vm_find_by_pid(m, c->pid))
                return 0;
        r = has_our_memory(m, c->pid);
        if (r < 0)
                log_debug("The files of process %i cannot be seen, and it is not adopted: %s", (int) c->pid,
                          strerror(-r));
        if (r != 0)
                return 0;
        r = discover_vm_fd(c->pid, c->pidfd, &vm_fd, &error);
        if (r < 0) {
                log_debug("Process %i is not adopted: %s", (int) c->pid, error.message ?: strerror(-r));
                return 0;
        }
        r = look_at_slots(c, vm_fd, &slots);
        if (r == -ENODATA)
                return 1;
        if (r < 0) {
                /* Somebody else has it, or KVM must not map it: neither is ours to change. */
                log_debug("Process %i is not adopted: %s", (int) c->pid, strerror(-r));
                return 0;
        }
        r = attach(c, TAKE_FD(vm_fd), &slots);
        if (r < 0)
                log_warning_errno(r, "The VM of process %i cannot be looked at, and is not adopted",
                                  (int) c->pid);
        return 0;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        Candidate *c = userdata;

        if (look(c) == 0) {
                candidate_free(c);
                return 0;
        }
        if (++c->tries >= TRIES_MAX) {
                log_warning("Process %i has made a VM, and its memory (%s now) does not come to rest: tdpctl "
                            "attach takes it",
                            (int) c->pid, format_bytes(c->bytes));
                candidate_free(c);
                return 0;
        }
        c->delay_usec = MIN_OF(c->delay_usec + c->delay_usec / 2, LAST_USEC);
        (void) sd_event_source_set_time_relative(s, c->delay_usec);
        return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

/* The announcement has the thread that made the VM. */
static int find_process(pid_t tid, pid_t *ret_pid, uid_t *ret_uid, int *ret_pidfd) {
        pid_t pid;
        int r;

        r = process_get_tgid(tid, &pid);
        if (r < 0)
                return r;
        r = process_open(pid, ret_pidfd);
        if (r < 0)
                return r;
        r = process_get_uid(pid, ret_uid);
        if (r < 0)
                return r;
        *ret_pid = pid;
        return 0;
}

/* false: it is looked at already, or too many others are.  The log is told once of these, and not for each.
 */
static bool has_room(Adopt *a, pid_t pid, uid_t uid, bool *ret_told) {
        unsigned n = 0;
        bool told = false;
        Candidate *c;

        DL_FOREACH (a->candidates, c) {
                if (c->pid == pid)
                        return false;
                if (c->uid == uid) {
                        n++;
                        told = told || c->told;
                }
        }
        if (n >= CANDIDATES_USER_MAX) {
                if (!told)
                        log_warning("Process %i of user %u has made a VM, and %u others of that user are "
                                    "looked at already: until they have memory or are gone, more are not "
                                    "adopted, tdpctl attach takes them",
                                    (int) pid, uid, n);
                DL_FOREACH (a->candidates, c)
                        c->told = c->told || c->uid == uid;
                return false;
        }
        if (a->n >= CANDIDATES_MAX) {
                if (!a->told)
                        log_warning("Process %i has made a VM, and %u others are looked at already: until "
                                    "they have memory or are gone, more are not adopted, tdpctl attach "
                                    "takes them",
                                    (int) pid, a->n);
                a->told = true;
                return false;
        }
        *ret_told = told;
        return true;
}

static void on_uevent(const KVMUevent *e, void *userdata) {
        Adopt *a = userdata;
        _cleanup_close_ int pidfd = -1;
        Candidate *c;
        bool told;
        pid_t pid;
        uid_t uid;

        if (!e->create || find_process(e->tid, &pid, &uid, &pidfd) < 0)
                return;
        if (pid == getpid()) /* a scratch VM of our own */
                return;
        if (!has_room(a, pid, uid, &told))
                return;

        c = calloc(1, sizeof(*c));
        if (!c)
                return;
        *c = (Candidate){
                .adopt = a,
                .pid = pid,
                .uid = uid,
                .told = told,
                .pidfd = TAKE_FD(pidfd),
                .delay_usec = FIRST_USEC,
        };
        DL_APPEND(a->candidates, c);
        a->n++;
        if (sd_event_add_time_relative(a->manager->event, &c->timer, CLOCK_MONOTONIC, FIRST_USEC, 0,
                                       on_timer, c) < 0)
                candidate_free(c);
}

Adopt *adopt_free(Adopt *a) {
        Candidate *c, *tmp;

        if (!a)
                return NULL;
        DL_FOREACH_SAFE(a->candidates, c, tmp)
        candidate_free(c);
        kvm_monitor_free(a->monitor);
        free(a);
        return NULL;
}

void adopt_update(Manager *m) {
        Adopt *a;
        int r;

        if (!rules_adopt(&m->config.rules)) {
                m->adopt = adopt_free(m->adopt);
                return;
        }
        if (m->adopt)
                return;
        a = calloc(1, sizeof(*a));
        if (!a) {
                log_oom();
                return;
        }
        a->manager = m;
        r = kvm_monitor_new(m->event, on_uevent, a, &a->monitor);
        if (r < 0) {
                log_error_errno(r,
                                "KVM's announcements cannot be heard, so no VM is adopted: the unit needs "
                                "AF_NETLINK in RestrictAddressFamilies=");
                adopt_free(a);
                return;
        }
        m->adopt = a;
        log_info("Rules of the configuration adopt VMs: listening for KVM's announcements");
}
