/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-c/json.h>
#include <stdio.h>

#include "openmetrics.h"
#include "tdp/tdp.h"

/* Where samples go: text, or JSON. */
struct sink {
        FILE *f;
        json_object *array;
};

/* A family begins, then its samples follow. */
void metrics_begin(const struct sink *s, const struct metric *m);
void metrics_emit(const struct sink *s, const struct metric *m, const struct label *labels, size_t n_labels,
                  uint64_t value);

/* metrics-handoff.c: outcomes is the manager's list (role, outcome, count); NULL: of an older tdpd. */
void metrics_handoffs(const struct sink *s, const struct tdp_handoff *handoffs,
                      const struct tdp_value *outcomes);
