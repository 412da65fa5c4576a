/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What the verbs "handoff" and "migrate" share. */

#include <string.h>

#include "daemon.h"
#include "handoff.h"
#include "json.h"
#include "log.h"
#include "size.h"
#include "table.h"
#include "verbs.h"

DEFINE_CLEANUP_FUNC(struct table *, table_free);

#define PAGE_SIZES_MAX 8

static int page_sizes(const char *text, struct tdp_options *o) {
        uint64_t sizes[PAGE_SIZES_MAX];
        const char *p = text;
        size_t n = 0;

        for (;;) {
                _cleanup_free_ char *word = strndup(p, strcspn(p, ","));

                if (!word)
                        return -ENOMEM;
                if (n == PAGE_SIZES_MAX || size_parse(word, &sizes[n]) < 0 || sizes[n] == 0)
                        return log_error(-EINVAL,
                                         "--page-sizes=%s is no list of page sizes. Give up to %d, best "
                                         "first, like 1G,2M,4K.",
                                         text, PAGE_SIZES_MAX);
                n++;
                p += strlen(word);
                if (*p++ != ',')
                        return tdp_options_set_u64_list(o, "page-sizes", sizes, n);
        }
}

int offer_options(const struct args *args, struct tdp_options **ret) {
        _cleanup_(tdp_options_freep) struct tdp_options *o = NULL;
        int r;

        r = tdp_options_new(&o);
        if (r >= 0 && args_given(args, OPT_DEADLINE))
                r = tdp_options_set_u64(o, "deadline-usec", args->deadline * UINT64_C(1000000));
        if (r >= 0 && args->post_copy)
                r = tdp_options_set_bool(o, "post-copy", true);
        if (r >= 0 && args_given(args, OPT_PAGE_SIZES))
                r = page_sizes(args->page_sizes, o);
        if (r < 0)
                return r == -ENOMEM ? log_error(r, "Out of memory.") : r;

        *ret = TAKE_PTR(o);
        return 0;
}

int handoff_options(const struct args *args, struct tdp_options **ret) {
        _cleanup_(tdp_options_freep) struct tdp_options *o = NULL;
        int r;

        r = tdp_options_new(&o);
        if (r >= 0 && args_given(args, OPT_LOGGING))
                r = tdp_options_set_string(o, "logging", args->logging);
        if (r >= 0 && args_given(args, OPT_SPLIT_LEAF))
                r = tdp_options_set_u64(o, "split-leaf", args->split_leaf);
        if (r >= 0 && args->post_copy)
                r = tdp_options_set_bool(o, "post-copy", true);
        if (r >= 0 && args_given(args, OPT_BYTES_LEFT))
                r = tdp_options_set_u64(o, "bytes-left", args->bytes_left);
        if (r < 0)
                return log_error(r, "Out of memory.");

        *ret = TAKE_PTR(o);
        return 0;
}

int handoff_role_check(const struct args *args) {
        if (args->role && strcmp(args->role, "source") != 0 && strcmp(args->role, "destination") != 0)
                return log_error(-EINVAL, "--role=%s is not known. Give source or destination.", args->role);
        return 0;
}

bool handoff_has_ended(const struct tdp_handoff *h) {
        static const char *const words[] = { "released", "kept", "done", "gone" };

        for (size_t i = 0; i < ELEMENTSOF(words); i++)
                if (strcmp(tdp_handoff_get_state(h) ?: "", words[i]) == 0)
                        return true;
        return false;
}

/* What is under way comes before what has ended; of two that are the same in that, neither is meant. */
int handoff_find(const struct args *args, struct tdp_ctx *ctx, const char *what, struct tdp_handoff **ret) {
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *first = NULL;
        struct tdp_handoff *h, *found = NULL;
        unsigned n[2] = {};
        int r;

        r = tdp_list_handoffs(ctx, &first);
        if (r < 0)
                return r;

        tdp_handoff_foreach(first, h) {
                bool ended = handoff_has_ended(h);

                if (args->role && strcmp(args->role, tdp_handoff_get_role(h)) != 0)
                        continue;
                if (strcmp(tdp_handoff_get_vm_name(h), what) != 0 &&
                    (strlen(what) < 4 || strncmp(tdp_handoff_get_id(h), what, strlen(what)) != 0))
                        continue;
                n[ended]++;
                if (!found || (!ended && handoff_has_ended(found)))
                        found = h;
        }
        if (!found)
                return log_error(
                                -ENOENT,
                                "There is no handoff \"%s\"%s%s here, by its id or its VM. \"tdpctl handoff "
                                "list\" shows them.",
                                what, args->role ? " with the role " : "", args->role ?: "");
        if (n[handoff_has_ended(found)] > 1)
                return log_error(-ENOENT,
                                 "\"%s\" may be one of %u handoffs. Give the id%s; \"tdpctl handoff list\" "
                                 "shows them.",
                                 what, n[handoff_has_ended(found)], args->role ? "" : ", and --role");
        return tdp_get_handoff(ctx, tdp_handoff_get_id(found), tdp_handoff_get_role(found), ret);
}

int handoff_list(const struct args *args, struct tdp_handoff *first) {
        static const char *const headers[] = { "HANDOFF", "VM", "ROLE", "STATE" };
        _cleanup_(table_freep) struct table *t = NULL;
        json_object *array = json_object_new_array();
        struct tdp_handoff *h;
        int r;

        r = table_new(&t, headers, ELEMENTSOF(headers));
        tdp_handoff_foreach(first, h) {
                if (r >= 0)
                        r = table_add(t, (const char *const[]){
                                                         tdp_handoff_get_id(h),
                                                         tdp_handoff_get_vm_name(h),
                                                         tdp_handoff_get_role(h),
                                                         tdp_handoff_get_state(h),
                                         });
                json_object_array_add(array, json_from_handoff(h));
        }
        if (args->json != JSON_OFF)
                return json_print(args, array) < 0 ? EXIT_FAILED : EXIT_OK;
        json_object_put(array);
        if (r < 0)
                return log_error(EXIT_FAILED, "Out of memory.");
        table_print(t, stdout, !args->no_legend, "handoff");
        return EXIT_OK;
}

int handoff_show(const struct args *args, struct tdp_handoff *h) {
        const struct tdp_value *p = tdp_handoff_get_properties(h), *v;
        char size[SIZE_TEXT_MAX];

        if (args->json != JSON_OFF)
                return json_print(args, json_from_handoff(h)) < 0 ? EXIT_FAILED : EXIT_OK;

        printf("%s, %s of VM \"%s\": %s\n", tdp_handoff_get_id(h), tdp_handoff_get_role(h),
               tdp_handoff_get_vm_name(h), tdp_handoff_get_state(h));
        printf("   Memory: %s", size_format(tdp_value_get_uint(tdp_value_find(p, "Bytes")), size));
        v = tdp_value_find(p, "PageSize");
        if (tdp_value_get_uint(v) > 0)
                printf(" in pages of %s", size_format(tdp_value_get_uint(v), size));
        printf(", generation %llu\n",
               (unsigned long long) tdp_value_get_uint(tdp_value_find(p, "Generation")));
        v = tdp_value_find(p, "PeerMode");
        printf("     Mode: %s here%s%s%s\n", tdp_value_get_string(tdp_value_find(p, "Mode")) ?: "",
               tdp_value_get_string(v) && tdp_value_get_string(v)[0] ? ", " : "",
               tdp_value_get_string(v) ?: "",
               tdp_value_get_string(v) && tdp_value_get_string(v)[0] ? " there" : "");
        v = tdp_value_find(p, "DeadlineUSec");
        if (tdp_value_get_uint(v) > 0)
                printf("Time left: %s\n", duration_format(tdp_value_get_uint(v), size));
        v = tdp_value_find(p, "Pending");
        printf("  To carry: %llu\n", (unsigned long long) tdp_value_get_uint(v));
        v = tdp_value_find(p, "Text");
        if (tdp_value_get_string(v) && tdp_value_get_string(v)[0])
                printf("   Reason: %s: %s\n", tdp_value_get_string(tdp_value_find(p, "Reason")) ?: "",
                       tdp_value_get_string(v));
        return EXIT_OK;
}
