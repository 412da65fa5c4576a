/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* run: what others of the same user need to control its QEMU. */

#include <errno.h>
#include <string.h>
#include <sys/inotify.h>

#include "json.h"
#include "log.h"
#include "run.h"

int run_control_open(struct run *run) {
        int r;

        r = runtime_init(&run->runtime, run->args->name);
        if (r >= 0)
                r = runtime_create(&run->runtime);
        if (r < 0 && run->is_incoming)
                return log_error(r, "VM \"%s\" cannot come here: its control socket cannot be made: %s%s",
                                 run->args->name, strerror(-r),
                                 r == -EBUSY ? ". Another \"tdpctl run\" has a VM of that name" : "");
        if (r < 0 && r != -ENOENT) /* a user without a session: no surprise */
                log_notice("VM \"%s\" cannot be migrated: its control socket cannot be made: %s",
                           run->args->name, strerror(-r));
        if (r < 0)
                return 0;
        /* Without it, a migration is noticed by what QEMU tells of it: soon enough for most. */
        run->watch_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        if (run->watch_fd >= 0)
                (void) inotify_add_watch(run->watch_fd, run->runtime.folder, IN_CREATE);
        return 0;
}

void run_control_noticed(struct run *run) {
        char buffer[1024] __attribute__((aligned(8)));

        while (read(run->watch_fd, buffer, sizeof(buffer)) > 0)
                ;
        run->looks_after = true;
}

static json_object *options(const struct args *args) {
        json_object *o = json_object_new_object();

        if (args_given(args, OPT_DECISION))
                json_add_string(o, "decision", args->decision);
        if (args_given(args, OPT_PAGE_SIZE))
                json_add_uint(o, "page_size", args->page_size);
        if (args_given(args, OPT_MAX_LEVEL))
                json_add_uint(o, "max_level", args->max_level);
        if (args_given(args, OPT_VCPUS))
                json_add_uint(o, "vcpus", args->vcpus);
        json_object_object_add(o, "no_auto_slots", json_object_new_boolean(args->no_auto_slots));
        return o;
}

void run_control_describe(struct run *run, const struct qemu_part *parts, size_t n_parts) {
        json_object *o, *argv, *sizes;
        _cleanup_free_ char *folder = NULL;

        if (run->runtime.lock_fd < 0)
                return;

        o = json_object_new_object();
        argv = json_object_new_array();
        sizes = json_object_new_array();
        folder = getcwd(NULL, 0);
        for (int i = 0; i < run->args->n_positional; i++)
                json_object_array_add(argv, json_object_new_string(run->args->positional[i]));
        for (size_t i = 0; i < n_parts; i++)
                json_object_array_add(sizes, json_object_new_uint64(parts[i].bytes));
        json_add_string(o, "name", run->args->name);
        json_add_uint(o, "pid", (uint64_t) run->qemu.pid);
        json_add_string(o, "qmp", run->runtime.qmp);
        json_add_uint(o, "memory", run->args->memory);
        json_object_object_add(o, "parts", sizes);
        json_object_object_add(o, "argv", argv);
        json_add_string(o, "cwd", folder);
        json_object_object_add(o, "options", options(run->args));
        run->control = o;
}

void run_control_publish(struct run *run) {
        int r;

        if (!run->control)
                return;
        r = json_write_file(run->runtime.vm, run->control);
        run->control = NULL;
        if (r < 0)
                log_notice("VM \"%s\" cannot be migrated: \"%s\" cannot be written: %s", run->args->name,
                           run->runtime.vm, strerror(-r));
}

void run_control_close(struct run *run) {
        if (run->control)
                json_object_put(run->control);
        run->control = NULL;
        run->watch_fd = close_keep_errno(run->watch_fd);
        runtime_remove(&run->runtime);
}
