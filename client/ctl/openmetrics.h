/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * OpenMetrics text. Only what the older Prometheus text format can read as well (node_exporter's textfile
 * collector does): gauges and counters.
 *
 * A family is its header and then all of its samples; openmetrics_end() must come last.
 */

enum metric_type {
        METRIC_GAUGE,
        METRIC_COUNTER,
};

struct metric {
        const char *name; /* without a counter's "_total"; ends in the unit, if there is one */
        enum metric_type type;
        const char *unit; /* or NULL */
        const char *help;
};

struct label {
        const char *name;
        const char *value; /* anything that is UTF-8 */
};

const char *metric_type_to_string(enum metric_type type);

/* "", or "_total" for counters: what a sample has behind its family's name. */
const char *metric_suffix(const struct metric *metric);

void openmetrics_family(FILE *f, const struct metric *metric);
void openmetrics_sample(FILE *f, const struct metric *metric, const struct label *labels, size_t n_labels,
                        uint64_t value);
void openmetrics_end(FILE *f);

/* Longer label values are cut, and end in "~" and a hash of the whole, so that they stay different. */
#define LABEL_VALUE_MAX 128U
