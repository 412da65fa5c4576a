/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* calibrate: what mapping costs on this host. */

#include <time.h>

#include "daemon.h"
#include "json.h"
#include "log.h"
#include "signals.h"
#include "size.h"
#include "table.h"
#include "verbs.h"

DEFINE_CLEANUP_FUNC(struct table *, table_free);

/* "1834 measured", or "2000 default". */
static const char *cost_text(const struct tdp_value *ns, const struct tdp_value *measured,
                             char buf[static 48]) {
        (void) snprintf(buf, 48, "%.0f %s", tdp_value_get_double(ns),
                        tdp_value_get_bool(measured) ? "measured" : "default");
        return buf;
}

static int print_leaves_table(const struct args *args, const struct tdp_value *leaves) {
        static const char *const headers[] = { "LEAF", "FAULT NS", "BUILD NS", "NOT MEASURED, AS" };
        _cleanup_(table_freep) struct table *t = NULL;
        const struct tdp_value *l;
        int r;

        r = table_new(&t, headers, ELEMENTSOF(headers));
        if (r < 0)
                return r;
        tdp_value_foreach (leaves, l) {
                char size[SIZE_TEXT_MAX], fault[48], build[48];
                const char *why = tdp_value_get_string(tdp_value_at(l, 5));

                r = table_add(t, (const char *const[]){
                                                 size_format(tdp_value_get_uint(tdp_value_at(l, 0)), size),
                                                 cost_text(tdp_value_at(l, 1), tdp_value_at(l, 2), fault),
                                                 cost_text(tdp_value_at(l, 3), tdp_value_at(l, 4), build),
                                                 why && why[0] ? why : NULL });
                if (r < 0)
                        return r;
        }
        table_print(t, stdout, !args->no_legend, "leaf size");
        return 0;
}

static int print_rates_table(const struct args *args, const struct tdp_value *rates) {
        static const char *const headers[] = { "NODE", "PAGES", "POPULATED" };
        _cleanup_(table_freep) struct table *t = NULL;
        const struct tdp_value *v;
        int r;

        r = table_new(&t, headers, ELEMENTSOF(headers));
        if (r < 0)
                return r;
        tdp_value_foreach (rates, v) {
                char node[24], size[SIZE_TEXT_MAX], rate[SIZE_TEXT_MAX], text[SIZE_TEXT_MAX + 8];

                (void) snprintf(node, sizeof(node), "%llu",
                                (unsigned long long) tdp_value_get_uint(tdp_value_at(v, 0)));
                (void) snprintf(text, sizeof(text), "%s/s",
                                size_format(tdp_value_get_uint(tdp_value_at(v, 2)), rate));
                r = table_add(t, (const char *const[]){
                                                 node,
                                                 size_format(tdp_value_get_uint(tdp_value_at(v, 1)), size),
                                                 text });
                if (r < 0)
                        return r;
        }
        table_print(t, stdout, !args->no_legend, "pool");
        return 0;
}

static int show(const struct args *args, struct tdp_ctx *ctx) {
        _cleanup_(tdp_value_freep) struct tdp_value *manager = NULL;
        const struct tdp_value *c;
        int r;

        r = tdp_get_manager(ctx, &manager);
        if (r < 0)
                return daemon_failed(ctx, r);
        c = tdp_value_find(manager, "Calibration");
        if (args->json != JSON_OFF)
                return json_print(args, c ? json_from_value(c) : json_object_new_object()) < 0 ? EXIT_FAILED
                                                                                               : EXIT_OK;
        if (args->quiet)
                return EXIT_OK;

        r = print_leaves_table(args, tdp_value_find(c, "leaves"));
        if (r >= 0 && !args->no_legend)
                putchar('\n');
        if (r >= 0)
                r = print_rates_table(args, tdp_value_find(c, "populate"));
        if (r < 0) {
                (void) log_error(r, "Out of memory.");
                return EXIT_FAILED;
        }
        return EXIT_OK;
}

int verb_calibrate(const struct args *args) {
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;
        int r;

        if (daemon_connect(args, &ctx) < 0)
                return EXIT_NO_DAEMON;

        signals_block();
        r = tdp_calibrate(ctx, NULL, &job);
        if (r < 0)
                return daemon_failed(ctx, r);

        r = job_wait(args, ctx, job, NULL);
        return r >= 0 ? r : show(args, ctx);
}
