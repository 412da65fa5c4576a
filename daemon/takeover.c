/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "takeover.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/stat.h>

#include "drain-keep.h"
#include "draining.h"
#include "format.h"
#include "log-message.h"
#include "quarantine.h"
#include "record.h"
#include "vm-restore.h"
#include "vm.h"

static const char *file_of(Manager *m, const char *file) {
        static char path[512];

        snprintf(path, sizeof(path), "%s/%.255s", state_path(m->keeper.state), file);
        return path;
}

static int unlink_file(Manager *m, const StateEntry *e) {
        int r = state_unlink(m->keeper.state, e->file);

        if (r < 0)
                log_warning_errno(r, "%s cannot be removed, the next tdpd will try", file_of(m, e->file));
        return 0;
}

static int take_committed(Manager *m, const StateEntry *e) {
        RecordFault fault = { .word = "unreadable" };
        Record record;
        int r;

        if (!e->name)
                return quarantine_add(m, file_of(m, e->file), NULL, "unknown", "it is no record of a VM");
        if (e->error < 0) {
                snprintf(fault.text, sizeof(fault.text), "it cannot be read: %s", strerror(-e->error));
                return quarantine_add(m, file_of(m, e->file), e->name, fault.word, fault.text);
        }
        r = record_parse(e->text, e->size, &record, &fault);
        if (r == -EBADMSG)
                return quarantine_add(m, file_of(m, e->file), e->name, fault.word, fault.text);
        if (r < 0)
                return r;

        if (!streq(record.boot_id, m->keeper.boot_id)) {
                log_info("VM %s: its record is from before the last boot, and nothing of it can be left",
                         record.name);
                r = unlink_file(m, e);
        } else if (!streq(record.name, e->name))
                r = quarantine_add(m, file_of(m, e->file), e->name, "bad-value",
                                   "it is the record of a VM of another name");
        else
                r = vm_restore(m, &record);
        record_done(&record);
        return r;
}

static int take_prepared(Manager *m, const StateEntry *e) {
        RecordFault fault;
        Record record;
        int r;

        /* The record that it was to replace may know more of these descriptors than we do. */
        if (quarantine_find(m, e->name))
                return 0;
        if (e->error < 0)
                return quarantine_add(m, file_of(m, e->file), e->name, "unreadable", strerror(-e->error));
        r = record_parse(e->text, e->size, &record, &fault);
        if (r == -EBADMSG && streq(fault.word, "newer"))
                return quarantine_add(m, file_of(m, e->file), e->name, fault.word, fault.text);
        if (r < 0 && r != -EBADMSG)
                return r;
        if (r >= 0) {
                log_info("VM %s: what tdpd was doing with it when it ended is undone", record.name);
                /* Nobody has been told of it. */
                vm_restore_undo(m, record.lease);
                record_done(&record);
        }
        /* Else it was still being written, and nothing had been handed over. */
        return unlink_file(m, e);
}

/* The memory's name, if it is one: it has the VM's in it. */
static void describe(int fd, char *buf, size_t size) {
        char link[40], target[128];
        struct stat st;
        ssize_t n;

        snprintf(link, sizeof(link), "/proc/self/fd/%i", fd);
        n = readlink(link, target, sizeof(target) - 1);
        target[n < 0 ? 0 : n] = '\0';
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
                snprintf(buf, size, "there is no record of it; it is %s of %s", target,
                         format_bytes((uint64_t) st.st_size));
        else
                snprintf(buf, size, "there is no record of it; it is %s", target);
}

static int quarantine_descriptors(Manager *m) {
        char what[96], text[200];
        StoredFd *fds;
        size_t n;
        int r = 0;

        fds = fdstore_received(m->keeper.store, &n);
        for (size_t i = 0; i < n && r >= 0; i++)
                if (fds[i].fd >= 0) {
                        snprintf(what, sizeof(what), "descriptor %.60s", fds[i].text);
                        describe(fds[i].fd, text, sizeof(text));
                        r = quarantine_add(m, what, NULL, fds[i].known ? "leaked" : "unknown", text);
                }
        return r;
}

static int take_entries(Manager *m, const StateEntry *entries, size_t n) {
        int r = 0;

        for (size_t i = 0; i < n && r >= 0; i++)
                r = entries[i].prepared ? take_prepared(m, &entries[i]) : take_committed(m, &entries[i]);
        if (r >= 0)
                vm_restore_undo_extra(m);
        return r;
}

int takeover(Manager *m) {
        AccountLimits limits = m->accounts.limits;
        StateEntry *entries = NULL;
        size_t n = 0;
        int r;

        r = drain_keep_start(m);
        if (r < 0)
                return r;
        if (m->keeper.state) {
                r = state_list(m->keeper.state, RECORD_SIZE_MAX, &entries, &n);
                if (r < 0)
                        return log_error_errno(r, "The records in %s cannot be listed",
                                               state_path(m->keeper.state));
                /* They were granted, whatever the limits are now. */
                memset(&m->accounts.limits, 0xff, sizeof(m->accounts.limits));
                r = drain_take_over(m);
                if (r >= 0)
                        r = take_entries(m, entries, n);
                if (r >= 0)
                        vm_restore_catch_up(m, &limits);
                m->accounts.limits = limits;
                m->last_job_id = MAX_OF(m->last_job_id, m->keeper.last_job);
                state_entries_free(entries, n);
                /* The records' texts lie below what came of them, and would stay ours for good. */
                (void) malloc_trim(0);
                draining_look(m);
                if (r < 0)
                        return log_error_errno(r, "The VMs of the tdpd before cannot be taken over");
        }
        r = quarantine_descriptors(m);
        if (r < 0)
                return r;
        if (HASH_COUNT(m->vms) > 0)
                log_message(MESSAGE_TAKEN_OVER, FIELDS(FIELD_NUMBER("TDP_VMS", HASH_COUNT(m->vms))),
                            "Taken over: %u VMs, %zu descriptors", HASH_COUNT(m->vms),
                            fdstore_count(m->keeper.store));
        return 0;
}
