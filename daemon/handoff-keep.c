/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "handoff-keep.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <utlist.h>

#include "bus-handoff.h"
#include "clock.h"
#include "handoff-work.h"
#include "log.h"
#include "quarantine.h"
#include "state.h"

/* So long an old offer is known to be one: as long as an offer can last. */
#define ENDED_USEC (UINT64_C(86400) * 1000000)
#define ENDED_MAX  1024U

static const char *parent(Manager *m, HandoffRole side) {
        if (side == HANDOFF_DESTINATION)
                return m->options.data_dir;
        return m->keeper.state ? state_path(m->keeper.state) : NULL;
}

static const char *folder(Manager *m, HandoffRole side) {
        static char path[512];

        snprintf(path, sizeof(path), "%.480s/handoff", parent(m, side));
        return path;
}

/* Opened when there is something in it, or to be put there. */
static int open_folder(Manager *m, HandoffRole side, bool make, State **ret) {
        State **s = side == HANDOFF_SOURCE ? &m->handoffs->source : &m->handoffs->destination;
        const char *path = folder(m, side);
        int r;

        if (!*s) {
                if (!make && access(path, F_OK) < 0)
                        return -errno;
                if (make && mkdir(parent(m, side), 0755) < 0 && errno != EEXIST && errno != EROFS)
                        return -errno;
                r = state_open_as(path, ".handoff", side == HANDOFF_DESTINATION, s);
                if (r < 0)
                        return r;
        }
        *ret = *s;
        return 0;
}

const char *handoff_keep_path(const Handoff *h) {
        return folder(h->manager, h->r.side);
}

int handoff_keep(Handoff *h, const HandoffRecord *r) {
        _cleanup_free_ char *text = NULL;
        HandoffRecord copy = *r;
        size_t size;
        State *s;
        int k;

        if (!parent(h->manager, h->r.side))
                return 0;
        /* What was before it is as good: the source asks again, and the VM waits for each write. */
        if (r->state == HANDOFF_D_VERIFYING)
                return 0;
        strcpy(copy.boot_id, h->manager->keeper.boot_id);
        k = open_folder(h->manager, h->r.side, true, &s);
        if (k >= 0)
                k = handoff_record_format(&copy, &text, &size);
        if (k >= 0)
                k = state_write(s, h->id, text, size);
        return k;
}

int handoff_unkeep(Handoff *h) {
        State *s;
        int r;

        if (!parent(h->manager, h->r.side))
                return 0;
        r = open_folder(h->manager, h->r.side, false, &s);
        if (r == -ENOENT)
                return 0;
        return r < 0 ? r : state_remove(s, h->id);
}

/* Nobody is answered in the name of what cannot be read. */
static int leave_alone(Manager *m, HandoffRole side, const StateEntry *e, const char *word,
                       const char *text) {
        char key[HANDOFF_KEY_MAX] = "", path[800];

        if (e->name && strlen(e->name) == 32)
                snprintf(key, sizeof(key), "%s_%s", e->name, handoff_role_to_string(side));
        snprintf(path, sizeof(path), "%s/%.255s", folder(m, side), e->file);
        return quarantine_add(m, path, *key ? key : NULL, word, text);
}

static int take_entry(Manager *m, HandoffRole side, State *s, const StateEntry *e) {
        RecordFault fault = { .word = "unknown", .text = "it is no record of a handoff" };
        HandoffRecord record;
        HandoffStep step;
        Handoff *h;
        int r = -EBADMSG;

        /* It was not written to its end, and nobody has acted on it. */
        if (e->prepared)
                return state_unlink(s, e->file) < 0 ? log_warning("%s cannot be removed", e->file), 0 : 0;
        if (e->error < 0)
                snprintf(fault.text, sizeof(fault.text), "it cannot be read: %s", strerror(-e->error));
        else if (e->name)
                r = handoff_record_parse(e->text, e->size, &record, &fault);
        if (r == -EBADMSG)
                return leave_alone(m, side, e, fault.word, fault.text);
        if (r < 0)
                return r;
        if (!streq(record.boot_id, m->keeper.boot_id))
                record.deadline_usec = 0; /* of another clock; and its VM is gone */
        r = handoff_add(m, &record, &h);
        if (r < 0)
                return r;
        if (record.side != side || !streq(h->id, e->name)) {
                handoff_forget(h);
                return leave_alone(m, side, e, "bad-value", "it is the record of another handoff");
        }
        h->told = true; /* whoever sees our name sees it */
        r = handoff_event(h, HANDOFF_RESTART, NULL, &step, NULL);
        handoff_look_soon(h);
        return r;
}

static int take_folder(Manager *m, HandoffRole side) {
        StateEntry *entries = NULL;
        size_t n = 0;
        State *s;
        int r;

        if (!parent(m, side))
                return 0;
        r = open_folder(m, side, false, &s);
        if (r == -ENOENT)
                return 0;
        if (r >= 0)
                r = state_list(s, HANDOFF_RECORD_SIZE_MAX, &entries, &n);
        for (size_t i = 0; i < n && r >= 0; i++)
                r = take_entry(m, side, s, &entries[i]);
        state_entries_free(entries, n);
        return r < 0 ? log_error_errno(r, "The handoffs in %s cannot be taken over", folder(m, side)) : 0;
}

int handoff_take_over(Manager *m) {
        int r;

        r = take_folder(m, HANDOFF_SOURCE);
        if (r >= 0)
                r = take_folder(m, HANDOFF_DESTINATION);
        if (r >= 0)
                handoff_forget_old(m);
        return r;
}

void handoff_keep_done(Manager *m) {
        state_free(m->handoffs->source);
        state_free(m->handoffs->destination);
}

/* The one that is missed least: what has come to nothing, and then the oldest. */
static Handoff *find_oldest(Manager *m, size_t *ret_n) {
        Handoff *h, *oldest = NULL;

        *ret_n = 0;
        DL_FOREACH (m->handoffs->list, h) {
                bool off, oldest_off;

                if (!handoff_state_is_final(h->r.state))
                        continue;
                (*ret_n)++;
                off = h->r.abort.reason != 0;
                oldest_off = oldest && oldest->r.abort.reason != 0;
                if (!oldest || (off && !oldest_off) ||
                    (off == oldest_off && h->r.finished_usec < oldest->r.finished_usec))
                        oldest = h;
        }
        return oldest;
}

void handoff_forget_old(Manager *m) {
        uint64_t now = clock_usec_of(CLOCK_REALTIME);
        Handoff *h, *tmp;
        size_t n;

        DL_FOREACH_SAFE(m->handoffs->list, h, tmp)
        if (handoff_state_is_final(h->r.state) && h->r.finished_usec + ENDED_USEC < now)
                handoff_drop(h);
        while ((h = find_oldest(m, &n)) && n > ENDED_MAX)
                handoff_drop(h);
}
