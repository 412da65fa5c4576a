/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* run: QEMU on reserved memory, from the reservation to the release. */

#include <poll.h>
#include <signal.h>
#include <string.h>

#include "daemon.h"
#include "log.h"
#include "progress.h"
#include "run.h"
#include "signals.h"
#include "size.h"
#include "verbs.h"

static void run_done(struct run *run) {
        qmp_done(&run->qmp);
        qemu_done(&run->qemu);
        run_stats_done(&run->stats);
        runtime_done(&run->runtime);
        incoming_done(&run->incoming);
        tdp_vm_free(run->vm);
        tdp_unref(run->ctx);
}

static int check_args(const struct args *args, struct qemu_args *ret_scanned) {
        if (args->host)
                return log_error(-EINVAL, "\"run\" starts QEMU on this host: --host has no meaning for it.");
        if (args->n_positional == 0)
                return log_error(-EINVAL, "\"run\" needs more arguments: tdpctl run %s",
                                 verb_find("run")->arguments);
        if (!args_given(args, OPT_NAME))
                return log_error(-EINVAL, "The VM needs a name for tdpd. Give --name=NAME.");
        if (!args_given(args, OPT_MEMORY))
                return log_error(-EINVAL, "How much memory shall the guest have? Give "
                                          "--memory=SIZE, like --memory=8G.");
        return qemu_args_scan(args->positional, args->memory, ret_scanned);
}

/* Returns an exit code, EXIT_OK to go on. */
static int reserve(struct run *run) {
        _cleanup_(tdp_options_freep) struct tdp_options *options = NULL;
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;
        struct progress progress;
        int r;

        if (request_options(run->args, REQUEST_RESERVE, &options) < 0)
                return EXIT_RUN_FAILED;

        r = tdp_reserve(run->ctx, run->args->name, run->args->memory, options, &run->vm, &job);
        if (r >= 0) {
                progress_init(&progress, run->args);
                if (run->is_incoming)
                        incoming_watch(&run->incoming, &progress);
                r = progress_wait(&progress, job);
                if (r < 0) {
                        (void) daemon_failed(run->ctx, r);
                        /* A job that failed has undone itself: there is no VM to release. */
                        run->vm = tdp_vm_free(run->vm);
                        return progress.signo > 0 ? 128 + progress.signo : EXIT_RUN_FAILED;
                }
                return EXIT_OK;
        }

        (void) daemon_failed(run->ctx, r);
        return EXIT_RUN_FAILED;
}

static int start_on(struct run *run, const struct tdp_memory *memory) {
        _cleanup_free_ struct qemu_part *parts = NULL;
        const struct tdp_memory *m;
        size_t n = 0;
        int code;

        tdp_memory_foreach (memory, m)
                n++;
        parts = calloc(n, sizeof(*parts));
        if (!parts)
                return log_error(EXIT_RUN_FAILED, "Out of memory.");

        n = 0;
        tdp_memory_foreach (memory, m)
                parts[n++] = (struct qemu_part){ .bytes = tdp_memory_get_bytes(m),
                                                 .fd = tdp_memory_get_fd(m) };
        if (run->is_incoming && incoming_check_parts(&run->incoming, parts, n) < 0)
                return EXIT_RUN_FAILED;

        if (run_control_open(run) < 0)
                return EXIT_RUN_FAILED;
        code = run_start(run, parts, n);
        if (code == EXIT_OK)
                run_control_describe(run, parts, n);
        return code;
}

/* Our copies of the memory's descriptors are closed here: pages must go when QEMU goes. */
static int start(struct run *run) {
        _cleanup_(tdp_memory_freep) struct tdp_memory *memory = NULL;
        int r;

        r = tdp_vm_get_memory(run->vm, &memory);
        if (r < 0) {
                (void) daemon_failed(run->ctx, r);
                return EXIT_RUN_FAILED;
        }
        if (!memory)
                return log_error(EXIT_RUN_FAILED,
                                 "tdpd gave no memory for VM \"%s\". See its log: journalctl -u tdpd -e",
                                 run->args->name);

        return start_on(run, memory);
}

/* As the destination of a migration that goes without a tdpd here. */
static int start_plain(struct run *run) {
        _cleanup_free_ struct qemu_part *parts = NULL;
        size_t n;
        int code;

        code = incoming_plain_parts(&run->incoming, &parts, &n);
        if (code < 0)
                return EXIT_RUN_FAILED;
        code = run_control_open(run) < 0 ? EXIT_RUN_FAILED : run_start(run, parts, n);
        if (code == EXIT_OK)
                run_control_describe(run, parts, n);
        for (size_t i = 0; i < n; i++)
                close_keep_errno(parts[i].fd);
        return code;
}

/* The terminal sends its signals to QEMU, too: only what others send to tdpctl is passed on. */
static void forward_signals(struct run *run) {
        siginfo_t info;
        int signo;

        while ((signo = signals_next(&info)) > 0)
                if (info.si_code != SI_KERNEL)
                        qemu_kill(&run->qemu, signo);
}

static int wait_for_end(struct run *run) {
        _cleanup_close_ int signal_fd = signals_fd();

        if (signal_fd < 0)
                return log_error(EXIT_RUN_FAILED, "Signals cannot be waited for: %s", strerror(-signal_fd));

        while (!qemu_has_ended(&run->qemu)) {
                int stats_msec = run_stats_due_msec(&run->stats), guard_msec = run_guard(run);
                struct pollfd fds[] = {
                        { .fd = run->qemu.pidfd, .events = POLLIN },
                        { .fd = signal_fd, .events = POLLIN },
                        { .fd = run->qmp.closed ? -1 : run->qmp.fd, .events = POLLIN },
                        { .fd = run->watch_fd, .events = POLLIN },
                        { .fd = run->incoming.fd, .events = POLLIN },
                };

                (void) poll(fds, ELEMENTSOF(fds),
                            stats_msec < 0 || (guard_msec >= 0 && guard_msec < stats_msec) ? guard_msec
                                                                                           : stats_msec);
                forward_signals(run);
                if (fds[3].revents)
                        run_control_noticed(run);
                if (!run->qmp.closed)
                        (void) qmp_process(&run->qmp);
                if (fds[4].revents)
                        incoming_hear(&run->incoming);
                run_commit(run);
                if (run_stats_due_msec(&run->stats) == 0)
                        run_stats_sample(&run->stats, run->ctx, run->vm, &run->qemu);
        }

        run_stats_guest_ended(&run->stats);
        return run->qemu.code;
}

static void run_is_ready(struct run *run) {
        run->looks_after = true;
        run_commit_prepare(run);
        incoming_ready(&run->incoming, &run->runtime, run->qemu.pid, run->vm);
}

static void release(struct run *run) {
        int r;

        if (!run->vm)
                return;
        /* As long as it is not this host's, tdpd has the last word. */
        if (run->is_incoming && run->incoming.mode == INCOMING_HANDOFF &&
            run->incoming.owner_since_usec == 0 && run_guard_cancel(run))
                return;

        /* What came up to here was for QEMU.  There is nothing left to undo, and a release that was asked
         * for goes on without us: nobody has to wait for a daemon that hangs. */
        while (signals_next(NULL) > 0)
                ;
        signals_unblock();
        r = tdp_vm_release(run->vm);
        /* The daemon notices QEMU's end by itself, and may have been faster. */
        if (r < 0 && r != -ENOENT) {
                (void) daemon_failed(run->ctx, r);
                (void) log_error(0,
                                 "VM \"%s\" may not be released. See \"tdpctl vms\"; tdpd "
                                 "releases it when it sees that "
                                 "QEMU has ended.",
                                 run->args->name);
        }
}

/* The memory that a guest from elsewhere comes to, and QEMU on it. */
static int start_incoming(struct run *run) {
        int code, r;

        if (run->incoming.mode == INCOMING_PLAIN)
                return start_plain(run);
        if (run->incoming.mode == INCOMING_RESERVE) {
                code = reserve(run);
                return code == EXIT_OK ? start(run) : code;
        }

        /* Reserved and populated with the answer to the offer. */
        r = tdp_get_vm(run->ctx, run->args->name, &run->vm);
        if (r < 0) {
                (void) daemon_failed(run->ctx, r);
                return EXIT_RUN_FAILED;
        }
        return start(run);
}

int verb_run(const struct args *args) {
        _cleanup_(run_done) struct run run = {
                .args = args,
                .qmp.fd = -1,
                .runtime.lock_fd = -1,
                .incoming.fd = -1,
                .watch_fd = -1,
        };
        int code;

        run.is_incoming = args_given(args, OPT_INCOMING);
        if (run.is_incoming) {
                if (incoming_open(&run.incoming, args) < 0)
                        return EXIT_RUN_FAILED;
                args = run.args = &run.incoming.args;
        }
        if (check_args(args, &run.scanned) < 0)
                return EXIT_RUN_FAILED;
        run.strict = args_given(args, OPT_DECISION) && strcmp(args->decision, "always") == 0;
        run_stats_init(&run.stats,
                       !run.is_incoming && (args_given(args, OPT_STATS_FILE) || args->json != JSON_OFF));

        if (!(run.is_incoming && run.incoming.mode == INCOMING_PLAIN) && daemon_connect(args, &run.ctx) < 0)
                return EXIT_RUN_FAILED;

        signals_block();
        if (run.is_incoming)
                code = start_incoming(&run);
        else {
                code = reserve(&run);
                if (code != EXIT_OK)
                        return code;
                code = start(&run);
        }
        if (code == EXIT_OK)
                code = run_bring_up(&run);
        if (code == EXIT_OK && run.is_incoming)
                run_is_ready(&run);
        if (code == EXIT_OK)
                code = wait_for_end(&run);
        if (run.qemu.pid > 0) {
                qemu_end(&run.qemu);
                if (run_stats_output(&run.stats, args, &run.qemu) < 0 && code == EXIT_OK)
                        code = EXIT_RUN_FAILED;
        }
        run_control_close(&run);
        release(&run);
        if (run.signo > 0)
                log_notice("Interrupted: QEMU is ended, and VM \"%s\" released.", args->name);
        return code;
}
