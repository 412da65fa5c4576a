/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* handoff: offers, answers and the rest, for tools that carry bytes by shell. */

#include <string.h>

#include "daemon.h"
#include "handoff.h"
#include "json.h"
#include "log.h"
#include "message-file.h"
#include "progress.h"
#include "signals.h"
#include "verbs.h"

struct call {
        const struct args *args;
        struct tdp_ctx *ctx;
        const char *what; /* VM, handoff or file; NULL: not given */
};

/* The handoff and its message, if there is one. With --json the message is a part of the object, unless it
 * goes into a file. */
static int show_result(const struct call *c, struct tdp_handoff *h, const struct tdp_message *message) {
        const struct args *args = c->args;
        bool embedded = args->json != JSON_OFF && !args->output;
        json_object *o;

        if (message && !embedded && message_write(args, message) < 0)
                return EXIT_FAILED;
        if (args->json == JSON_OFF)
                return EXIT_OK;

        if (h && tdp_handoff_refresh(h) < 0)
                return daemon_failed(c->ctx, -EIO);
        o = h ? json_from_handoff(h) : json_object_new_object();
        if (message && embedded) {
                _cleanup_free_ char *text = message_to_base64(message);

                json_add_string(o, "message", text);
        } else
                json_object_object_add(o, "message", NULL);
        return json_print(args, o) < 0 ? EXIT_FAILED : EXIT_OK;
}

static int do_offer(const struct call *c) {
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        _cleanup_(tdp_vm_freep) struct tdp_vm *vm = NULL;
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *h = NULL;
        _cleanup_(tdp_message_freep) struct tdp_message *offer = NULL;
        int r;

        if (offer_options(c->args, &options) < 0)
                return EXIT_USAGE;
        r = tdp_get_vm(c->ctx, c->what, &vm);
        if (r >= 0)
                r = tdp_vm_offer_handoff(vm, options, &h, &offer);
        return r < 0 ? daemon_failed(c->ctx, r) : show_result(c, h, offer);
}

static int do_prepare(const struct call *c) {
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *h = NULL;
        _cleanup_(tdp_message_freep) struct tdp_message *offer = NULL, *answer = NULL;
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;
        struct progress progress;
        int r;

        if (request_options(c->args, REQUEST_RESERVE, &options) < 0 ||
            message_read(c->args, c->what ?: "-", &offer) < 0)
                return EXIT_FAILED;

        signals_block();
        r = tdp_prepare_incoming(c->ctx, offer, options, &h, &answer, &job);
        if (r >= 0 && job && !c->args->no_wait) {
                progress_init(&progress, c->args);
                r = progress_wait(&progress, job);
                if (r < 0 && progress.signo > 0) {
                        (void) daemon_failed(c->ctx, r);
                        return 128 + progress.signo;
                }
                if (r >= 0 && !answer)
                        r = tdp_handoff_next(h, &answer);
        }
        return r < 0 ? daemon_failed(c->ctx, r) : show_result(c, h, answer);
}

static int do_deliver(const struct call *c) {
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *h = NULL;
        _cleanup_(tdp_message_freep) struct tdp_message *message = NULL, *reply = NULL;
        int r;

        if (message_read(c->args, c->what ?: "-", &message) < 0)
                return EXIT_FAILED;
        r = tdp_deliver_handoff(c->ctx, message, &h, &reply);
        return r < 0 ? daemon_failed(c->ctx, r) : show_result(c, h, reply);
}

static int on_handoff(const struct call *c, int (*make)(struct tdp_handoff *h, struct tdp_options *options,
                                                        struct tdp_message **ret)) {
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *h = NULL;
        _cleanup_(tdp_message_freep) struct tdp_message *message = NULL;
        int r;

        if (handoff_options(c->args, &options) < 0)
                return EXIT_USAGE;
        r = handoff_find(c->args, c->ctx, c->what, &h);
        if (r < 0)
                return r == -ENOENT ? EXIT_FAILED : daemon_failed(c->ctx, r);
        r = make(h, options, &message);
        return r < 0 ? daemon_failed(c->ctx, r) : show_result(c, h, message);
}

static int make_next(struct tdp_handoff *h, struct tdp_options *options, struct tdp_message **ret) {
        return tdp_handoff_next(h, ret);
}

static int make_arrived(struct tdp_handoff *h, struct tdp_options *options, struct tdp_message **ret) {
        return tdp_handoff_arrived(h);
}

static int make_cancel(struct tdp_handoff *h, struct tdp_options *options, struct tdp_message **ret) {
        return tdp_handoff_cancel(h, "canceled with tdpctl");
}

static int make_start(struct tdp_handoff *h, struct tdp_options *options, struct tdp_message **ret) {
        return tdp_handoff_start(h, options, ret);
}

static int make_commit(struct tdp_handoff *h, struct tdp_options *options, struct tdp_message **ret) {
        return tdp_handoff_commit(h, options, ret);
}

static int do_next(const struct call *c) {
        return on_handoff(c, make_next);
}

static int do_start(const struct call *c) {
        return on_handoff(c, make_start);
}

static int do_commit(const struct call *c) {
        return on_handoff(c, make_commit);
}

static int do_arrived(const struct call *c) {
        return on_handoff(c, make_arrived);
}

static int do_cancel(const struct call *c) {
        return on_handoff(c, make_cancel);
}

static int do_show(const struct call *c) {
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *h = NULL;
        int r;

        r = handoff_find(c->args, c->ctx, c->what, &h);
        if (r >= 0)
                r = tdp_handoff_refresh(h);
        else if (r == -ENOENT)
                return EXIT_FAILED;
        return r < 0 ? daemon_failed(c->ctx, r) : handoff_show(c->args, h);
}

static int do_forget(const struct call *c) {
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *h = NULL;
        json_object *o;
        int r;

        r = handoff_find(c->args, c->ctx, c->what, &h);
        if (r == -ENOENT)
                return EXIT_FAILED;
        if (r >= 0)
                r = tdp_handoff_forget(h);
        if (r < 0)
                return daemon_failed(c->ctx, r);
        if (c->args->json == JSON_OFF)
                return EXIT_OK;
        o = json_object_new_object();
        json_add_string(o, "id", tdp_handoff_get_id(h));
        json_add_string(o, "role", tdp_handoff_get_role(h));
        return json_print(c->args, o) < 0 ? EXIT_FAILED : EXIT_OK;
}

static int do_list(const struct call *c) {
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *first = NULL;
        int r;

        r = tdp_list_handoffs(c->ctx, &first);
        return r < 0 ? daemon_failed(c->ctx, r) : handoff_list(c->args, first);
}

#define MESSAGE (OPT_BIT(OPT_ENCODING) | OPT_BIT(OPT_OUTPUT))
#define RESERVE                                                                                             \
        (OPT_BIT(OPT_PAGE_SIZE) | OPT_BIT(OPT_NODES) | OPT_BIT(OPT_NUMA_MODE) | OPT_BIT(OPT_CPUS) |         \
         OPT_BIT(OPT_PARTS) | OPT_BIT(OPT_NO_WARM) | OPT_BIT(OPT_DECISION) | OPT_BIT(OPT_NO_WAIT))

static const struct {
        const char *name;
        const char *argument; /* NULL: none; in brackets: need not be given */
        uint64_t options;
        int (*run)(const struct call *c);
} calls[] = {
        { "list", NULL, 0, do_list },
        { "show", "HANDOFF", OPT_BIT(OPT_ROLE), do_show },
        { "offer", "VM", MESSAGE | OPT_BIT(OPT_DEADLINE) | OPT_BIT(OPT_PAGE_SIZES) | OPT_BIT(OPT_POST_COPY),
          do_offer },
        { "prepare", "[FILE]", MESSAGE | RESERVE, do_prepare },
        { "deliver", "[FILE]", MESSAGE, do_deliver },
        { "next", "HANDOFF", MESSAGE | OPT_BIT(OPT_ROLE), do_next },
        { "start", "HANDOFF", MESSAGE | OPT_BIT(OPT_LOGGING) | OPT_BIT(OPT_SPLIT_LEAF), do_start },
        { "commit", "HANDOFF", MESSAGE | OPT_BIT(OPT_POST_COPY) | OPT_BIT(OPT_BYTES_LEFT), do_commit },
        { "arrived", "HANDOFF", 0, do_arrived },
        { "cancel", "HANDOFF", OPT_BIT(OPT_ROLE), do_cancel },
        { "forget", "HANDOFF", OPT_BIT(OPT_ROLE), do_forget },
};

int verb_handoff(const struct args *args) {
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        struct call c = { .args = args, .what = args->n_positional > 1 ? args->positional[1] : NULL };
        const char *name = args->n_positional > 0 ? args->positional[0] : "list";
        uint64_t meaningless;
        size_t i = 0;

        while (i < ELEMENTSOF(calls) && strcmp(calls[i].name, name) != 0)
                i++;
        if (i == ELEMENTSOF(calls))
                return log_error(EXIT_USAGE,
                                 "\"%s\" cannot be done with handoffs. See tdpctl handoff --help.", name);
        if (!c.what && calls[i].argument && calls[i].argument[0] != '[')
                return log_error(EXIT_USAGE, "Which one? tdpctl handoff %s %s", name, calls[i].argument);
        if (c.what && !calls[i].argument)
                return log_error(EXIT_USAGE, "\"%s\" is one argument too many: tdpctl handoff %s", c.what,
                                 name);
        meaningless = args->given & ~(calls[i].options | args_global_mask());
        if (meaningless)
                return log_error(EXIT_USAGE, "Option --%s has no meaning for \"handoff %s\".",
                                 args_option_name(meaningless), name);
        if (encoding_check(args) < 0 || handoff_role_check(args) < 0)
                return EXIT_USAGE;

        if (daemon_connect(args, &ctx) < 0)
                return EXIT_NO_DAEMON;
        c.ctx = ctx;
        return calls[i].run(&c);
}
