/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "quarantine.h"

#include <errno.h>
#include <stdio.h>
#include <utlist.h>

#include "log-message.h"

struct Quarantine {
        char what[96];
        char name[80]; /* or empty */
        char word[24];
        char text[200];
        Quarantine *prev, *next;
};

static void copy_to(char *to, size_t size, const char *from) {
        snprintf(to, size, "%s", from ?: "");
        /* It comes from a file's or descriptor's name, and goes into the log and over the bus. */
        for (; *to != '\0'; to++)
                if ((unsigned char) *to < 32 || (unsigned char) *to > 126)
                        *to = '?';
}

int quarantine_add(Manager *m, const char *what, const char *name, const char *word, const char *text) {
        Quarantine *q = calloc(1, sizeof(*q));

        if (!q)
                return log_oom();
        copy_to(q->what, sizeof(q->what), what);
        copy_to(q->name, sizeof(q->name), name);
        copy_to(q->word, sizeof(q->word), word);
        copy_to(q->text, sizeof(q->text), text);
        DL_APPEND(m->quarantine, q);
        log_message(MESSAGE_LEFT_ALONE,
                    FIELDS(FIELD_TEXT("TDP_WHAT", q->what), FIELD_TEXT("TDP_REASON", q->word)),
                    "%s is left alone (%s): %s", q->what, q->word, q->text);
        return 0;
}

void quarantine_done(Manager *m) {
        Quarantine *q, *tmp;

        DL_FOREACH_SAFE(m->quarantine, q, tmp)
        free(q);
        m->quarantine = NULL;
}

const Quarantine *quarantine_find(Manager *m, const char *name) {
        Quarantine *q;

        DL_FOREACH (m->quarantine, q)
                if (q->name[0] != '\0' && streq(q->name, name))
                        return q;
        return NULL;
}

const char *quarantine_text(const Quarantine *q) {
        return q->text;
}

const char *quarantine_what(const Quarantine *q) {
        return q->what;
}

int quarantine_append(Manager *m, sd_bus_message *reply) {
        Quarantine *q;
        int r;

        r = sd_bus_message_open_container(reply, 'a', "(sss)");
        DL_FOREACH (m->quarantine, q) {
                if (r >= 0)
                        r = sd_bus_message_append(reply, "(sss)", q->what, q->word, q->text);
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}
