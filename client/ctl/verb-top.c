/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* top: pools and VMs, live. */

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <systemd/sd-event.h>

#include "daemon.h"
#include "log.h"
#include "terminal.h"
#include "top.h"
#include "verbs.h"

#define DELAY_USEC_DEFAULT UINT64_C(1000000)
/* A daemon that hangs must not make the keys hang for long. */
#define CALL_USEC UINT64_C(3000000)

/* The other screen, so that what was on this one is back at the end. */
#define SCREEN_ENTER "\033[?1049h\033[?25l"
#define SCREEN_LEAVE "\033[?25h\033[?1049l"
#define CURSOR_HOME  "\033[H"
#define CLEAR_LINE   "\033[K"
#define CLEAR_REST   "\033[J"

struct top {
        struct tdp_ctx *ctx;
        sd_event *event;
        sd_event_source *timer;
        bool batch;
        uint64_t delay_usec, iterations, n_drawn; /* iterations 0: no end */
        struct terminal terminal;
        bool on_screen;

        struct top_sample sample;
        struct top_view view;
        char message[256];
        char typed[64];
        size_t n_typed;
        int code;
};

static void screen_enter(struct top *t) {
        struct termios raw = t->terminal.settings;

        if (t->batch)
                return;
        /* Keys as they come, and signals still from the keyboard. */
        raw.c_lflag &= ~(tcflag_t) (ICANON | ECHO);
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        (void) tcsetattr(STDIN_FILENO, TCSANOW, &raw);
        fputs(SCREEN_ENTER, stdout);
        t->on_screen = true;
}

static void screen_leave(struct top *t) {
        if (!t->on_screen)
                return;
        fputs(SCREEN_LEAVE, stdout);
        fflush(stdout);
        terminal_restore(&t->terminal);
        t->on_screen = false;
}

static void measure(struct top *t) {
        struct winsize w;

        t->view.columns = t->view.rows = 0;
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0)
                return;
        t->view.columns = w.ws_col;
        t->view.rows = t->batch ? 0 : w.ws_row;
}

static void end(struct top *t, int code) {
        t->code = code;
        (void) sd_event_exit(t->event, 0);
}

/* Line by line over what is there: that flickers less than to clear first. */
static void draw(struct top *t) {
        _cleanup_free_ char *text = NULL;
        size_t size = 0;
        FILE *f;

        top_sort(&t->sample, t->view.sort, t->view.reverse);
        t->view.message = t->message[0] ? t->message : NULL;
        f = open_memstream(&text, &size);
        if (!f)
                return;
        top_draw(f, &t->sample, &t->view);
        if (fclose(f) != 0)
                return;

        if (t->batch)
                printf("%s%s", t->n_drawn > 0 ? "\n" : "", text);
        else {
                fputs(CURSOR_HOME, stdout);
                for (char *p = text, *next; *p != '\0'; p = next) {
                        char *line_end = strchrnul(p, '\n');

                        next = *line_end ? line_end + 1 : line_end;
                        /* No line feed behind the last line, it would scroll. */
                        printf("%s%.*s" CLEAR_LINE, p == text ? "" : "\n", (int) (line_end - p), p);
                }
                fputs(CLEAR_REST, stdout);
        }
        if (fflush(stdout) != 0)
                end(t, errno == EPIPE ? EXIT_OK : EXIT_FAILED);
}

/* On a terminal a daemon that went away is waited for: it may just be upgraded. */
static void sample(struct top *t) {
        struct top_sample now = {};
        int r = top_read(t->ctx, &now);

        if (r < 0 && (t->batch || (r != -EHOSTDOWN && r != -ETIMEDOUT))) {
                screen_leave(t);
                end(t, daemon_failed(t->ctx, r));
                return;
        }
        if (r < 0)
                (void) snprintf(t->message, sizeof(t->message),
                                "Old numbers: %s. Trying again; q ends this.", tdp_error_message(t->ctx));
        else {
                t->message[0] = '\0';
                if (t->sample.usec > 0)
                        top_rates(&t->sample, &now);
                top_sample_done(&t->sample);
                t->sample = now;
        }
        draw(t);
        t->n_drawn++;
        if (t->iterations > 0 && t->n_drawn >= t->iterations)
                end(t, EXIT_OK);
}

static int on_time(sd_event_source *s, uint64_t usec, void *userdata) {
        struct top *t = userdata;

        sample(t);
        (void) sd_event_source_set_time_relative(s, t->delay_usec);
        return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

static void key(struct top *t, unsigned k) {
        size_t page = t->view.rows > 4 ? t->view.rows / 2 : 1;

        switch (k) {
        case TOP_KEY_QUIT:
                end(t, EXIT_OK);
                return;
        case TOP_KEY_NOW:
                (void) sd_event_source_set_time_relative(t->timer, 0);
                return;
        case TOP_KEY_REVERSE:
                t->view.reverse = !t->view.reverse;
                break;
        case TOP_KEY_UP:
                t->view.first -= t->view.first > 0;
                break;
        case TOP_KEY_DOWN:
                t->view.first++;
                break;
        case TOP_KEY_PAGE_UP:
                t->view.first -= t->view.first < page ? t->view.first : page;
                break;
        case TOP_KEY_PAGE_DOWN:
                t->view.first += page;
                break;
        case TOP_KEY_HOME:
                t->view.first = 0;
                break;
        case TOP_KEY_END:
                t->view.first = SIZE_MAX;
                break;
        case TOP_KEY_NONE:
                return;
        default:
                t->view.sort = (enum top_sort)(k - TOP_KEY_SORT);
                t->view.first = 0;
        }
        draw(t);
}

static int on_typed(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        struct top *t = userdata;
        ssize_t n = read(fd, t->typed + t->n_typed, sizeof(t->typed) - t->n_typed);
        size_t used, start = 0;
        unsigned k;

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n <= 0) { /* the terminal has gone */
                end(t, EXIT_OK);
                return 0;
        }
        t->n_typed += (size_t) n;
        while ((used = top_key_parse(t->typed + start, t->n_typed - start, &k)) > 0) {
                start += used;
                key(t, k);
        }
        memmove(t->typed, t->typed + start, t->n_typed - start);
        t->n_typed -= start;
        return 0;
}

static int on_signal(sd_event_source *s, const struct signalfd_siginfo *info, void *userdata) {
        struct top *t = userdata;

        switch (info->ssi_signo) {
        case SIGWINCH:
                measure(t);
                draw(t);
                return 0;
        case SIGTSTP:
                screen_leave(t);
                /* Not SIGTSTP again: that one is blocked, and comes here. */
                (void) raise(SIGSTOP);
                screen_enter(t);
                measure(t);
                draw(t);
                return 0;
        default:
                end(t, t->batch ? 128 + (int) info->ssi_signo : EXIT_OK);
                return 0;
        }
}

static int watch(struct top *t) {
        static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP };
        sigset_t set;
        int r;

        sigemptyset(&set);
        for (size_t i = 0; i < ELEMENTSOF(signals) - (t->batch ? 2 : 0); i++)
                sigaddset(&set, signals[i]);
        (void) sigprocmask(SIG_BLOCK, &set, NULL);

        r = sd_event_default(&t->event);
        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(signals) - (t->batch ? 2 : 0); i++)
                r = sd_event_add_signal(t->event, NULL, signals[i], on_signal, t);
        if (r >= 0 && !t->batch)
                r = sd_event_add_io(t->event, NULL, STDIN_FILENO, EPOLLIN, on_typed, t);
        if (r >= 0)
                r = sd_event_add_time_relative(t->event, &t->timer, CLOCK_MONOTONIC, 0, 1000, on_time, t);
        return r;
}

static bool can_draw(const struct terminal *terminal) {
        const char *term = getenv("TERM");

        return terminal->saved && isatty(STDOUT_FILENO) && term && term[0] && strcmp(term, "dumb") != 0;
}

static void top_done(struct top *t) {
        screen_leave(t);
        top_sample_done(&t->sample);
        sd_event_source_disable_unref(t->timer);
        sd_event_unref(t->event);
        tdp_unref(t->ctx);
}

int verb_top(const struct args *args) {
        _cleanup_(top_done) struct top t = { .view = { .sort = TOP_SORT_MEMORY } };
        int r;

        if (args->json != JSON_OFF) {
                (void) log_error(0,
                                 "\"top\" is for people. \"tdpctl metrics --json\" has the same numbers.");
                return EXIT_USAGE;
        }
        if (args_given(args, OPT_ITERATIONS) && args->iterations == 0) {
                (void) log_error(0, "--iterations=0 would show nothing. Leave it out for no end.");
                return EXIT_USAGE;
        }
        r = daemon_connect(args, &t.ctx);
        if (r < 0)
                return EXIT_NO_DAEMON;
        (void) tdp_set_timeout(t.ctx, CALL_USEC);

        terminal_save(&t.terminal);
        t.batch = args->batch || !can_draw(&t.terminal);
        t.view.color = !t.batch && !getenv("NO_COLOR");
        t.delay_usec = args_given(args, OPT_DELAY) ? args->delay_usec : DELAY_USEC_DEFAULT;
        t.iterations = args->iterations;
        if (t.batch && !args_given(args, OPT_ITERATIONS) && !isatty(STDOUT_FILENO))
                t.iterations = 1;
        measure(&t);

        r = watch(&t);
        if (r < 0) {
                (void) log_error(r, "The event loop cannot be set up: %s", strerror(-r));
                return EXIT_FAILED;
        }
        screen_enter(&t);
        r = sd_event_loop(t.event);
        return r < 0 ? EXIT_FAILED : t.code;
}
