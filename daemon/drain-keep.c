/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "drain-keep.h"

#include <errno.h>
#include <inttypes.h>

#include "drain-record.h"
#include "draining.h"
#include "log.h"
#include "quarantine.h"

int drain_keep_start(Manager *m) {
        FdStore *store = m->keeper.store;
        StoredFd *came;
        int fd = -1, r;

        while ((came = fdstore_find(store, FD_DRAIN_NAME)) && fd < 0)
                if (drain_watch_is_one(came->fd))
                        fd = TAKE_FD(came->fd);
                else
                        came->known = false; /* that is something else, and left alone */
        r = drain_watch_new(m->event, fd, &m->drain_watch);
        if (r < 0)
                return log_error_errno(r, "Memory that drains cannot be watched");
        if (drain_watch_fd(m->drain_watch) < 0)
                log_warning("The kernel has no inotify instance for tdpd (fs.inotify.max_user_instances), so "
                            "who holds memory of released VMs is looked for again and again");
        else if (fd < 0 && m->keeper.state) {
                r = fdstore_push(store, FD_DRAIN_NAME, drain_watch_fd(m->drain_watch));
                if (r < 0)
                        log_warning_errno(r, "The service manager does not keep what watches memory that "
                                             "drains, so the next tdpd has to look for who has it");
        }
        return 0;
}

/* Opened when there is something in it, or to be put there. */
static int open_folder(Manager *m, bool make, State **ret) {
        Keeper *k = &m->keeper;
        char path[512];
        int r;

        snprintf(path, sizeof(path), "%.480s/draining", state_path(k->state));
        if (!k->draining && !make && access(path, F_OK) < 0)
                return -errno;
        r = k->draining ? 0 : state_open_as(path, ".drain", false, &k->draining);
        *ret = k->draining;
        return r;
}

void drain_keep_done(Manager *m) {
        m->keeper.draining = state_free(m->keeper.draining);
        m->drain_watch = drain_watch_free(m->drain_watch);
}

static void file_of(uint64_t lease, char ret[static 17]) {
        snprintf(ret, 17, "%016" PRIx64, lease);
}

int drain_keep(Manager *m, const char *name, uid_t uid, uint64_t lease, const Drain *d) {
        DrainRecord record = { .lease = lease, .uid = uid, .page_size = drain_page_size(d) };
        _cleanup_free_ char *text = NULL;
        char file[17];
        size_t size;
        State *s;
        int r;

        if (!m->keeper.state || lease == 0)
                return 0;
        strcpy(record.boot_id, m->keeper.boot_id);
        strcpy(record.name, name);
        record.files = (DrainFile *) drain_files(d, &record.n_files);
        file_of(lease, file);
        r = open_folder(m, true, &s);
        if (r >= 0)
                r = drain_record_format(&record, &text, &size);
        return r < 0 ? r : state_write(s, file, text, size);
}

void drain_unkeep(Manager *m, uint64_t lease) {
        char file[17];
        State *s;
        int r;

        if (!m->keeper.state || lease == 0)
                return;
        file_of(lease, file);
        r = open_folder(m, false, &s);
        if (r >= 0)
                r = state_remove(s, file);
        if (r < 0 && r != -ENOENT)
                log_warning_errno(
                                r,
                                "The record of what lease %s had cannot be removed; the next tdpd will do it",
                                file);
}

static int leave_alone(Manager *m, State *s, const StateEntry *e, const RecordFault *fault) {
        char path[800];

        snprintf(path, sizeof(path), "%s/%.255s", state_path(s), e->file);
        return quarantine_add(m, path, NULL, fault->word, fault->text);
}

static int take_entry(Manager *m, State *s, const StateEntry *e) {
        RecordFault fault = { .word = "unknown", .text = "it is no record of memory that drains" };
        DrainRecord record = {};
        char file[17];
        int r = -EBADMSG;

        /* It was not written to its end, and the VM had all its descriptors still. */
        if (e->prepared)
                return state_unlink(s, e->file) < 0 ? log_warning("%s cannot be removed", e->file), 0 : 0;
        if (e->error < 0)
                snprintf(fault.text, sizeof(fault.text), "it cannot be read: %s", strerror(-e->error));
        else if (e->name)
                r = drain_record_parse(e->text, e->size, &record, &fault);
        if (r == -EBADMSG)
                return leave_alone(m, s, e, &fault);
        if (r < 0)
                return r;
        file_of(record.lease, file);
        if (!streq(record.boot_id, m->keeper.boot_id))
                (void) state_unlink(s, e->file); /* nothing of it can be left */
        else if (!streq(file, e->name)) {
                fault = (RecordFault){ .word = "bad-value", .text = "it is the record of another lease" };
                r = leave_alone(m, s, e, &fault);
        } else
                r = draining_restore(m, &record);
        drain_record_done(&record);
        return r;
}

int drain_take_over(Manager *m) {
        StateEntry *entries = NULL;
        size_t n = 0;
        State *s;
        int r;

        if (!m->keeper.state)
                return 0;
        r = open_folder(m, false, &s);
        if (r >= 0)
                r = state_list(s, DRAIN_RECORD_SIZE_MAX, &entries, &n);
        for (size_t i = 0; i < n && r >= 0; i++)
                r = take_entry(m, s, &entries[i]);
        state_entries_free(entries, n);
        if (r == -ENOMEM)
                return log_oom();
        if (r < 0 && r != -ENOENT)
                log_warning_errno(r,
                                  "What drains of the tdpd before is not known: %s/draining cannot be read",
                                  state_path(m->keeper.state));
        return 0;
}
