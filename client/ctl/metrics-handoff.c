/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* metrics: handoffs, how many there are and what they came to. */

#include <stdbool.h>
#include <string.h>

#include "cleanup.h"
#include "metrics.h"

#define ROLES       2
#define STATES_MAX  10
#define REASONS_MAX 15

static const char *const roles[ROLES] = { "source", "destination" };

/* Of the contract. What a later daemon may add is told as "other", as in all label values. */
static const char *const states[ROLES][STATES_MAX + 1] = {
        { "offered", "granted", "started", "committing", "serving", "releasing", "released", "undoing",
          "kept", "other" },
        { "preparing", "ready", "receiving", "verifying", "taken", "owner", "done", "freeing", "gone",
          "other" },
};
static const char *const reasons[REASONS_MAX] = {
        "canceled", "deadline", "no-pages", "not-configured", "unsupported", "name-taken", "stale",
        "unknown",  "vmm-gone", "verify",   "limit",          "version",     "failed",     "other",
};

static const struct metric handoffs_metric = {
        .name = "tdpd_handoffs",
        .type = METRIC_GAUGE,
        .help = "Handoffs that tdpd knows of, by role and state; those that have ended are kept for a while.",
};
static const struct metric committed_metric = {
        .name = "tdpd_handoffs_committed",
        .type = METRIC_COUNTER,
        .help = "Handoffs by which a VM has changed its host, since tdpd was started.",
};
static const struct metric aborted_metric = {
        .name = "tdpd_handoffs_aborted",
        .type = METRIC_COUNTER,
        .help = "Handoffs that were off before, by reason, since tdpd was started.",
};

/* The place of a word, or of "other", which is the last one. */
static size_t place(const char *const *words, const char *word) {
        size_t i = 0;

        while (words[i + 1] && strcmp(words[i], word) != 0)
                i++;
        return i;
}

static void emit_states(const struct sink *s, const struct tdp_handoff *handoffs) {
        uint64_t n[ROLES][STATES_MAX] = {};
        const struct tdp_handoff *h;

        tdp_handoff_foreach(handoffs, h) {
                size_t role = strcmp(tdp_handoff_get_role(h) ?: "", roles[0]) == 0 ? 0 : 1;

                n[role][place(states[role], tdp_handoff_get_state(h) ?: "")]++;
        }
        metrics_begin(s, &handoffs_metric);
        for (size_t role = 0; role < ROLES; role++)
                for (size_t i = 0; states[role][i]; i++)
                        metrics_emit(s, &handoffs_metric,
                                     (struct label[]){ { "role", roles[role] },
                                                       { "state", states[role][i] } },
                                     2, n[role][i]);
}

void metrics_handoffs(const struct sink *s, const struct tdp_handoff *handoffs,
                      const struct tdp_value *outcomes) {
        uint64_t committed[ROLES] = {}, aborted[ROLES][REASONS_MAX] = {};
        const struct tdp_value *v;

        emit_states(s, handoffs);
        if (!outcomes)
                return;
        tdp_value_foreach (outcomes, v) {
                const char *role = tdp_value_get_string(tdp_value_at(v, 0)) ?: "";
                const char *word = tdp_value_get_string(tdp_value_at(v, 1)) ?: "";
                uint64_t count = tdp_value_get_uint(tdp_value_at(v, 2));
                size_t k = strcmp(role, roles[0]) == 0 ? 0 : 1;

                if (strcmp(word, "committed") == 0)
                        committed[k] += count;
                else
                        aborted[k][place(reasons, word)] += count;
        }
        metrics_begin(s, &committed_metric);
        for (size_t role = 0; role < ROLES; role++)
                metrics_emit(s, &committed_metric, &(struct label){ "role", roles[role] }, 1,
                             committed[role]);
        metrics_begin(s, &aborted_metric);
        for (size_t role = 0; role < ROLES; role++)
                for (size_t i = 0; reasons[i]; i++)
                        metrics_emit(s, &aborted_metric,
                                     (struct label[]){ { "role", roles[role] }, { "reason", reasons[i] } },
                                     2, aborted[role][i]);
}
