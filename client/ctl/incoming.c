/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* "run" as the destination of a migration: what it is told, and what it tells. */

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "incoming.h"
#include "json.h"
#include "line.h"
#include "log.h"
#include "message-file.h"
#include "size.h"
#include "verbs.h"

#define PARTS_MAX 64

static const char *const modes[_INCOMING_MODE_MAX] = {
        [INCOMING_HANDOFF] = "handoff",
        [INCOMING_RESERVE] = "reserve",
        [INCOMING_PLAIN] = "plain",
};

const char *incoming_mode_to_string(enum incoming_mode mode) {
        return modes[mode];
}

/* Nobody may be there any more: then there is nobody to tell. Consumes the object. */
static void tell(struct incoming *in, json_object *o) {
        if (in->fd >= 0 && line_send(in->fd, o) < 0)
                in->fd = close_keep_errno(in->fd);
        json_object_put(o);
}

static void on_log(const char *kind, const char *text, void *userdata) {
        json_object *o = json_object_new_object();

        json_add_string(o, "kind", kind);
        json_add_string(o, "text", text);
        tell(userdata, o);
}

static void on_progress(const char *phase, uint64_t done, uint64_t total, void *userdata) {
        json_object *o = json_object_new_object();

        json_add_string(o, "phase", phase);
        json_add_uint(o, "done", done);
        json_add_uint(o, "total", total);
        /* The progress' userdata is that of its check. */
        tell(userdata, o);
}

void incoming_watch(struct incoming *in, struct progress *progress) {
        progress->shown = false;
        progress->report = on_progress;
        progress->userdata = in;
        progress->check = NULL;
        progress->leave = NULL;
}

static const char *get_string(json_object *o, const char *key) {
        json_object *v = json_object_object_get(o, key);

        return v && json_object_is_type(v, json_type_string) ? json_object_get_string(v) : NULL;
}

/* An option that the source's "run" was given, and that is not about the source's host. */
static void take_options(struct args *args, json_object *o) {
        json_object *v;

        args->decision = get_string(o, "decision");
        if (args->decision)
                args->given |= OPT_BIT(OPT_DECISION);
        if (json_object_object_get_ex(o, "page_size", &v)) {
                args->page_size = json_object_get_uint64(v);
                args->given |= OPT_BIT(OPT_PAGE_SIZE);
        }
        if (json_object_object_get_ex(o, "max_level", &v)) {
                args->max_level = (uint32_t) json_object_get_uint64(v);
                args->given |= OPT_BIT(OPT_MAX_LEVEL);
        }
        if (json_object_object_get_ex(o, "vcpus", &v)) {
                args->vcpus = (uint32_t) json_object_get_uint64(v);
                args->given |= OPT_BIT(OPT_VCPUS);
        }
        args->no_auto_slots = json_object_get_boolean(json_object_object_get(o, "no_auto_slots"));
}

static int take_argv(struct incoming *in, json_object *words) {
        size_t n = words && json_object_is_type(words, json_type_array) ? json_object_array_length(words)
                                                                        : 0;

        if (n == 0)
                return -EBADMSG;
        in->argv = calloc(n + 1, sizeof(char *));
        if (!in->argv)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) /* the words are the specification's */
                in->argv[i] = (char *) json_object_get_string(json_object_array_get_idx(words, i));
        in->args.positional = in->argv;
        in->args.n_positional = (int) n;
        return 0;
}

static int take_spec(struct incoming *in) {
        const char *mode = get_string(in->spec, "mode"), *folder = get_string(in->spec, "cwd");

        in->args.name = get_string(in->spec, "name");
        in->args.memory = json_object_get_uint64(json_object_object_get(in->spec, "memory"));
        in->args.given |= OPT_BIT(OPT_NAME) | OPT_BIT(OPT_MEMORY);
        in->id = get_string(in->spec, "handoff");
        in->post_copy = json_object_get_boolean(json_object_object_get(in->spec, "post_copy"));
        for (in->mode = 0; in->mode < _INCOMING_MODE_MAX; in->mode++)
                if (mode && strcmp(modes[in->mode], mode) == 0)
                        break;
        if (!in->args.name || in->args.memory == 0 || in->mode == _INCOMING_MODE_MAX ||
            (in->mode == INCOMING_HANDOFF && !in->id))
                return -EBADMSG;
        take_options(&in->args, json_object_object_get(in->spec, "options"));
        /* Its words may name files from there. One that is not here will be missed by QEMU, which says so.
         */
        if (folder)
                (void) !chdir(folder);
        return take_argv(in, json_object_object_get(in->spec, "argv"));
}

int incoming_open(struct incoming *in, const struct args *args) {
        int r;

        in->args = *args;
        in->args.quiet = false;
        in->fd = unix_connect(args->incoming);
        if (in->fd < 0) {
                r = in->fd;
                in->fd = -1;
                return log_error(r, "\"%s\" cannot be reached: %s. --incoming is for \"tdpctl migrate\".",
                                 args->incoming, strerror(-r));
        }
        log_set_sink(on_log, in);

        r = line_read(in->fd, &in->spec);
        if (r >= 0)
                r = take_spec(in);
        return r < 0 ? log_error(r, "What the destination is to run cannot be read: %s", strerror(-r)) : 0;
}

void incoming_done(struct incoming *in) {
        log_set_sink(NULL, NULL);
        in->fd = close_keep_errno(in->fd);
        tdp_handoff_free(in->handoff);
        in->handoff = NULL;
        in->commit = tdp_message_free(in->commit);
        free(in->argv);
        in->argv = NULL;
        if (in->spec)
                json_object_put(in->spec);
        in->spec = NULL;
}

void incoming_ready(struct incoming *in, const struct runtime *runtime, pid_t pid, struct tdp_vm *vm) {
        json_object *o = json_object_new_object(), *ready = json_object_new_object();
        uint64_t built = 0, usec = 0;

        if (vm && tdp_vm_refresh(vm) >= 0) {
                const struct tdp_value *p = tdp_vm_get_properties(vm);

                built = tdp_value_get_uint(tdp_value_find(p, "BuiltBytes"));
                usec = tdp_value_get_uint(tdp_value_find(p, "BuildUSec"));
        }
        json_add_uint(ready, "pid", (uint64_t) pid);
        json_add_string(ready, "qmp", runtime->lock_fd >= 0 ? runtime->qmp : NULL);
        json_add_uint(ready, "built_bytes", built);
        json_add_uint(ready, "build_usec", usec);
        json_object_object_add(ready, "commits", json_object_new_boolean(in->mode == INCOMING_HANDOFF));
        json_object_object_add(o, "ready", ready);
        /* Held from now on by who has asked; if that one has died, by nobody. */
        close_keep_errno(runtime_mark(runtime, "incoming"));
        tell(in, o);
        log_set_sink(NULL, NULL);
}

void incoming_hear(struct incoming *in) {
        const char *text;
        json_object *o, *arguments = NULL;
        int r;

        r = line_read(in->fd, &o);
        if (r < 0) {
                in->fd = close_keep_errno(in->fd);
                return;
        }
        (void) json_object_object_get_ex(o, "arguments", &arguments);
        text = arguments ? get_string(arguments, "message") : NULL;
        in->commit = tdp_message_free(in->commit);
        if (text && message_from_base64(text, strlen(text), &in->commit) < 0)
                in->commit = NULL;
        json_object_put(o);
}

void incoming_tell_committed(struct incoming *in, const struct tdp_message *message) {
        json_object *o = json_object_new_object(), *data = json_object_new_object();
        _cleanup_free_ char *text = message ? message_to_base64(message) : NULL;

        json_add_string(data, "message", text);
        json_add_string(o, "event", INCOMING_COMMITTED);
        json_object_object_add(o, "data", data);
        tell(in, o);
}

static json_object *wanted_parts(const struct incoming *in, size_t *ret_n) {
        json_object *array = json_object_object_get(in->spec, "parts");

        *ret_n = array && json_object_is_type(array, json_type_array) ? json_object_array_length(array) : 0;
        return array;
}

int incoming_check_parts(const struct incoming *in, const struct qemu_part *parts, size_t n_parts) {
        char a[SIZE_TEXT_MAX], b[SIZE_TEXT_MAX];
        json_object *array;
        size_t n;

        array = wanted_parts(in, &n);
        if (n != n_parts)
                return log_error(
                                -EXDEV,
                                "The guest's memory has %zu part(s), and here it would have %zu: QEMU can take "
                                "over the same parts only. Give --nodes or --parts, so that it has %zu.",
                                n, n_parts, n);
        for (size_t i = 0; i < n; i++) {
                uint64_t bytes = json_object_get_uint64(json_object_array_get_idx(array, i));

                if (bytes != parts[i].bytes)
                        return log_error(
                                        -EXDEV,
                                        "Part %zu of the guest's memory is %s, and here it would be %s: QEMU can take "
                                        "over the same parts only. Give --parts with the same sizes.",
                                        i, size_format(bytes, a), size_format(parts[i].bytes, b));
        }
        return 0;
}

int incoming_plain_parts(const struct incoming *in, struct qemu_part **ret, size_t *ret_n) {
        _cleanup_free_ struct qemu_part *parts = NULL;
        json_object *array;
        size_t n, i;
        int r = 0;

        array = wanted_parts(in, &n);
        if (n == 0 || n > PARTS_MAX)
                return log_error(-EBADMSG, "%zu parts of memory are not from 1 to %d.", n, PARTS_MAX);
        parts = calloc(n, sizeof(*parts));
        if (!parts)
                return log_error(-ENOMEM, "Out of memory.");

        for (i = 0; i < n && r >= 0; i++) {
                parts[i].bytes = json_object_get_uint64(json_object_array_get_idx(array, i));
                parts[i].fd = memfd_create("guest", MFD_CLOEXEC);
                if (parts[i].fd < 0 || ftruncate(parts[i].fd, (off_t) parts[i].bytes) < 0)
                        r = -errno;
        }
        if (r < 0) {
                while (i-- > 0)
                        close_keep_errno(parts[i].fd);
                return log_error(r, "Memory for the guest cannot be had: %s", strerror(-r));
        }

        *ret = TAKE_PTR(parts);
        *ret_n = n;
        return 0;
}
