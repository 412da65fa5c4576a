/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* run: QEMU on reserved memory, from the reservation to the release. */

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon.h"
#include "log.h"
#include "progress.h"
#include "qemu-args.h"
#include "run.h"
#include "signals.h"
#include "size.h"
#include "verbs.h"

#define START_USEC UINT64_C(120000000)
#define CONT_USEC  UINT64_C(30000000)

struct run {
        const struct args *args;
        struct qemu_args scanned;
        struct tdp_ctx *ctx;
        struct tdp_vm *vm;
        struct qemu qemu;
        struct qmp qmp;
        struct run_stats stats;
        bool strict; /* the guest must not run without its mapping */
        int signo;   /* the signal that ended the run before its guest started, or 0 */
};

static void run_done(struct run *run) {
        qmp_done(&run->qmp);
        qemu_done(&run->qemu);
        run_stats_done(&run->stats);
        tdp_vm_free(run->vm);
        tdp_unref(run->ctx);
}

static int check_args(const struct args *args, struct qemu_args *ret_scanned) {
        if (args->host)
                return log_error(-EINVAL, "\"run\" starts QEMU on this host: --host has no meaning for it.");
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

static int start_failed(const char *program, int r) {
        (void) log_error(r, "\"%s\" could not be started: %s", program, strerror(-r));
        return r == -ENOENT                    ? EXIT_QEMU_NOT_FOUND
               : r == -EACCES || r == -ENOEXEC ? EXIT_QEMU_NOT_EXECUTABLE
                                               : EXIT_RUN_FAILED;
}

static int start_with(struct run *run, const struct tdp_memory *memory) {
        _cleanup_free_ struct qemu_part *parts = NULL;
        _cleanup_free_ int *fds = NULL;
        _cleanup_close_ int theirs = -1, config = -1;
        const struct tdp_memory *m;
        int sockets[2], r;
        char **argv;
        size_t n = 0;

        tdp_memory_foreach (memory, m)
                n++;
        parts = calloc(n, sizeof(*parts));
        fds = calloc(n + 3, sizeof(*fds));
        if (!parts || !fds)
                return start_failed(run->args->positional[0], -ENOMEM);

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
                return start_failed(run->args->positional[0], -errno);
        qmp_init(&run->qmp, sockets[0]);
        theirs = sockets[1];
        config = qemu_args_open_config(theirs);
        if (config < 0)
                return start_failed(run->args->positional[0], config);

        n = 0;
        tdp_memory_foreach (memory, m) {
                fds[n] = tdp_memory_get_fd(m);
                parts[n++] = (struct qemu_part){ .bytes = tdp_memory_get_bytes(m),
                                                 .fd = tdp_memory_get_fd(m) };
        }
        fds[n] = theirs;
        fds[n + 1] = config;
        fds[n + 2] = -1;

        r = qemu_args_build(run->args->positional, &run->scanned, parts, n, config, !run->args->no_wait,
                            &argv);
        if (r < 0)
                return start_failed(run->args->positional[0], r);

        r = qemu_start(&run->qemu, argv, fds);
        qemu_args_free(argv);
        if (r < 0)
                return start_failed(run->args->positional[0], r);
        return EXIT_OK;
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

        return start_with(run, memory);
}

static void on_event(const char *event, void *userdata) {
        struct run *run = userdata;

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
        return EXIT_OK;
}

/* From the start of QEMU to a running guest. */
static int bring_up(struct run *run) {
        int code, r;

        run->qmp.on_event = on_event;
        run->qmp.userdata = run;

        /* Answered by QEMU's main loop, which runs when the machine and its memory slots are complete. */
        r = qmp_execute(&run->qmp, "qmp_capabilities", START_USEC, early_signal, run);
        if (r < 0)
                return qmp_failed(run, r, "it was starting");

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
                struct pollfd fds[] = {
                        { .fd = run->qemu.pidfd, .events = POLLIN },
                        { .fd = signal_fd, .events = POLLIN },
                        { .fd = run->qmp.closed ? -1 : run->qmp.fd, .events = POLLIN },
                };

                (void) poll(fds, ELEMENTSOF(fds), run_stats_due_msec(&run->stats));
                forward_signals(run);
                if (!run->qmp.closed)
                        (void) qmp_process(&run->qmp);
                if (run_stats_due_msec(&run->stats) == 0)
                        run_stats_sample(&run->stats, run->ctx, run->vm, &run->qemu);
        }

        run_stats_guest_ended(&run->stats);
        return run->qemu.code;
}

static void release(struct run *run) {
        int r;

        if (!run->vm)
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

int verb_run(const struct args *args) {
        _cleanup_(run_done) struct run run = { .args = args, .qmp.fd = -1 };
        int code;

        if (check_args(args, &run.scanned) < 0)
                return EXIT_RUN_FAILED;
        run.strict = args_given(args, OPT_DECISION) && strcmp(args->decision, "always") == 0;
        run_stats_init(&run.stats, args_given(args, OPT_STATS_FILE) || args->json != JSON_OFF);

        if (daemon_connect(args, &run.ctx) < 0)
                return EXIT_RUN_FAILED;

        signals_block();
        code = reserve(&run);
        if (code != EXIT_OK)
                return code;

        code = start(&run);
        if (code == EXIT_OK)
                code = bring_up(&run);
        if (code == EXIT_OK)
                code = wait_for_end(&run);
        if (run.qemu.pid > 0) {
                qemu_end(&run.qemu);
                if (run_stats_output(&run.stats, args, &run.qemu) < 0 && code == EXIT_OK)
                        code = EXIT_RUN_FAILED;
        }
        release(&run);
        if (run.signo > 0)
                log_notice("Interrupted: QEMU is ended, and VM \"%s\" released.", args->name);
        return code;
}
