/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Progress of jobs. */

#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "cleanup.h"
#include "log.h"
#include "progress.h"
#include "signals.h"
#include "size.h"

#define HIDE_CURSOR     "\033[?25l"
#define SHOW_CURSOR     "\033[?25h"
#define CLEAR_LINE      "\r\033[K"
#define COLUMNS_DEFAULT 80
#define BAR_MIN         10
#define BAR_MAX         40

static uint64_t now_usec(void) {
        struct timespec ts;

        (void) clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static unsigned columns_get(void) {
        struct winsize w;

        if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) < 0 || w.ws_col == 0)
                return COLUMNS_DEFAULT;
        return w.ws_col;
}

void progress_init(struct progress *p, const struct args *args) {
        *p = (struct progress){
                .shown = !args->quiet,
                .terminal = isatty(STDERR_FILENO),
        };
}

/* "populate  45% [####------]  3.6G of 8G  2.1G/s  2s left" */
void progress_format(char *buf, size_t size, unsigned columns, const char *phase, uint64_t done,
                     uint64_t total, uint64_t done_before, uint64_t usec) {
        char a[SIZE_TEXT_MAX], b[SIZE_TEXT_MAX], c[SIZE_TEXT_MAX], d[SIZE_TEXT_MAX];
        char left[64], right[4 * SIZE_TEXT_MAX + 32], bar[BAR_MAX + 1];
        double fraction = total > 0 ? (double) done / (double) total : 0;
        double rate = usec > 0 && done > done_before ? (double) (done - done_before) * 1e6 / (double) usec
                                                     : 0;
        unsigned width, filled;
        size_t used;

        if (fraction > 1)
                fraction = 1;
        (void) snprintf(left, sizeof(left), "%-8.16s %3u%%", phase, (unsigned) (fraction * 100));

        used = (size_t) snprintf(right, sizeof(right), "%s of %s", size_format(done, a),
                                 size_format(total, b));
        if (rate >= 1 && used < sizeof(right))
                used += (size_t) snprintf(right + used, sizeof(right) - used, "  %s/s",
                                          size_format((uint64_t) rate, c));
        if (rate >= 1 && done < total && used < sizeof(right)) {
                double left_seconds = (double) (total - done) / rate;
                uint64_t seconds = (uint64_t) (left_seconds < 1e7 ? left_seconds + 0.999 : 1e7);

                if (seconds < 60)
                        (void) snprintf(right + used, sizeof(right) - used, "  %us left",
                                        (unsigned) seconds);
                else
                        (void) snprintf(right + used, sizeof(right) - used, "  %s left",
                                        duration_format(seconds * 1000000, d));
        }

        /* The bar gives way first, then all that is behind the percentage. */
        used = strlen(left) + strlen(right) + strlen(" []  ");
        width = columns > used ? columns - (unsigned) used - 1 : 0;
        if (width > BAR_MAX)
                width = BAR_MAX;
        if (width >= BAR_MIN) {
                filled = (unsigned) (fraction * width);
                memset(bar, '#', filled);
                memset(bar + filled, '-', width - filled);
                bar[width] = '\0';
                (void) snprintf(buf, size, "%s [%s]  %s", left, bar, right);
        } else if (columns > used)
                (void) snprintf(buf, size, "%s  %s", left, right);
        else
                (void) snprintf(buf, size, "%.*s", (int) (columns > 1 ? columns - 1 : 0), left);
}

static void draw(struct progress *p, bool last) {
        char line[512];

        progress_format(line, sizeof(line), columns_get(), p->phase, p->done, p->total, p->phase_start_done,
                        now_usec() - p->phase_start_usec);
        fprintf(stderr, "%s%s%s%s", p->cursor_hidden ? "" : HIDE_CURSOR, CLEAR_LINE, line, last ? "\n" : "");
        fflush(stderr);
        p->cursor_hidden = true;
}

static void show_cursor(struct progress *p, bool clear) {
        if (!p->cursor_hidden)
                return;
        fprintf(stderr, "%s%s", clear ? CLEAR_LINE : "", SHOW_CURSOR);
        fflush(stderr);
        p->cursor_hidden = false;
}

static void phase_begin(struct progress *p, const char *phase, uint64_t done) {
        (void) snprintf(p->phase, sizeof(p->phase), "%s", phase);
        p->phase_start_usec = now_usec();
        p->phase_start_done = done;
        p->last_tenth = 0;
}

/* What was seen last may be a moment before the end. */
static void phase_finish(struct progress *p) {
        if (!p->shown || p->phase[0] == '\0')
                return;
        p->done = p->total;
        if (p->terminal)
                draw(p, true);
        else if (p->last_tenth < 10)
                fprintf(stderr, "%s: 100%%\n", p->phase);
}

void progress_show(struct progress *p, const char *phase, uint64_t done, uint64_t total) {
        unsigned tenth;

        if (p->report && phase && total > 0)
                p->report(phase, done, total, p->userdata);
        if (!p->shown || !phase)
                return;
        if (strcmp(phase, "wait") == 0 && !p->told_wait) {
                log_notice("Waiting for pages to come free.");
                p->told_wait = true;
        }
        if (total == 0)
                return;

        if (strncmp(p->phase, phase, sizeof(p->phase) - 1) != 0) {
                phase_finish(p);
                phase_begin(p, phase, done);
        }
        p->done = done;
        p->total = total;

        if (p->terminal) {
                draw(p, false);
                return;
        }

        tenth = (unsigned) ((double) done / (double) total * 10);
        if (tenth > p->last_tenth) {
                char a[SIZE_TEXT_MAX], b[SIZE_TEXT_MAX];

                fprintf(stderr, "%s: %u%% (%s of %s)\n", p->phase, tenth * 10, size_format(done, a),
                        size_format(total, b));
                p->last_tenth = tenth;
        }
}

static int on_progress(const struct tdp_job *job, void *userdata) {
        struct progress *p = userdata;
        int signo = signals_next(NULL);

        if (signo > 0) {
                if (p->signo > 0) {
                        show_cursor(p, true);
                        (void) log_error(0, "Left before job %u was canceled; \"tdpctl jobs\" shows it.",
                                         tdp_job_get_id(job));
                        if (p->leave)
                                p->leave(p->userdata);
                        _exit(128 + signo);
                }
                p->signo = signo;
                show_cursor(p, true);
                if (p->shown)
                        log_notice("Canceling the job. Again to leave at once.");
        }
        if (p->signo > 0)
                return -ECANCELED;

        if (p->check && p->check(p->userdata) < 0)
                return -ECANCELED;

        progress_show(p, tdp_job_get_phase(job), tdp_job_get_done(job), tdp_job_get_total(job));
        return 0;
}

void progress_end(struct progress *p, bool well) {
        if (well)
                phase_finish(p);
        show_cursor(p, !well);
        p->phase[0] = '\0';
}

int progress_wait(struct progress *p, struct tdp_job *job) {
        int r;

        p->phase[0] = '\0';
        r = tdp_job_wait(job, on_progress, p);
        progress_end(p, r >= 0);
        return r;
}
