/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "args.h"
#include "tdp/tdp.h"

/*
 * Shows a job's progress on standard error: a bar on a terminal, otherwise a line for each tenth. A signal
 * (see signals.h) cancels the job; a second one ends tdpctl.
 */
struct progress {
        bool shown, terminal;
        char phase[16];
        uint64_t phase_start_usec, phase_start_done, done, total;
        unsigned last_tenth;
        bool cursor_hidden, told_wait;
        int signo; /* the signal that canceled the job, or 0 */

        /* Asked each time: a negative return cancels the job. */
        int (*check)(void *userdata);
        /* Called when a second signal ends tdpctl. */
        void (*leave)(void *userdata);
        /* Called with what would be shown, for somebody who shows it elsewhere. */
        void (*report)(const char *phase, uint64_t done, uint64_t total, void *userdata);
        void *userdata;
};

void progress_init(struct progress *p, const struct args *args);

/*
 * Waits for the job. 0, or what tdp_job_wait() returned, having put the terminal right. The caller has
 * blocked the signals.
 */
int progress_wait(struct progress *p, struct tdp_job *job);

/* The same for what is no job: shows how far a phase is, and that it has ended, well or not. */
void progress_show(struct progress *p, const char *phase, uint64_t done, uint64_t total);
void progress_end(struct progress *p, bool well);

/* One line without line ends, for at most that many columns. Apart for tests. */
void progress_format(char *buf, size_t size, unsigned columns, const char *phase, uint64_t done,
                     uint64_t total, uint64_t done_before, uint64_t usec);
