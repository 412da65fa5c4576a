/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* run: QEMU's start on its memory, until its guest may run. */

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon.h"
#include "log.h"
#include "progress.h"
#include "run.h"
#include "signals.h"
#include "size.h"
#include "verbs.h"

#define START_USEC UINT64_C(120000000)
#define CONT_USEC  UINT64_C(30000000)

static int start_failed(const char *program, int r) {
        (void) log_error(r, "\"%s\" could not be started: %s", program, strerror(-r));
        return r == -ENOENT                    ? EXIT_QEMU_NOT_FOUND
               : r == -EACCES || r == -ENOEXEC ? EXIT_QEMU_NOT_EXECUTABLE
                                               : EXIT_RUN_FAILED;
}

int run_start(struct run *run, const struct qemu_part *parts, size_t n_parts) {
        const char *program = run->args->positional[0];
        _cleanup_free_ int *fds = NULL;
        _cleanup_close_ int theirs = -1, config = -1;
        int sockets[2], r;
        char **argv;

        fds = calloc(n_parts + 3, sizeof(*fds));
        if (!fds)
                return start_failed(program, -ENOMEM);

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
                return start_failed(program, -errno);
        qmp_init(&run->qmp, sockets[0]);
        theirs = sockets[1];
        config = qemu_args_open_config(theirs, run->runtime.lock_fd >= 0 ? run->runtime.qmp : NULL);
        if (config < 0)
                return start_failed(program, config);

        for (size_t i = 0; i < n_parts; i++)
                fds[i] = parts[i].fd;
        fds[n_parts] = theirs;
        fds[n_parts + 1] = config;
        fds[n_parts + 2] = -1;

        r = qemu_args_build(run->args->positional, &run->scanned, parts, n_parts, config,
                            !run->args->no_wait || run->is_incoming, run->is_incoming, &argv);
        if (r < 0)
                return start_failed(program, r);

        r = qemu_start(&run->qemu, argv, fds);
        qemu_args_free(argv);
        if (r < 0)
                return start_failed(program, r);
        return EXIT_OK;
}

/* With post-copy memory follows, and all else is there. */
static bool is_loaded(const struct run *run, json_object *data) {
        json_object *v = data ? json_object_object_get(data, "status") : NULL;
        const char *status = v ? json_object_get_string(v) : "";

        return strcmp(status, "completed") == 0 ||
               (run->incoming.post_copy && strcmp(status, "postcopy-active") == 0);
}

static void on_event(const char *event, json_object *data, void *userdata) {
        struct run *run = userdata;

        if (strcmp(event, "STOP") == 0 || strcmp(event, "MIGRATION") == 0)
                run->looks_after = true;
        if (strcmp(event, "MIGRATION") == 0 && is_loaded(run, data))
                run->incoming.loaded = true;
        if (strcmp(event, "RESUME") == 0)
                run->incoming.resumed = true;

        if (!run->stats.wanted)
                return;
        if (strcmp(event, "RESUME") == 0 && run->stats.start_usec == 0)
                run_stats_guest_started(&run->stats);
        if (strcmp(event, "SHUTDOWN") == 0) {
                run_stats_guest_ended(&run->stats);
                /* QEMU tears itself down now. Held for a moment, it still has what is to be read. */
                qemu_kill(&run->qemu, SIGSTOP);
                run_stats_sample(&run->stats, run->ctx, run->vm, &run->qemu);
                qemu_kill(&run->qemu, SIGCONT);
        } else if (strcmp(event, "RESET") == 0 || strcmp(event, "STOP") == 0)
                run_stats_sample(&run->stats, run->ctx, run->vm, &run->qemu);
}

/* Signals that come before the guest runs: they end the run. */
static int early_signal(void *userdata) {
        struct run *run = userdata;
        run->signo = signals_next(NULL);
        if (run->signo > 0)
                return -ECANCELED;
        return qemu_has_ended(&run->qemu) ? -ECONNRESET : 0;
}

static int early_end(void *userdata) {
        struct run *run = userdata;

        return qemu_has_ended(&run->qemu) ? -ECONNRESET : 0;
}

/* Its guest waits to be started, and nobody would be there to do it. */
static void leave(void *userdata) {
        struct run *run = userdata;

        qemu_kill(&run->qemu, SIGKILL);
}

/* What to exit with if a command to QEMU failed; EXIT_OK if QEMU itself ended like that. */
static int qmp_failed(struct run *run, int r, const char *doing) {
        if (run->signo > 0)
                return 128 + run->signo;
        if (r == -ECONNRESET) {
                qemu_end(&run->qemu);
                (void) log_error(0, "QEMU ended (%s %d) while %s.",
                                 run->qemu.signaled ? "signal" : "exit status",
                                 run->qemu.signaled ? run->qemu.code - 128 : run->qemu.code, doing);
                return run->qemu.code;
        }
        if (r == -EREMOTEIO)
                (void) log_error(0, "QEMU refused while %s.", doing);
        else
                (void) log_error(0, "QEMU's control channel failed while %s: %s", doing, strerror(-r));
        return EXIT_RUN_FAILED;
}

/* What came of the attachment, in one line. */
static void report(struct run *run) {
        const struct tdp_value *p, *reason;
        char built[SIZE_TEXT_MAX], took[SIZE_TEXT_MAX];
        uint64_t bytes;

        if (run->args->quiet || tdp_vm_refresh(run->vm) < 0)
                return;

        p = tdp_vm_get_properties(run->vm);
        bytes = tdp_value_get_uint(tdp_value_find(p, "BuiltBytes"));
        if (bytes > 0) {
                log_notice("%s: %s built in %s.", run->args->name, size_format(bytes, built),
                           duration_format(tdp_value_get_uint(tdp_value_find(p, "BuildUSec")), took));
                return;
        }
        reason = tdp_value_at(tdp_value_find(p, "Reasons"), 0);
        log_notice("%s: not built: %s", run->args->name,
                   tdp_value_get_string(tdp_value_at(reason, 1)) ?: "no reason given");
}

/* There is nothing to build with. tdpd can still know whose process has the memory, for its end and for a
 * handoff; if not, that was said already. */
static void join(struct run *run) {
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;

        if (tdp_options_new(&options) >= 0 && tdp_options_set_string(options, "decision", "never") >= 0 &&
            tdp_attach_pid(run->ctx, run->args->name, (uint32_t) run->qemu.pid, options, NULL, &job) >= 0)
                (void) tdp_job_wait(job, NULL, NULL);
}

static int attach(struct run *run) {
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;
        struct progress progress;
        int r;

        if (request_options(run->args, REQUEST_ATTACH, &options) < 0)
                return EXIT_RUN_FAILED;

        progress_init(&progress, run->args);
        progress.check = early_end;
        progress.leave = leave;
        progress.userdata = run;
        if (run->is_incoming)
                incoming_watch(&run->incoming, &progress);
        /* With --no-wait the terminal is the guest's already. */
        if (run->args->no_wait)
                progress.shown = false;

        r = tdp_attach_pid(run->ctx, run->args->name, (uint32_t) run->qemu.pid, options, NULL, &job);
        if (r >= 0)
                r = progress_wait(&progress, job);
        if (r >= 0) {
                if (!run->args->no_wait)
                        report(run);
                return EXIT_OK;
        }

        if (progress.signo > 0) {
                run->signo = progress.signo;
                return 128 + run->signo;
        }
        if (qemu_has_ended(&run->qemu))
                return qmp_failed(run, -ECONNRESET, "its mapping was being built");

        (void) daemon_failed(run->ctx, r);
        if (run->strict) {
                (void) log_error(0, "QEMU is ended: with --decision=always the guest does not "
                                    "run without its mapping.");
                return EXIT_RUN_FAILED;
        }
        log_notice("The guest's memory is mapped on demand instead.");
        if (r == -EOPNOTSUPP)
                join(run);
        return EXIT_OK;
}

/* From the start of QEMU to a running guest. */
int run_bring_up(struct run *run) {
        int code, r;

        run->qmp.on_event = on_event;
        run->qmp.userdata = run;

        /* Answered by QEMU's main loop, which runs when the machine and its memory slots are complete. */
        r = qmp_execute(&run->qmp, "qmp_capabilities", START_USEC, early_signal, run);
        if (r < 0)
                return qmp_failed(run, r, "it was starting");
        run_control_publish(run);

        if (run->is_incoming)
                return run->ctx && !run->incoming.post_copy ? attach(run) : EXIT_OK;

        if (run->args->no_wait && !run->scanned.stopped)
                run_stats_guest_started(&run->stats);

        code = attach(run);
        if (code != EXIT_OK || run->qemu.ended)
                return code;
        run_stats_sample(&run->stats, run->ctx, run->vm, &run->qemu);

        if (run->scanned.stopped || run->args->no_wait)
                return EXIT_OK;

        r = qmp_execute(&run->qmp, "cont", CONT_USEC, early_signal, run);
        if (r < 0)
                return qmp_failed(run, r, "its guest was to be started");
        return EXIT_OK;
}
