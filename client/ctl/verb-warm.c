/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* warm: the slabs that tdpd keeps ready. */

#include <string.h>

#include "daemon.h"
#include "json.h"
#include "log.h"
#include "size.h"
#include "table.h"
#include "verbs.h"

DEFINE_CLEANUP_FUNC(struct table *, table_free);

/* As the daemon's contract has them. */
enum field {
        WARM_FLAVOUR,
        WARM_BYTES,
        WARM_PAGE_SIZE,
        WARM_NODE,
        WARM_WANTED,
        WARM_READY,
        WARM_FILLING,
        WARM_HELD,
        WARM_WHY,
};

static int add_flavour(struct table *t, const struct tdp_value *w) {
        const char *held = tdp_value_get_string(tdp_value_at(w, WARM_HELD));
        const char *why = tdp_value_get_string(tdp_value_at(w, WARM_WHY));
        uint64_t n_bytes = tdp_value_get_uint(tdp_value_at(w, WARM_FILLING));
        char ready[48], filling[SIZE_TEXT_MAX];

        (void) snprintf(ready, sizeof(ready), "%llu of %llu",
                        (unsigned long long) tdp_value_get_uint(tdp_value_at(w, WARM_READY)),
                        (unsigned long long) tdp_value_get_uint(tdp_value_at(w, WARM_WANTED)));
        return table_add(t, (const char *const[]){
                                            tdp_value_get_string(tdp_value_at(w, WARM_FLAVOUR)),
                                            ready,
                                            n_bytes > 0 ? size_format(n_bytes, filling) : NULL,
                                            held && held[0] ? held : NULL,
                                            why && why[0] ? why : NULL,
                            });
}

int verb_warm(const struct args *args) {
        static const char *const headers[] = { "FLAVOUR", "READY", "FILLING", "HELD BACK", "WHY" };
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        _cleanup_(tdp_value_freep) struct tdp_value *manager = NULL;
        _cleanup_(table_freep) struct table *t = NULL;
        const struct tdp_value *list, *w;
        int r;

        r = daemon_connect(args, &ctx);
        if (r < 0)
                return EXIT_NO_DAEMON;
        r = tdp_get_manager(ctx, &manager);
        if (r < 0)
                return daemon_failed(ctx, r);
        list = tdp_value_find(manager, "Warm");
        if (!list)
                return log_error(EXIT_FAILED, "This tdpd is older and has no warm slabs. Update it.");

        if (args->json != JSON_OFF)
                return json_print(args, json_from_value(list)) < 0 ? EXIT_FAILED : EXIT_OK;

        r = table_new(&t, headers, ELEMENTSOF(headers));
        if (r >= 0) {
                table_align_right(t, 1);
                table_align_right(t, 2);
        }
        for (w = tdp_value_get_first(list); r >= 0 && w; w = tdp_value_get_next(w))
                r = add_flavour(t, w);
        if (r < 0) {
                (void) log_error(r, "Out of memory.");
                return EXIT_FAILED;
        }
        table_print(t, stdout, !args->no_legend, "flavour");
        return EXIT_OK;
}
