/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* OpenMetrics text: headers, samples, escaping. */

#include <inttypes.h>
#include <string.h>

#include "cleanup.h"
#include "openmetrics.h"

static const char *const types[] = {
        [METRIC_GAUGE] = "gauge",
        [METRIC_COUNTER] = "counter",
};

const char *metric_type_to_string(enum metric_type type) {
        return types[type];
}

const char *metric_suffix(const struct metric *metric) {
        return metric->type == METRIC_COUNTER ? "_total" : "";
}

static void print_escaped(FILE *f, const char *text, size_t length) {
        for (size_t i = 0; i < length; i++)
                switch (text[i]) {
                case '\\':
                        fputs("\\\\", f);
                        break;
                case '"':
                        fputs("\\\"", f);
                        break;
                case '\n':
                        fputs("\\n", f);
                        break;
                default:
                        fputc(text[i], f);
                }
}

/* FNV-1a */
static uint32_t hash(const char *text) {
        uint32_t h = UINT32_C(2166136261);

        for (; *text; text++)
                h = (h ^ (unsigned char) *text) * UINT32_C(16777619);
        return h;
}

static void print_label_value(FILE *f, const char *value) {
        size_t length = strlen(value);

        if (length <= LABEL_VALUE_MAX) {
                print_escaped(f, value, length);
                return;
        }
        /* Not within a character: continuation bytes are 10xxxxxx. */
        length = LABEL_VALUE_MAX - strlen("~01234567");
        while (length > 0 && ((unsigned char) value[length] & 0xc0) == 0x80)
                length--;
        print_escaped(f, value, length);
        fprintf(f, "~%08" PRIx32, hash(value));
}

void openmetrics_family(FILE *f, const struct metric *metric) {
        fprintf(f, "# TYPE %s %s\n", metric->name, types[metric->type]);
        if (metric->unit)
                fprintf(f, "# UNIT %s %s\n", metric->name, metric->unit);
        fprintf(f, "# HELP %s ", metric->name);
        print_escaped(f, metric->help, strlen(metric->help));
        fputc('\n', f);
}

void openmetrics_sample(FILE *f, const struct metric *metric, const struct label *labels, size_t n_labels,
                        uint64_t value) {
        fprintf(f, "%s%s", metric->name, metric_suffix(metric));
        for (size_t i = 0; i < n_labels; i++) {
                fprintf(f, "%s%s=\"", i == 0 ? "{" : ",", labels[i].name);
                print_label_value(f, labels[i].value);
                fputc('"', f);
        }
        fprintf(f, "%s %" PRIu64 "\n", n_labels > 0 ? "}" : "", value);
}

void openmetrics_end(FILE *f) {
        fputs("# EOF\n", f);
}
